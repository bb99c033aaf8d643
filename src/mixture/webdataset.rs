//! Reads specifications of several sources of shards, in the format of webdataset's `MultiShardSample`.
//!
//! ```yaml
//! prefix: gs://bucket/             # before every shard of all sources
//! buckets: train                   # the directory of sources that have none of their own
//! datasets:
//! - name: imagenet
//!   shards: imagenet-{000000..001281}.tar
//! - name: laion
//!   buckets: laion
//!   shards: [part-{000..099}.tar, part-{200..299}.tar]
//! ```
//!
//! webdataset shuffles the shards of all sources together in each epoch, so such a specification becomes one
//! dataset. `~`, `$NAME` and `${NAME}` are replaced by values of the environment, as in Python's `os.path`.

use super::document::{MixedDataset, Mixture};
use super::yaml::{Yaml, YamlEntry, entry};

/// Looks up a variable of the environment.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The mixture for a specification.
///
/// # Errors
/// A message that says what is wrong or not supported, with the line.
pub(super) fn read(root: &Yaml, environment: Variables<'_>) -> Result<Mixture, String> {
    let spec = root.map("a specification")?;
    let known = ["prefix", "buckets", "datasets"];
    if let Some(key) = spec.iter().find(|entry| !known.contains(&entry.key.as_str())) {
        return Err(key.unknown("a specification", &known));
    }
    let prefix = match entry(spec, "prefix") {
        Some(prefix) => expand(prefix, prefix.text("`prefix`")?, environment)?,
        None => String::new(),
    };
    let sources = entry(spec, "datasets").ok_or_else(|| root.error("it has no `datasets`"))?;
    let (mut names, mut shards) = (Vec::new(), Vec::new());
    for source in sources.list("`datasets`")? {
        let entries = source.map("a dataset")?;
        check_source(entries)?;
        let bucket = entry(entries, "buckets").or_else(|| entry(spec, "buckets"));
        let bucket = bucket.map(|bucket| one_bucket(bucket, environment)).transpose()?.unwrap_or_default();
        let patterns = entry(entries, "shards").ok_or_else(|| source.error("it has no `shards`"))?;
        for (at, pattern) in patterns.texts("`shards`")? {
            let pattern = expand(at, pattern, environment)?;
            shards.push(format!("{prefix}{}", joined(&bucket, &pattern)));
        }
        names.push(match entry(entries, "name") {
            Some(name) => name.text("`name`")?.to_owned(),
            None => format!("@{bucket}"),
        });
    }
    if shards.is_empty() {
        return Err(sources.error("`datasets` have no shards"));
    }
    Ok(Mixture::of(vec![MixedDataset::new(names.join("+"), shards)]))
}

/// Checks the keys of a source.
fn check_source(entries: &[YamlEntry]) -> Result<(), String> {
    for entry in entries {
        match entry.key.as_str() {
            "name" | "buckets" | "shards" => {}
            // webdataset reads all shards if the value is not above 0.
            "resample" | "choose" if entry.value.number(&entry.key)? <= 0.0 => {}
            "resample" => {
                return Err(entry.error(
                    "`resample`, which draws shards of one source with replacement, is not supported: \
                     describe the sources as datasets of a TOML document, with `weight` or `passes`",
                ));
            }
            "choose" | "perepoch" => {
                return Err(entry.error(format_args!(
                    "`{}`, which reads some shards of a source in each epoch, is not supported: describe the \
                     sources as datasets of a TOML document, with `weight`",
                    entry.key
                )));
            }
            _ => return Err(entry.unknown("a dataset", &["name", "buckets", "shards"])),
        }
    }
    Ok(())
}

/// The bucket of a source. webdataset allows only one bucket for each source.
fn one_bucket(buckets: &Yaml, environment: Variables<'_>) -> Result<String, String> {
    match buckets.texts("`buckets`")?[..] {
        [] => Ok(String::new()),
        [(at, bucket)] => expand(at, bucket, environment),
        _ => {
            Err(buckets.error("several buckets are not supported, neither here nor by webdataset: give one"))
        }
    }
}

/// Joins a directory and a path, like Python's `os.path.join`.
fn joined(directory: &str, path: &str) -> String {
    match directory {
        "" => path.to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        _ if directory.ends_with('/') => format!("{directory}{path}"),
        _ => format!("{directory}/{path}"),
    }
}

/// Replaces variables and `~` by values of the environment, like Python's `os.path.expandvars` and
/// `expanduser`. A variable that is not set is an error; Python leaves the reference to such a variable
/// unchanged.
fn expand(at: &Yaml, text: &str, environment: Variables<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, after) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some(braced) => braced,
            None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
        };
        rest = after;
        match (name, environment(name)) {
            ("", _) => expanded.push('$'),
            (_, Some(value)) => expanded.push_str(&value),
            (name, None) => {
                return Err(at.error(format_args!("the environment has no variable `{name}`: set it")));
            }
        }
    }
    expanded.push_str(rest);
    let Some(home) = expanded.strip_prefix('~') else { return Ok(expanded) };
    match (home.is_empty() || home.starts_with('/'), environment("HOME")) {
        (true, Some(directory)) => Ok(format!("{}{home}", directory.trim_end_matches('/'))),
        _ => Err(at.error("`~` cannot be expanded: give the whole path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        [("HOME", "/home/me"), ("SET", "7"), ("ROOT", "s3://b")]
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.to_owned())
    }

    fn shards(text: &str) -> Result<Vec<String>, String> {
        let mixture = read(&Yaml::parse(text)?, &environment)?;
        let [dataset] = &mixture.datasets[..] else { panic!("{mixture:?}") };
        Ok(dataset.shards.iter().map(|shard| shard.expose_secret().to_owned()).collect())
    }

    #[test]
    fn prefix_bucket_and_shard_are_joined_as_in_webdataset() {
        for (spec, expected) in [
            (
                "prefix: gs://b/\nbuckets: [train]\ndatasets: [{shards: 'a-{0..3}.tar'}]",
                "gs://b/train/a-{0..3}.tar",
            ),
            ("prefix: p-\ndatasets: [{shards: a.tar}]", "p-a.tar"),
            ("buckets: t/\ndatasets: [{shards: a.tar}]", "t/a.tar"),
            ("buckets: t\ndatasets: [{shards: /x/a.tar}]", "/x/a.tar"),
            ("buckets: t\ndatasets: [{buckets: [], shards: a.tar}]", "a.tar"),
            ("prefix: ~/\ndatasets: [{shards: a.tar}]", "/home/me/a.tar"),
            ("prefix: ${ROOT}/\ndatasets: [{shards: '$SET-{0,1}$.tar'}]", "s3://b/7-{0,1}$.tar"),
            ("datasets: [{shards: a.tar, choose: -1, resample: 0}]", "a.tar"),
        ] {
            assert_eq!(shards(spec).unwrap(), [expected], "{spec}");
        }
    }

    #[test]
    fn errors_have_the_line_and_the_unsupported_or_unknown_key() {
        for (spec, why) in [
            ("datasets:\n- shards: a.tar\n  choose: 3", "line 3: `choose`, which reads some shards"),
            ("datasets:\n- shards: a.tar\n  perepoch: 3", "line 3: `perepoch`"),
            ("datasets:\n- shards: a.tar\n  resample: 3", "line 3: `resample`, which draws"),
            (
                "datasets:\n- shards: a.tar\n  shard: 3",
                "line 3: a dataset has no key `shard` (did you mean `shards`?)",
            ),
            ("prefx: a\ndatasets: []", "line 1: a specification has no key `prefx` (did you mean `prefix`?)"),
            ("datasets: []", "line 1: `datasets` have no shards"),
            ("prefix: a", "line 1: it has no `datasets`"),
            ("datasets:\n- name: a", "line 2: it has no `shards`"),
            ("datasets:\n- shards:\n  - a.tar\n  - [b.tar]", "line 4: `shards` must be a text"),
            ("buckets: [a, b]\ndatasets: [{shards: a.tar}]", "line 1: several buckets"),
            ("\nprefix: $UNSET/\ndatasets: []", "line 2: the environment has no variable `UNSET`"),
            ("prefix: ~other/\ndatasets: []", "line 1: `~` cannot be expanded"),
        ] {
            let error = shards(spec).unwrap_err();
            assert!(error.contains(why), "{spec:?}: {error}");
        }
    }
}
