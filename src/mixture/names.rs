//! `NamedStages`: the stages that a document refers to by name. Also suggests known names for misspelt names.

use crate::error::{ErrorKind, Result};
use crate::loader::LoaderBuilder;
use crate::sample::Sample;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The stages that the datasets of a [`Mixture`](super::Mixture) can name. A name refers to a function that
/// takes a builder of samples, appends stages, and returns a builder of items. All functions must return
/// items of the same type.
///
/// ```
/// use shardstream::mixture::NamedStages;
/// use shardstream::prelude::*;
///
/// let text = |mut sample: Sample| sample.take::<String>("txt");
/// let stages = NamedStages::new()
///     .with("text", move |samples| samples.decode(Decoder::new()).map(text))
///     .with("lines", move |samples| {
///         let lines = |text: String| Ok(text.lines().map(str::to_owned).collect::<Vec<_>>());
///         samples.decode(Decoder::new()).map(text).flat_map(lines)
///     });
/// assert!(stages.names().eq(["lines", "text"]));
/// ```
#[must_use = "stages do nothing until they are passed to `Mixture::builder`"]
pub struct NamedStages<T>(BTreeMap<String, AppendStages<T>>);

type AppendStages<T> = Arc<dyn Fn(LoaderBuilder<Sample>) -> LoaderBuilder<T> + Send + Sync>;

impl<T> NamedStages<T> {
    /// An empty set of stages.
    pub fn new() -> Self {
        NamedStages(BTreeMap::new())
    }

    /// Adds stages under a name. They replace earlier stages with the same name.
    pub fn with(
        mut self,
        name: impl Into<String>,
        stages: impl Fn(LoaderBuilder<Sample>) -> LoaderBuilder<T> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(stages));
        self
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The only name, if there is exactly one name. In this case, a dataset need not name its stages.
    fn only_name(&self) -> Option<&str> {
        let mut names = self.names();
        names.next().filter(|_| names.next().is_none())
    }

    /// The stages with this name, for the dataset `dataset`. If `name` is `None` and there is only one name,
    /// returns the stages with that name.
    pub(super) fn get(&self, name: Option<&str>, dataset: &str) -> Result<&AppendStages<T>> {
        let config = |what: String| Err(ErrorKind::Config(format!("dataset `{dataset}`: {what}")).into());
        let names = self.names().collect::<Vec<_>>().join(", ");
        let Some(name) = name.or_else(|| self.only_name()) else {
            return config(format!("it names no `stages`: set it to one of {names}"));
        };
        match self.0.get(name) {
            Some(stages) => Ok(stages),
            None => config(format!(
                "there are no stages `{name}`{}: there are {names}",
                suggestion(name, self.names())
            )),
        }
    }
}

impl NamedStages<Sample> {
    /// Stages named `samples` that return samples unchanged.
    ///
    /// ```
    /// use shardstream::mixture::NamedStages;
    ///
    /// assert!(NamedStages::samples().names().eq(["samples"]));
    /// ```
    pub fn samples() -> Self {
        NamedStages::new().with("samples", |samples| samples)
    }
}

impl<T> Default for NamedStages<T> {
    fn default() -> Self {
        NamedStages::new()
    }
}

impl<T> Clone for NamedStages<T> {
    fn clone(&self) -> Self {
        NamedStages(self.0.clone())
    }
}

impl<T> fmt::Debug for NamedStages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A suggestion of the nearest known name, such as `` (did you mean `weight`?)``; empty if no name is near.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known.map(|known| (edit_distance(name, known), known)).min();
    match nearest {
        Some((distance, known)) if distance <= (name.chars().count() / 3).max(1) => {
            format!(" (did you mean `{known}`?)")
        }
        _ => String::new(),
    }
}

/// The edit distance of two names: insertions, deletions, replacements and swaps of neighbours
/// (Damerau-Levenshtein).
fn edit_distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // Names are short. For longer texts, the quadratic time is not worthwhile.
    if one.len().max(other.len()) > 64 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    for (at, cell) in rows[0].iter_mut().enumerate() {
        *cell = at;
    }
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested() {
        let known = ["weight", "shards", "seed"];
        let suggested = |name| suggestion(name, known.into_iter());
        for (name, expected) in
            [("wieght", "weight"), ("weights", "weight"), ("shard", "shards"), ("sed", "seed")]
        {
            assert_eq!(suggested(name), format!(" (did you mean `{expected}`?)"));
        }
        for name in ["topology", "x", "", &"w".repeat(1000)] {
            assert_eq!(suggested(name), "", "{name}");
        }
        for (one, other, expected) in [("kitten", "sitting", 3), ("", "ab", 2), ("ab", "ba", 1)] {
            assert_eq!(edit_distance(one, other), expected);
        }
    }
}
