//! Parses the lists that `create` reads: CSV, tab-separated values, JSON lines, and lists of files.

use crate::csv_rows::{CellFormat, CsvRows};
use crate::failure::Failure;
use crate::file_samples::{FieldSource, PlannedSample, key_of_path};
use crate::json_row::{Cell, JsonRow};
use serde_json::Value;
use shardstream::tar::split_name;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Columns that name a file, unless `--file` names other columns.
const FILE_COLUMNS: [&str; 5] = ["file", "file_name", "filename", "path", "image"];

/// Options that say what the columns of a list mean.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ListColumns {
    /// A column with paths of files. The content of each file becomes a field. The name of the field is
    /// FIELD, or the extension of the file. May be given several times. [default: the columns named file,
    /// file_name, filename, path or image]
    #[arg(long = "file", value_name = "COLUMN[=FIELD]")]
    files: Vec<String>,
    /// No column has paths of files: every column becomes a field, whose content is the value in the list.
    /// Without --key, the keys are numbers.
    #[arg(long, conflicts_with = "files")]
    no_files: bool,
    /// The column with the keys. [default: the key comes from the path of the file, as for --from-dir]
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Put all columns other than the key and the files into one field `json`, instead of one field per
    /// column.
    #[arg(long)]
    as_json: bool,
}

impl ListColumns {
    /// Whether no option was given.
    pub(crate) fn is_default(&self) -> bool {
        self.files.is_empty() && !self.no_files && self.key.is_none() && !self.as_json
    }

    /// Whether the keys come from the paths of files.
    pub(crate) fn keys_are_paths(&self) -> bool {
        self.key.is_none() && !self.no_files
    }

    /// The sample that the row at `line` describes.
    fn sample<'a>(
        &self,
        line: usize,
        row: impl IntoIterator<Item = (&'a str, Cell)>,
    ) -> Result<PlannedSample, String> {
        let (mut key, mut files, mut values) = (None, BTreeMap::new(), BTreeMap::new());
        let mut names = HashSet::new();
        for (column, value) in row {
            if !names.insert(column) {
                return Err(format!("two values are named {column:?}"));
            }
            let is_key = self.key.as_deref() == Some(column);
            match (self.file_column(column), value) {
                (_, Cell::Null) if is_key => return Err(format!("the key, {column:?}, is null")),
                (_, value) if is_key => key = Some(value.into_text().into_boxed_str()),
                (Some(_), Cell::Null) => {}
                (Some(number), value) => {
                    files.insert(number, (column, value.into_text()));
                }
                (None, value) => drop(values.insert(column, value)),
            }
        }
        if let (Some(column), None) = (&self.key, &key) {
            return Err(format!("there is no column {column:?}"));
        }
        files.retain(|_, (_, path)| !path.is_empty());
        if files.len() < self.files.len() || (files.is_empty() && !self.no_files) {
            let wanted = match self.files.is_empty() {
                true => FILE_COLUMNS.join(", "),
                false => self.files.join(", "),
            };
            return Err(format!(
                "no column has the path of a file (looked for {wanted}): name the column by --file COLUMN, \
                 or give --no-files for a list of values"
            ));
        }
        let from_path = || files.values().next().map(|(_, path)| key_of_path(path).into());
        let mut sample = PlannedSample::new(key.or_else(from_path), u32::try_from(line).ok());
        let mut columns = Vec::new();
        let mut add = |field: String, source: FieldSource, column: &'a str| {
            let added = sample.push(field.as_str().into(), source);
            columns.push(column);
            added.map_err(|first| {
                let first = columns.get(first).copied().unwrap_or_default();
                format!(
                    "two columns make a field {field:?} ({first} and {column}): rename one by --file \
                     COLUMN=FIELD"
                )
            })
        };
        for (number, (column, path)) in files {
            let given = self.files.get(number).and_then(|given| given.split_once('='));
            let field = given.map_or_else(|| extension(&path), |(_, field)| Ok(field.to_owned()))?;
            add(field, FieldSource::file(&path), column)?;
        }
        if !self.as_json {
            for (column, value) in values {
                if value != Cell::Null {
                    add(column.to_lowercase(), FieldSource::bytes(value.into_text()), column)?;
                }
            }
            return Ok(sample);
        }
        if !values.is_empty() {
            let member = |(name, value): (&str, Cell)| format!("{}:{}", Value::from(name), value.json());
            let members: Vec<String> = values.into_iter().map(member).collect();
            add(
                "json".into(),
                FieldSource::bytes(format!("{{{}}}", members.join(","))),
                "the other columns",
            )?;
        }
        Ok(sample)
    }

    /// The position of `column` in the list of columns with paths of files; `None` if it is not listed.
    fn file_column(&self, column: &str) -> Option<usize> {
        if self.no_files {
            return None;
        }
        if self.files.is_empty() {
            return FILE_COLUMNS.iter().position(|name| *name == column);
        }
        self.files.iter().position(|given| given.split_once('=').map_or(&**given, |(name, _)| name) == column)
    }
}

fn extension(path: &str) -> Result<String, String> {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    let none = || format!("the file {path:?} has no extension: name its field by --file COLUMN=FIELD");
    extension.map(str::to_lowercase).ok_or_else(none)
}

/// Parses CSV or tab-separated values. The first row has the names of the columns. Errors name the list as
/// `place`.
pub(crate) fn csv(
    document: &str,
    format: CellFormat,
    columns: &ListColumns,
    place: &str,
) -> Result<Vec<PlannedSample>, Failure> {
    let failed = |line: usize, what: &str| Failure::Failed(format!("{place}, line {line}: {what}"));
    let mut rows = CsvRows::new(document, format);
    let Some((_, names)) = rows.next_row().map_err(|what| failed(1, &what))? else {
        return Err(failed(1, "the list is empty: its first row must have the names of the columns"));
    };
    for (number, name) in names.iter().enumerate() {
        if let Some(first) = names[..number].iter().position(|other| other == name) {
            let (first, second) = (first + 1, number + 1);
            return Err(failed(1, &format!("columns {first} and {second} are both named {name:?}")));
        }
    }
    let mut samples = Vec::new();
    loop {
        let before = rows.line;
        let Some((line, row)) = rows.next_row().map_err(|what| failed(before, &what))? else {
            return Ok(samples);
        };
        // Skip blank lines.
        if row.len() == 1 && row[0].is_empty() && names.len() > 1 {
            continue;
        }
        if row.len() != names.len() {
            let what = format!("{} columns, but the first row names {}", row.len(), names.len());
            return Err(failed(line, &what));
        }
        let row = names.iter().map(String::as_str).zip(row.into_iter().map(Cell::Text));
        samples.push(columns.sample(line, row).map_err(|what| failed(line, &what))?);
    }
}

/// Parses a list of JSON objects, one per line.
pub(crate) fn jsonl(
    document: &str,
    columns: &ListColumns,
    place: &str,
) -> Result<Vec<PlannedSample>, Failure> {
    let mut samples = Vec::new();
    for (number, line) in (1..).zip(document.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let failed = |what: String| Failure::Failed(format!("{place}, line {number}: {what}"));
        let JsonRow(row) = serde_json::from_str(line)
            .map_err(|error| failed(format!("this is not a JSON object ({error})")))?;
        let (names, cells): (Vec<String>, Vec<Cell>) = row.into_iter().unzip();
        let row = names.iter().map(String::as_str).zip(cells);
        samples.push(columns.sample(number, row).map_err(failed)?);
    }
    Ok(samples)
}

/// Parses a list of files, one per line; if `null` is set, each path ends with a NUL instead. Files whose
/// paths are equal up to the first dot of the file name form one sample; the rest of the name is the field.
pub(crate) fn files(document: &str, null: bool, place: &str) -> Result<Vec<PlannedSample>, Failure> {
    let lines: Vec<&str> = match null {
        true => document.split('\0').collect(),
        false => document.lines().map(|line| line.trim_end_matches('\r')).collect(),
    };
    let unit = if null { "name" } else { "line" };
    let mut samples: Vec<PlannedSample> = Vec::new();
    let mut by_stem: HashMap<&str, usize> = HashMap::new();
    for (number, path) in (1..).zip(&lines).filter(|(_, line)| !line.trim().is_empty()) {
        let failed = |what: String| Failure::Failed(format!("{place}, {unit} {number}: {path}: {what}"));
        let Some((stem, field)) = split_name(path.trim_start_matches("./")) else {
            return Err(failed("the name of a file must be KEY.FIELD, but this one has no field".into()));
        };
        let sample = *by_stem.entry(stem).or_insert(samples.len());
        if sample == samples.len() {
            let key = stem.trim_start_matches('/').into();
            samples.push(PlannedSample::new(Some(key), u32::try_from(number).ok()));
        }
        let Some(sample) = samples.get_mut(sample) else { continue };
        let field = field.to_lowercase();
        if let Err(first) = sample.push(field.as_str().into(), FieldSource::file(path)) {
            let first = sample.file(first).unwrap_or_default();
            let line = lines.iter().position(|line| *line == first).map_or(0, |at| at + 1);
            let what = format!("its sample has the field {field} already: {first} ({unit} {line})");
            return Err(failed(what));
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(items: &[PlannedSample]) -> Vec<String> {
        let field = |(field, content): (&str, &FieldSource)| match content {
            FieldSource::File { path, .. } => format!("{field}<{path}"),
            FieldSource::Bytes(bytes) => format!("{field}={}", String::from_utf8_lossy(bytes)),
        };
        let item = |item: &PlannedSample| {
            let fields: Vec<String> = item.fields().map(field).collect();
            format!("{}: {}", item.key.as_deref().unwrap_or("-"), fields.join(" "))
        };
        items.iter().map(item).collect()
    }

    #[test]
    fn rows_of_csv_become_samples_or_errors() {
        let text = "\u{feff}file,cls,Txt\r\na/1.JPG,3,\"one, \"\"two\"\"\nthree\"\r\n\r\nb.png,,x\n";
        let items = csv(text, CellFormat::Csv, &ListColumns::default(), "l").unwrap();
        let expected = ["a/1: jpg<a/1.JPG txt=one, \"two\"\nthree cls=3", "b: png<b.png txt=x cls="];
        let sorted = |text: &str| {
            let mut words: Vec<char> = text.chars().collect();
            words.sort_unstable();
            words
        };
        assert!(
            shown(&items).iter().zip(expected).all(|(one, other)| sorted(one) == sorted(other)),
            "{items:?}"
        );
        let columns = ListColumns {
            files: vec!["cls=bin".into()],
            key: Some("file".into()),
            as_json: true,
            ..ListColumns::default()
        };
        let items = csv("file,cls,a\nk,x.dat,1", CellFormat::Csv, &columns, "l").unwrap();
        assert_eq!(shown(&items), ["k: bin<x.dat json={\"a\":\"1\"}"]);
        for (text, what) in [
            ("", "line 1: the list is empty"),
            ("file\na.jpg\n\"b", "line 3: a quote is not closed"),
            ("file,a\nx.jpg", "line 2: 1 columns"),
            ("a\n1", "line 2: no column has the path of a file"),
            ("file\n\"a\"b", "text after"),
            ("file\nnone", "no extension"),
            ("file,jpg\na.jpg,1", "two columns make a field \"jpg\""),
        ] {
            let Err(Failure::Failed(error)) = csv(text, CellFormat::Csv, &ListColumns::default(), "l") else {
                panic!("{text}")
            };
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn lines_of_json_and_names_of_files_become_samples() {
        let text = "{\"image\": \"a.jpg\", \"cls\": 3, \"boxes\": [[1, 2]], \"none\": null}\n\n";
        let items = jsonl(text, &ListColumns::default(), "l").unwrap();
        assert_eq!(shown(&items), ["a: jpg<a.jpg boxes=[[1,2]] cls=3"]);
        assert!(jsonl("[1]", &ListColumns::default(), "l").is_err());
        let items = files("./d/a.jpg\n/x/b.JPG\nd/a.seg.png\n", false, "l").unwrap();
        assert_eq!(shown(&items), ["d/a: jpg<./d/a.jpg seg.png<d/a.seg.png", "x/b: jpg</x/b.JPG"]);
        assert!(files("README", false, "l").is_err());
    }
}
