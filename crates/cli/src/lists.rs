//! Parses the lists that `create` reads: CSV, JSON lines, and lists of files.

use crate::failure::Failure;
use crate::file_samples::{FieldSource, PlannedSample};
use serde_json::{Map, Value};
use shardstream::tar::split_name;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Columns that name a file, unless `--file` names others.
const FILE_COLUMNS: [&str; 5] = ["file", "file_name", "filename", "path", "image"];

/// Options that say what the columns of a list mean.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ListColumns {
    /// A column that names a file: its content becomes a field, named by the extension of the file, or FIELD.
    /// May be given several times. [default: file, file_name, filename, path or image, whichever is there]
    #[arg(long = "file", value_name = "COLUMN[=FIELD]")]
    files: Vec<String>,
    /// The column with the keys. [default: samples are numbered]
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Put the other columns into one field `json`, instead of one field each.
    #[arg(long)]
    as_json: bool,
}

impl ListColumns {
    /// Whether no option was given.
    pub(crate) fn is_default(&self) -> bool {
        self.files.is_empty() && self.key.is_none() && !self.as_json
    }

    /// The sample that a row describes.
    fn sample(&self, row: Map<String, Value>) -> Result<PlannedSample, String> {
        let mut fields: Vec<(Arc<str>, FieldSource)> = Vec::new();
        let mut rest = Map::new();
        let (mut key, mut found) = (None, 0);
        for (column, value) in row {
            if self.key.as_ref() == Some(&column) {
                key = Some(text(&value).into_boxed_str());
                continue;
            }
            match self.file_column(&column) {
                Some(field) if value != Value::Null && !text(&value).is_empty() => {
                    let path = text(&value);
                    let field = match field {
                        Some(field) => field.to_owned(),
                        None => extension(&path)?,
                    };
                    fields.push((field.into(), FieldSource::file(&path)));
                    found += 1;
                }
                Some(_) => {}
                None => drop(rest.insert(column, value)),
            }
        }
        if let (Some(column), None) = (&self.key, &key) {
            return Err(format!("there is no column {column:?}"));
        }
        if found < self.files.len() || (found == 0 && self.files.is_empty()) {
            let wanted = match self.files.is_empty() {
                true => FILE_COLUMNS.join(", "),
                false => self.files.join(", "),
            };
            return Err(format!("no column names a file (looked for {wanted}): name it by --file COLUMN"));
        }
        match self.as_json {
            true if rest.is_empty() => {}
            true => fields.push((
                "json".into(),
                FieldSource::Bytes(Value::Object(rest).to_string().into_bytes().into()),
            )),
            false => {
                let values = rest.into_iter().filter(|(_, value)| *value != Value::Null);
                fields.extend(values.map(|(column, value)| {
                    let bytes = text(&value).into_bytes().into();
                    (column.to_lowercase().into(), FieldSource::Bytes(bytes))
                }));
            }
        }
        let mut names: Vec<&str> = fields.iter().map(|(field, _)| &**field).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(format!("two columns make a field {:?}: rename one by --file COLUMN=FIELD", pair[0]))
            }
            None => Ok(PlannedSample { key, fields }),
        }
    }

    /// `None` if the column names no file. Otherwise the field that `--file` gives for it; the inner `None`
    /// means that the extension of the file names the field.
    fn file_column(&self, column: &str) -> Option<Option<&str>> {
        if self.files.is_empty() {
            return FILE_COLUMNS.contains(&column).then_some(None);
        }
        self.files.iter().find_map(|given| match given.split_once('=') {
            Some((name, field)) => (name == column).then_some(Some(field)),
            None => (given == column).then_some(None),
        })
    }
}

/// The text of a value: a string as it is, any other value as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn extension(path: &str) -> Result<String, String> {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    let none = || format!("the file {path:?} has no extension: name its field by --file COLUMN=FIELD");
    extension.map(str::to_lowercase).ok_or_else(none)
}

/// Parses a CSV document (RFC 4180) whose first row has the names of the columns. `place` names it in errors.
pub(crate) fn csv(document: &str, columns: &ListColumns, place: &str) -> Result<Vec<PlannedSample>, Failure> {
    let failed = |line: usize, what: &str| Failure::Failed(format!("{place}, line {line}: {what}"));
    let mut rows = CsvRows { rest: document.strip_prefix('\u{feff}').unwrap_or(document), line: 1 };
    let Some((_, names)) = rows.next_row().map_err(|what| failed(1, &what))? else {
        return Err(failed(1, "the list is empty: its first row has the names of the columns"));
    };
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
            return Err(failed(line, &format!("{} columns, and {} are named", row.len(), names.len())));
        }
        let row = names.iter().cloned().zip(row.into_iter().map(Value::String)).collect();
        samples.push(columns.sample(row).map_err(|what| failed(line, &what))?);
    }
}

/// A parser of the rows of a CSV document.
struct CsvRows<'a> {
    rest: &'a str,
    /// Number of the line at which `rest` begins, from 1.
    line: usize,
}

impl CsvRows<'_> {
    /// The next row, with the number of the line at which it begins.
    fn next_row(&mut self) -> Result<Option<(usize, Vec<String>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let line = self.line;
        let mut row = Vec::new();
        loop {
            let cell = match self.rest.strip_prefix('"') {
                Some(rest) => {
                    self.rest = rest;
                    self.quoted()?
                }
                None => {
                    let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
                    let (cell, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    let ends = !rest.starts_with(',');
                    if ends { cell.strip_suffix('\r').unwrap_or(cell) } else { cell }.to_owned()
                }
            };
            row.push(cell);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                continue;
            }
            let end = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
            match end {
                Some(rest) => self.rest = rest,
                None if self.rest.is_empty() => {}
                None => return Err("text after a closing quote".into()),
            }
            self.line += 1;
            return Ok(Some((line, row)));
        }
    }

    /// Parses a quoted cell, of which the opening quote was read. A quote in it is doubled.
    fn quoted(&mut self) -> Result<String, String> {
        let mut cell = String::new();
        loop {
            let Some(end) = self.rest.find('"') else { return Err("a quote is not closed".into()) };
            let (text, rest) = (&self.rest[..end], &self.rest[end + 1..]);
            self.line += text.matches('\n').count();
            cell.push_str(text);
            match rest.strip_prefix('"') {
                Some(after) => {
                    cell.push('"');
                    self.rest = after;
                }
                None => {
                    self.rest = rest;
                    return Ok(cell);
                }
            }
        }
    }
}

/// Parses a list of JSON objects, one a line.
pub(crate) fn jsonl(
    document: &str,
    columns: &ListColumns,
    place: &str,
) -> Result<Vec<PlannedSample>, Failure> {
    let mut samples = Vec::new();
    for (number, line) in document.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let failed = |what: String| Failure::Failed(format!("{place}, line {}: {what}", number + 1));
        let row: Map<String, Value> = serde_json::from_str(line)
            .map_err(|error| failed(format!("this is not a JSON object ({error})")))?;
        samples.push(columns.sample(row).map_err(failed)?);
    }
    Ok(samples)
}

/// Parses a list of files, one a line. Files whose paths are the same up to the first dot of the file name
/// form one sample; the rest of the name is the field.
pub(crate) fn files(document: &str, place: &str) -> Result<Vec<PlannedSample>, Failure> {
    let mut samples: Vec<PlannedSample> = Vec::new();
    let mut by_key: HashMap<Box<str>, usize> = HashMap::new();
    for (number, line) in document.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let path = line.trim_end_matches('\r');
        let name = path.trim_start_matches("./").trim_start_matches('/');
        let Some((key, field)) = split_name(name) else {
            let what = "the name of a file is KEY.FIELD, and this one has no field";
            return Err(Failure::Failed(format!("{place}, line {}: {path}: {what}", number + 1)));
        };
        let field = (field.to_lowercase().into(), FieldSource::file(path));
        match by_key.get(key) {
            Some(number) => samples[*number].fields.push(field),
            None => {
                by_key.insert(key.into(), samples.len());
                samples.push(PlannedSample { key: Some(key.into()), fields: vec![field] });
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(items: &[PlannedSample]) -> Vec<String> {
        let field = |(field, content): &(Arc<str>, FieldSource)| match content {
            FieldSource::File { path, .. } => format!("{field}<{path}"),
            FieldSource::Bytes(bytes) => format!("{field}={}", String::from_utf8_lossy(bytes)),
        };
        let item = |item: &PlannedSample| {
            let fields: Vec<String> = item.fields.iter().map(field).collect();
            format!("{}: {}", item.key.as_deref().unwrap_or("-"), fields.join(" "))
        };
        items.iter().map(item).collect()
    }

    #[test]
    fn rows_of_csv() {
        let text = "\u{feff}file,cls,Txt\r\na/1.JPG,3,\"one, \"\"two\"\"\nthree\"\r\n\r\nb.png,,x\n";
        let items = csv(text, &ListColumns::default(), "l").unwrap();
        let expected = ["-: jpg<a/1.JPG txt=one, \"two\"\nthree cls=3", "-: png<b.png txt=x cls="];
        let sorted = |text: &str| {
            let mut words: Vec<char> = text.chars().collect();
            words.sort_unstable();
            words
        };
        assert!(
            shown(&items).iter().zip(expected).all(|(one, other)| sorted(one) == sorted(other)),
            "{items:?}"
        );
        let columns = ListColumns { files: vec!["cls=bin".into()], key: Some("file".into()), as_json: true };
        let items = csv("file,cls,a\nk,x.dat,1", &columns, "l").unwrap();
        assert_eq!(shown(&items), ["k: bin<x.dat json={\"a\":\"1\"}"]);
        for (text, what) in [
            ("", "line 1: the list is empty"),
            ("file\na.jpg\n\"b", "line 3: a quote is not closed"),
            ("file,a\nx.jpg", "line 2: 1 columns"),
            ("a\n1", "line 2: no column names a file"),
            ("file\n\"a\"b", "text after"),
            ("file\nnone", "no extension"),
            ("file,jpg\na.jpg,1", "two columns make a field \"jpg\""),
        ] {
            let Err(Failure::Failed(error)) = csv(text, &ListColumns::default(), "l") else {
                panic!("{text}")
            };
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn lines_of_json_and_of_files() {
        let text = "{\"image\": \"a.jpg\", \"cls\": 3, \"boxes\": [[1, 2]], \"none\": null}\n\n";
        let items = jsonl(text, &ListColumns::default(), "l").unwrap();
        assert_eq!(shown(&items), ["-: jpg<a.jpg boxes=[[1,2]] cls=3"]);
        assert!(jsonl("[1]", &ListColumns::default(), "l").is_err());
        let items = files("./d/a.jpg\n/x/b.JPG\nd/a.seg.png\n", "l").unwrap();
        assert_eq!(shown(&items), ["d/a: jpg<./d/a.jpg seg.png<d/a.seg.png", "x/b: jpg</x/b.JPG"]);
        assert!(files("README", "l").is_err());
    }
}
