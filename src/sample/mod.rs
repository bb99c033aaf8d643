//! `Sample`: a key, fields, and the shard and position from which the sample was read.

pub(crate) mod array;
pub(crate) mod json;
pub(crate) mod json_error;
mod value;

pub use crate::dtype::DType;
pub use array::{Array, ArrayError, Element};
pub use value::{FromValue, Value};

use crate::Rng;
use crate::error::{Error, ErrorKind, Result};
use crate::rng::{Purpose, salt};
use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// One training sample: the members of a tar shard that share a key.
///
/// A field is named by its extension in lower case, without the leading dot: the member `dir/0001.seg.PNG` is
/// the field `seg.png` of the sample `dir/0001`.
///
/// ```
/// use shardstream::Sample;
///
/// let sample = Sample::new("0001").with("cls", 7).with("jpg", vec![0xff, 0xd8]);
/// assert_eq!(sample.key(), "0001");
/// assert!(sample.get("png;jpg").is_some(), "alternatives are separated by a semicolon");
/// ```
#[derive(Clone)]
pub struct Sample(Box<SampleContent>);

/// The contents of a sample. A sample boxes them, because they are large and samples are moved often. The tar
/// parser allocates and fills the box, and then moves it into the sample.
#[derive(Debug, Clone)]
pub(crate) struct SampleContent<V = Value> {
    pub(crate) key: SmolStr,
    pub(crate) fields: Fields<V>,
    pub(crate) shard: Arc<str>,
    pub(crate) position: Position,
}

/// The fields of a sample in order. Up to two fields are stored inline, without an allocation.
pub(crate) type Fields<V = Value> = SmallVec<[(ByteString, V); 2]>;

/// The position of a sample in its dataset. It does not depend on the run, the rank or the thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Position {
    /// The epoch in which the sample is read.
    pub epoch: u64,
    /// The number of the shard in the shard list, from 0.
    pub shard: u64,
    /// The number of the sample in its shard, from 0. Samples that an index does not
    /// [select](crate::index::IndexBuilder::select) are counted too.
    pub sample: u64,
    /// The number of the sample among all outputs that a stage has for the same input sample, from 0.
    pub part: u64,
    /// The number of the sample's dataset in the [mix](crate::Loader::mix), from 0; 0 without a mix.
    pub dataset: u64,
}

/// The key and the shard of a sample, which are added to errors of the sample.
#[derive(Debug, Clone)]
pub(crate) struct SampleLocation {
    key: SmolStr,
    shard: Arc<str>,
}

impl SampleLocation {
    pub(crate) fn locate(&self, error: Error) -> Error {
        let error = error.with_key(self.key.as_str());
        if self.shard.is_empty() { error } else { error.in_shard(Arc::clone(&self.shard)) }
    }

    /// The location of a sample that a stage made from the sample at `origin`. A sample that the program made
    /// may have no key or no shard. The missing values are then taken from `origin`.
    pub(crate) fn made_of(self, origin: &SampleLocation) -> Self {
        let SampleLocation { key, shard } = self;
        SampleLocation {
            key: if key.is_empty() { origin.key.clone() } else { key },
            shard: if shard.is_empty() { Arc::clone(&origin.shard) } else { shard },
        }
    }
}

impl Sample {
    /// A sample without fields and without a shard.
    #[must_use]
    pub fn new(key: impl AsRef<str>) -> Self {
        Sample::from_parts(SmolStr::new(key), Fields::new(), Arc::from(""), Position::default())
    }

    /// Sets the position, which seeds the sample's [random numbers](Sample::rng). Programs call this function
    /// for samples that they have not read from shards.
    ///
    /// ```
    /// use shardstream::Sample;
    ///
    /// let draw = |epoch, number| Sample::new("a").with_position(epoch, number).rng(42).below(1000);
    /// assert_eq!(draw(0, 7), draw(0, 7));
    /// assert_ne!([draw(0, 7), draw(1, 7)], [draw(0, 8), draw(1, 8)]);
    /// ```
    #[must_use]
    pub fn with_position(mut self, epoch: u64, number: u64) -> Self {
        self.0.position = Position { epoch, sample: number, ..Position::default() };
        self
    }

    /// Adds a field, or replaces it.
    #[must_use]
    pub fn with(mut self, name: impl Into<ByteString>, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a field, and returns its previous value.
    pub fn set(&mut self, name: impl Into<ByteString>, value: impl Into<Value>) -> Option<Value> {
        let (name, value) = (name.into(), value.into());
        match self.0.fields.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => Some(std::mem::replace(old, value)),
            None => {
                self.0.fields.push((name, value));
                None
            }
        }
    }

    /// The key: the path of the members up to the first dot of the file name.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The URL of the shard, without the query and password that a signed URL may have; empty for a sample
    /// that was not read from a shard.
    #[must_use]
    pub fn shard(&self) -> &str {
        &self.0.shard
    }

    /// The position of the sample in its dataset.
    #[must_use]
    pub fn position(&self) -> Position {
        self.0.position
    }

    /// A random number generator that is seeded with `seed` and the position of this sample.
    ///
    /// Each call starts the sequence of random numbers again, so two parts of a program that use the same
    /// seed get the same numbers. The first image column draws these numbers too if `seed` is the dataset's
    /// seed. Use [`rng_named`](Sample::rng_named) for numbers that differ by purpose. A sample from
    /// [`Sample::new`] has no position. So a stage that makes a new sample from another sample should draw
    /// from the original sample.
    ///
    /// The numbers depend only on the seed, the epoch, the position of the sample and, in a mix, the number
    /// of the dataset, so that an augmentation does not change with the number of threads or ranks.
    #[must_use]
    pub fn rng(&self, seed: u64) -> Rng {
        let Position { epoch, shard, sample, part, dataset } = self.0.position;
        // If there are more than 2^24 shards, or 2^40 samples in a shard, some samples have the same random
        // numbers.
        let seed = seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Rng::of_dataset(dataset, Purpose::Sample, seed, epoch, shard << 40 | sample)
    }

    /// Like [`rng`](Sample::rng), but the generator is seeded with `name` too. Use a different name for each
    /// purpose, so that a crop and a noise with the same seed get unrelated numbers.
    ///
    /// Each column of [`Columns`](crate::collate::Columns), except the first image column, draws from this
    /// generator with the column's name.
    ///
    /// ```
    /// use shardstream::Sample;
    ///
    /// let sample = Sample::new("a").with_position(0, 7);
    /// let draw = |name| sample.rng_named(42, name).below(1000);
    /// assert_eq!(draw("flip"), draw("flip"));
    /// assert_ne!(draw("flip"), draw("noise"));
    /// ```
    #[must_use]
    pub fn rng_named(&self, seed: u64, name: &str) -> Rng {
        self.rng(seed ^ salt(name))
    }

    /// The names and values of the fields, in the order of the shard.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.fields.iter().map(|(name, value)| (&**name, value))
    }

    pub(crate) fn fields_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut Value)> {
        self.0.fields.iter_mut().map(|(name, value)| (&**name, value))
    }

    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.fields.len()
    }

    /// Whether the sample has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.fields.is_empty()
    }

    /// The value of a field. `spec` is a field name, or several names separated by semicolons: the first
    /// field that the sample has is returned. [`read`](Sample::read) and [`take`](Sample::take) convert the
    /// value to a Rust type.
    #[must_use]
    pub fn get(&self, spec: &str) -> Option<&Value> {
        self.find(spec).map(|at| &self.0.fields[at].1)
    }

    /// The value of a field, or an error if the field is missing.
    ///
    /// # Errors
    /// [`ErrorKind::MissingField`] when the sample has no field that `spec` names.
    pub fn field(&self, spec: &str) -> Result<&Value> {
        self.get(spec).ok_or_else(|| self.missing(spec))
    }

    /// Removes a field and returns its value as a `T`. If there is an error, the sample is unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::MissingField`] when the sample has no field that `spec` names, [`ErrorKind::WrongType`]
    /// when the value cannot be converted to a `T`.
    pub fn take<T: FromValue>(&mut self, spec: &str) -> Result<T> {
        let at = self.find(spec).ok_or_else(|| self.missing(spec))?;
        let (name, value) = self.0.fields.remove(at);
        T::from_value(value).map_err(|other| {
            let error = self.wrong_type::<T>(&name, &other);
            self.0.fields.insert(at, (name, other));
            error
        })
    }

    /// Returns the value of a field as a `T`, like [`take`](Sample::take), but clones the value and does not
    /// remove the field. Cloned [`Bytes`] share their memory. To read JSON as a type of your own, see
    /// [`json`](Sample::json).
    ///
    /// ```
    /// use shardstream::Sample;
    ///
    /// let sample = Sample::new("0001").with("txt", "a dog").with("cls", 7);
    /// assert_eq!((sample.read::<i64>("cls")?, sample.read::<String>("txt")?), (7, "a dog".into()));
    /// assert_eq!(sample.len(), 2);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The same errors as for [`take`](Sample::take).
    #[doc(alias = "get_as")]
    pub fn read<T: FromValue>(&self, spec: &str) -> Result<T> {
        let at = self.find(spec).ok_or_else(|| self.missing(spec))?;
        let (name, value) = &self.0.fields[at];
        T::from_value(value.clone()).map_err(|other| self.wrong_type::<T>(name, &other))
    }

    fn wrong_type<T: FromValue>(&self, name: &str, found: &Value) -> Error {
        let (field, wanted, found) = (name.to_owned(), T::TYPE, found.value_type());
        self.locate(ErrorKind::WrongType { field, wanted, found }.into())
    }

    /// Removes a field and returns its name and value; `None` if the sample has no field that `spec` names.
    pub fn remove(&mut self, spec: &str) -> Option<(ByteString, Value)> {
        self.find(spec).map(|at| self.0.fields.remove(at))
    }

    /// Removes each field for which `keep`, called with the field's name, returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.fields.retain(|(name, _)| keep(name));
    }

    /// The name of the field that [`get`](Sample::get) and [`take`](Sample::take) return for `spec`.
    pub(crate) fn name_of(&self, spec: &str) -> Option<&ByteString> {
        self.find(spec).map(|at| &self.0.fields[at].0)
    }

    /// The number of bytes in the sample's fields.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.fields.iter().map(|(_, value)| value.size()).sum()
    }

    /// Copies the raw fields into new memory, which belongs to this sample alone. An array is copied, too, if
    /// its memory is shared with others.
    ///
    /// The fields that a parser returns are slices of the chunks that were read from the network or the file,
    /// and a slice keeps its whole chunk in memory. Call this function before a sample is kept for long, as
    /// [`shuffle`] does.
    ///
    /// [`shuffle`]: crate::adapters::Pipeline::shuffle
    pub fn compact(&mut self) {
        let raw =
            self.0.fields.iter().filter_map(|(_, value)| value.as_bytes()).map(Bytes::len).sum::<usize>();
        let mut memory = BytesMut::with_capacity(raw);
        for (_, value) in &self.0.fields {
            memory.extend_from_slice(value.as_bytes().map_or(&[], |bytes| bytes));
        }
        let mut all = memory.freeze();
        for (_, value) in &mut self.0.fields {
            match value {
                Value::Bytes(bytes) => *bytes = all.split_to(bytes.len()),
                Value::Array(array) => array.compact(),
                _ => {}
            }
        }
    }

    /// Adds this sample's key and shard to an error.
    #[must_use]
    pub fn locate(&self, error: Error) -> Error {
        self.location().locate(error)
    }

    /// The key and the shard, which can be added to errors after the sample was consumed.
    pub(crate) fn location(&self) -> SampleLocation {
        SampleLocation { key: self.0.key.clone(), shard: Arc::clone(&self.0.shard) }
    }

    /// Sets the position to the position of the sample that this sample was made from, so that both samples
    /// have the same random numbers. A sample that was read from a shard keeps its own position.
    pub(crate) fn with_default_position(mut self, position: Position) -> Self {
        if self.0.shard.is_empty() {
            self.0.position = position;
        }
        self
    }

    /// Sets the shard and the position to the values of the sample that this sample was made from.
    pub(crate) fn with_origin(mut self, origin: &SampleLocation, position: Position) -> Self {
        (self.0.shard, self.0.position) = (Arc::clone(&origin.shard), position);
        self
    }

    /// Sets the shard and the position of a sample that was parsed from `shard`.
    pub(crate) fn in_shard(mut self, shard: Arc<str>, position: Position) -> Self {
        (self.0.shard, self.0.position) = (shard, position);
        self
    }

    /// Sets the number of the sample among all outputs that a stage has for the same input sample.
    pub(crate) fn with_part(mut self, part: u64) -> Self {
        self.0.position.part = part;
        self
    }

    /// The key, for callers that keep a clone of it for long. The key has its own memory: it is not a slice
    /// of a chunk or of the memory of a compact sample.
    pub(crate) fn shared_key(&self) -> &SmolStr {
        &self.0.key
    }

    pub(crate) fn into_fields(self) -> Fields {
        self.0.fields
    }

    /// Adds all of `fields`. If there is an error, adds no field.
    ///
    /// # Errors
    /// The error is the name of the first of `fields` that the sample already has.
    pub(crate) fn join(&mut self, fields: Fields) -> Result<(), ByteString> {
        let names: HashSet<&ByteString> = self.0.fields.iter().map(|(name, _)| name).collect();
        if let Some((name, _)) = fields.iter().find(|(name, _)| names.contains(name)) {
            return Err(name.clone());
        }
        self.0.fields.extend(fields);
        Ok(())
    }

    pub(crate) fn missing(&self, spec: &str) -> Error {
        let present: Vec<&str> = self.fields().map(|(name, _)| name).collect();
        let present = if present.is_empty() { "nothing else".into() } else { present.join(", ") };
        self.locate(ErrorKind::MissingField { wanted: spec.into(), present }.into())
    }

    pub(crate) fn from_parts(key: SmolStr, fields: Fields, shard: Arc<str>, position: Position) -> Self {
        Sample::from_content(Box::new(SampleContent { key, fields, shard, position }))
    }

    pub(crate) fn from_content(content: Box<SampleContent>) -> Self {
        Sample(content)
    }

    fn find(&self, spec: &str) -> Option<usize> {
        let index_of = |name: &str| self.0.fields.iter().position(|(n, _)| n == name);
        // Most specs have one name. For a short text, this loop is faster than `str::contains`.
        match spec.bytes().any(|byte| byte == b';') {
            false => index_of(spec),
            true => spec.split(';').find_map(index_of),
        }
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"__key__", &self.0.key.as_str());
        if !self.0.shard.is_empty() {
            map.entry(&"__url__", &&*self.0.shard);
        }
        map.entries(self.fields()).finish()
    }
}

#[cfg(test)]
mod tests;
