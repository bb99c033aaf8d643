//! Metadatasets of Megatron Energon, versions 1 and 2: blends of prepared datasets.
//!
//! ```yaml
//! __module__: megatron.energon
//! __class__: MetadatasetV2
//! splits:
//!   train:
//!     blend:                        # or `blend_epochized`, with `repetitions` for `weight`
//!     - path: ./coco                # relative to this file: a prepared dataset, or another metadataset
//!       weight: 5
//!     - path: ./coyo
//!       split_part: pretrain
//!       weight: 2
//! ```
//!
//! The directory `.nv-meta` of a dataset lists its shards and their numbers of samples. The file
//! `dataset.yaml` in that directory says how samples are decoded. It is not read, because the stages of the
//! program decode samples.

use super::document::{MixedDataset, Mixture};
use super::names::suggestion;
use super::yaml::{Yaml, YamlEntry, entry};
use crate::plan::whole_weights;
use crate::shards::braces;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of files that are read for one mixture. Without it, a few metadatasets could cause any
/// number of reads, if each refers to the next one several times.
const MAX_FILES: usize = 10_000;
/// Maximum depth of nested metadatasets.
const MAX_DEPTH: usize = 64;
/// Maximum number of shards of a dataset.
const MAX_SHARDS: usize = 1 << 24;

/// The mixture for a split of a metadataset.
///
/// # Errors
/// A message that says what is wrong or not supported, with the line. If the mistake is not in `file` but in
/// another file, the message names that file.
pub(super) fn read(root: &Yaml, file: &Path, split: &str) -> Result<Mixture, String> {
    // A document that was not read from a file has no canonical path, and no metadataset can refer to it.
    let first = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mut reader = MetadatasetReader { open: vec![first], files: 0 };
    let Blend { mode, parts } = reader.metadataset(root, file, split)?;
    let weights = whole_weights(&parts.iter().map(|part| part.share).collect::<Vec<_>>());
    let mut names = BTreeSet::new();
    let datasets = parts.into_iter().zip(weights).map(|(part, weight)| {
        let mut dataset = MixedDataset::new(unique_name(&part.directory, &mut names), part.shards);
        dataset.size = Some(part.samples);
        match mode {
            BlendMode::Weights => dataset.weight = weight,
            BlendMode::Repetitions => dataset.passes = part.repetitions,
            BlendMode::Single => {}
        }
        dataset
    });
    let mut mixture = Mixture::of(datasets.collect());
    // Energon draws the datasets of `blend_epochized` in proportion to their numbers of samples. That is a
    // temperature of 1.
    mixture.temperature = (mode == BlendMode::Repetitions).then_some(1.0);
    Ok(mixture)
}

/// How the datasets of a blend are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlendMode {
    Single,
    Weights,
    Repetitions,
}

struct Blend {
    mode: BlendMode,
    parts: Vec<BlendPart>,
}

/// A prepared dataset of a blend.
struct BlendPart {
    directory: PathBuf,
    shards: Vec<String>,
    samples: u64,
    /// The dataset's share of the items, in a blend by weights.
    share: f64,
    repetitions: u64,
}

/// Reads metadatasets, which may refer to other metadatasets.
struct MetadatasetReader {
    /// The canonical paths of the current metadataset and of the metadatasets in which it is nested, the
    /// outermost first.
    open: Vec<PathBuf>,
    /// Number of files that have been read.
    files: usize,
}

impl MetadatasetReader {
    fn metadataset(&mut self, root: &Yaml, file: &Path, split: &str) -> Result<Blend, String> {
        let known = ["__module__", "__class__", "splits"];
        let entries = root.map("a metadataset")?;
        if let Some(key) = entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            return Err(key.unknown("a metadataset", &known));
        }
        let is_first_version = match entry(entries, "__class__") {
            None => true,
            Some(class) => match class.text("`__class__`")? {
                "Metadataset" => true,
                "MetadatasetV2" => false,
                other => {
                    return Err(class.error(format_args!(
                        "the class `{other}` is not supported: `Metadataset` and `MetadatasetV2` are"
                    )));
                }
            },
        };
        let splits = entry(entries, "splits").ok_or_else(|| root.error("it has no `splits`"))?;
        let all = splits.map("`splits`")?;
        let Some(chosen) = entry(all, split) else {
            let names = || all.iter().map(|entry| entry.key.as_str());
            let (nearest, known) = (suggestion(split, names()), names().collect::<Vec<_>>().join(", "));
            return Err(splits.error(format_args!("there is no split `{split}`{nearest}: there are {known}")));
        };
        let fields = chosen.map("a split")?;
        match (is_first_version, fields) {
            (true, [only]) if only.key == "datasets" => {
                self.blend(&only.value, BlendMode::Weights, file, split)
            }
            (true, _) => Err(chosen.error("a split of a `Metadataset` has `datasets`, and nothing else")),
            (false, [only]) if only.key == "blend" => {
                self.blend(&only.value, BlendMode::Weights, file, split)
            }
            (false, [only]) if only.key == "blend_epochized" => {
                self.blend(&only.value, BlendMode::Repetitions, file, split)
            }
            (false, _) => {
                check_reference(fields, None)?;
                self.reference(chosen, fields, file, split)
            }
        }
    }

    /// Reads the datasets of a blend. If the blend refers to a nested blend, the share of the nested blend
    /// multiplies the shares of its datasets. The same holds for repetitions.
    fn blend(&mut self, list: &Yaml, mode: BlendMode, file: &Path, split: &str) -> Result<Blend, String> {
        let factor = if mode == BlendMode::Weights { "weight" } else { "repetitions" };
        let (mut parts, mut sum) = (Vec::new(), 0.0);
        for reference in list.list("a blend")? {
            let fields = reference.map("a dataset of a blend")?;
            check_reference(fields, Some(factor))?;
            let value = match entry(fields, factor) {
                None => 1.0,
                Some(value) => positive(value, factor, mode)?,
            };
            sum += value;
            let inner = self.reference(reference, fields, file, split)?;
            if inner.mode != BlendMode::Single && inner.mode != mode {
                return Err(reference.error("a blend by weights and one by repetitions cannot be mixed"));
            }
            for part in inner.parts {
                parts.push(match mode {
                    BlendMode::Repetitions => {
                        let repetitions = part.repetitions.saturating_mul(value as u64);
                        BlendPart { repetitions, ..part }
                    }
                    _ => BlendPart { share: part.share * value, ..part },
                });
            }
        }
        if parts.is_empty() {
            return Err(list.error("a blend has no datasets"));
        }
        if mode == BlendMode::Weights {
            parts.iter_mut().for_each(|part| part.share /= sum);
        }
        Ok(Blend { mode, parts })
    }

    /// Reads a reference to a dataset or to another metadataset.
    fn reference(
        &mut self,
        reference: &Yaml,
        fields: &[YamlEntry],
        file: &Path,
        split: &str,
    ) -> Result<Blend, String> {
        let at = entry(fields, "path").ok_or_else(|| reference.error("it has no `path`"))?;
        let path = at.text("`path`")?;
        if path.contains("://") {
            return Err(at.error(
                "a `path` that is a URL is not supported: list the shards of the dataset in a TOML document",
            ));
        }
        let path = file.parent().unwrap_or(Path::new("")).join(path);
        let split = match entry(fields, "split_part").filter(|part| !part.is_null()) {
            Some(part) => part.text("`split_part`")?,
            None => split,
        };
        let in_file = |error: String| at.error(format_args!("{}: {error}", path.display()));
        if path.is_file() {
            // Compare canonical paths, because a file has any number of other paths, with `..` and links.
            let canonical = path.canonicalize().map_err(|error| in_file(error.to_string()))?;
            if self.open.contains(&canonical) {
                return Err(at.error(format_args!("{} contains itself", path.display())));
            }
            if self.open.len() >= MAX_DEPTH {
                return Err(at.error(format_args!("metadatasets are nested more than {MAX_DEPTH} deep")));
            }
            let inner = self.load(&path).map_err(in_file)?;
            self.open.push(canonical);
            let blend = self.metadataset(&inner, &path, split).map_err(in_file);
            self.open.pop();
            return blend;
        }
        let config = entry(fields, "split_config").filter(|config| !config.is_null());
        let config = config.map(|config| config.text("`split_config`")).transpose()?;
        let part = self.dataset(path.clone(), config, split).map_err(in_file)?;
        Ok(Blend { mode: BlendMode::Single, parts: vec![part] })
    }

    /// Reads the names of a prepared dataset's shards, and the total number of samples in the shards. The
    /// result's `share` and `repetitions` are 1.
    fn dataset(
        &mut self,
        directory: PathBuf,
        split_config: Option<&str>,
        split: &str,
    ) -> Result<BlendPart, String> {
        let meta = directory.join(".nv-meta");
        let Some(info) =
            [".info.json", ".info.yaml"].map(|name| meta.join(name)).into_iter().find(|path| path.is_file())
        else {
            return Err(
                "there is neither a metadataset nor a dataset that `energon prepare` has prepared, with \
                        `.nv-meta/.info.json`"
                    .into(),
            );
        };
        let splits = match split_config {
            Some(name) => meta.join(name),
            None => {
                let (yaml, json) = (meta.join("split.yaml"), meta.join("split.json"));
                if yaml.is_file() || !json.is_file() { yaml } else { json }
            }
        };
        let in_file = |path: &Path| {
            let path = path.to_owned();
            move |error: String| format!("{}: {error}", path.display())
        };
        let (info_file, split_file) = (in_file(&info), in_file(&splits));
        let names = {
            let document = self.load(&splits).map_err(&split_file)?;
            shards_of_split(&document, split).map_err(&split_file)?
        };
        let document = self.load(&info).map_err(&info_file)?;
        let samples = samples_of(&document, &names).map_err(&info_file)?;
        let Some(prefix) = directory.to_str().filter(|path| !path.contains(PATTERN_CHARACTERS)) else {
            return Err("its directory has characters of patterns in its name: move it".into());
        };
        if let Some(name) = names.iter().find(|name| name.contains(PATTERN_CHARACTERS)) {
            return Err(format!("the shard `{name}` has characters of patterns in its name"));
        }
        let shards = names.iter().map(|name| format!("{prefix}/{name}")).collect();
        Ok(BlendPart { directory, shards, samples, share: 1.0, repetitions: 1 })
    }

    fn load(&mut self, path: &Path) -> Result<Yaml, String> {
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(format!("the metadataset refers to more than {MAX_FILES} files"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Yaml::parse(&text)
    }
}

/// Characters with a special meaning in patterns of shards. A name with one of these characters would be
/// expanded.
const PATTERN_CHARACTERS: [char; 8] = ['{', '}', '*', '?', '[', ']', '$', ':'];

/// Checks the keys of a reference to a dataset. `factor` is the key of the weight or the repetitions, if the
/// reference may have one.
fn check_reference(fields: &[YamlEntry], factor: Option<&str>) -> Result<(), String> {
    for field in fields {
        let unsupported =
            |instead: &str| Err(field.error(format_args!("`{}` is not supported: {instead}", field.key)));
        match field.key.as_str() {
            // `dataset_config` says how samples are decoded. It is ignored, because the stages of the program
            // decode samples.
            "path" | "split_part" | "split_config" | "dataset_config" => {}
            key if Some(key) == factor => {}
            // Here `null` does not mean the default: it means that shards are read in their order.
            "shuffle_over_epochs_multiplier" => {
                if field.value.is_null() || field.value.number(&field.key)? != 1.0 {
                    unsupported("only its default, 1, is")?;
                }
            }
            _ if field.value.is_null() => {}
            "subflavors" | "subflavor" => unsupported("give the datasets `stages` that add what they need")?,
            "subset" => unsupported("build the dataset with a `DatasetPart`")?,
            "join" | "joiner" => unsupported("build the dataset with `DatasetBuilder::join`")?,
            "aux" => unsupported("read other files in a stage")?,
            "weight" | "repetitions" => unsupported("it belongs to another kind of blend")?,
            "blend" | "blend_epochized" => {
                unsupported("a blend in a blend must be a file of its own, and nothing else in its split")?;
            }
            _ => {
                let known = ["path", "split_part", "split_config", "dataset_config"];
                let known: Vec<&str> = known.into_iter().chain(factor).collect();
                return Err(field.unknown("a reference to a dataset", &known));
            }
        }
    }
    Ok(())
}

/// Reads a weight or a number of repetitions. Both must be positive, and a number of repetitions must be
/// whole.
fn positive(value: &Yaml, name: &str, mode: BlendMode) -> Result<f64, String> {
    let number = value.number(&format!("`{name}`"))?;
    if number <= 0.0 {
        return Err(value.error(format_args!("a `{name}` of {number}: leave the dataset out")));
    }
    if mode == BlendMode::Repetitions && (number.fract() != 0.0 || number > f64::from(u32::MAX)) {
        return Err(
            value.error(format_args!("`{name}` of {number} are not supported: only whole numbers are"))
        );
    }
    Ok(number)
}

/// The shards of a split, without the excluded shards.
fn shards_of_split(document: &Yaml, split: &str) -> Result<Vec<String>, String> {
    let entries = document.map("a split configuration")?;
    let parts = entry(entries, "split_parts").ok_or_else(|| document.error("it has no `split_parts`"))?;
    let all = parts.map("`split_parts`")?;
    let Some(part) = entry(all, split) else {
        let names = || all.iter().map(|entry| entry.key.as_str());
        let (nearest, known) = (suggestion(split, names()), names().collect::<Vec<_>>().join(", "));
        return Err(parts.error(format_args!("there is no split part `{split}`{nearest}: there are {known}")));
    };
    let mut shards = expanded(part, "shards")?;
    if let Some(exclude) = entry(entries, "exclude").filter(|exclude| !exclude.is_null()) {
        let excluded: BTreeSet<String> = expanded(exclude, "`exclude`")?.into_iter().collect();
        shards.retain(|shard| !excluded.contains(shard));
        // An excluded sample is named `SHARD/SAMPLE`. The name of a shard may contain slashes too.
        let kept: BTreeSet<&str> = shards.iter().map(String::as_str).collect();
        let is_sample = |name: &&String| name.match_indices('/').any(|(at, _)| kept.contains(&name[..at]));
        if let Some(sample) = excluded.iter().find(is_sample) {
            return Err(
                exclude.error(format_args!("excluded samples, such as `{sample}`, are not supported"))
            );
        }
    }
    if shards.is_empty() {
        return Err(part.error(format_args!("the split part `{split}` has no shards")));
    }
    Ok(shards)
}

/// The names that a list of patterns expands to.
fn expanded(list: &Yaml, name: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for (at, pattern) in list.texts(name)? {
        let left = MAX_SHARDS - names.len();
        names.extend(braces::expand(pattern, left).map_err(|error| at.error(error))?);
    }
    Ok(names)
}

/// The total number of samples in these shards.
fn samples_of(document: &Yaml, shards: &[String]) -> Result<u64, String> {
    let counts = document.map("the information about a dataset")?;
    let counts = entry(counts, "shard_counts").ok_or_else(|| document.error("it has no `shard_counts`"))?;
    let mut sorted: Vec<&YamlEntry> = counts.map("`shard_counts`")?.iter().collect();
    sorted.sort_by(|one, other| one.key.cmp(&other.key));
    let mut samples = 0u64;
    for shard in shards {
        let Ok(at) = sorted.binary_search_by(|entry| entry.key.as_str().cmp(shard)) else {
            return Err(
                counts.error(format_args!("there is no count of `{shard}`: run `energon prepare` again"))
            );
        };
        let count = &sorted[at].value;
        let number = count.text("a count")?.parse().ok();
        let Some(sum) = number.and_then(|number: u64| samples.checked_add(number)) else {
            return Err(count.error("a count must be a whole number"));
        };
        samples = sum;
    }
    Ok(samples)
}

/// A name for a dataset: the last part of its path, with a number if another dataset has that name.
fn unique_name(directory: &Path, names: &mut BTreeSet<String>) -> String {
    let name = directory.file_name().map_or_else(|| "dataset".into(), |name| name.to_string_lossy());
    // A number as a name would be ambiguous: in a mix, the name of an unnamed dataset is its number.
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let name = if is_number { format!("dataset-{name}") } else { name.into_owned() };
    let numbered = std::iter::once(name.clone()).chain((2u64..).map(|number| format!("{name}-{number}")));
    let unique = numbered.into_iter().find(|name| !names.contains(name)).unwrap_or(name);
    names.insert(unique.clone());
    unique
}
