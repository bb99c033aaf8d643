//! Collects the objects of a listing, with a limit on their memory.

use super::source::ObjectInfo;
use crate::error::{ErrorKind, Result, SizeLimit};
use std::mem::size_of;

/// Maximum number of bytes of a listing in memory: some three million objects.
const MAX_BYTES: u64 = 512 << 20;

/// Collects the objects of a listing.
///
/// A faulty source may list forever. So the memory is bounded, and an object that is listed again is an
/// error.
#[derive(Debug, Default)]
pub(super) struct Listing {
    objects: Vec<ObjectInfo>,
    bytes: u64,
    /// The number of the object with which later objects are compared. It moves to the last object whenever
    /// the number of objects has doubled (Brent's algorithm). So a cycle of any length is detected, after
    /// about three rounds.
    mark: usize,
}

impl Listing {
    /// Adds an object.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the listing takes too much memory, and [`ErrorKind::Store`] if an object is
    /// listed twice.
    pub(super) fn push(&mut self, object: ObjectInfo) -> Result<()> {
        let text = object.url.len() + object.version.as_ref().map_or(0, String::len);
        self.bytes += (size_of::<ObjectInfo>() + text) as u64;
        if self.bytes > MAX_BYTES {
            return Err(
                ErrorKind::TooLarge { what: SizeLimit::Listing, size: self.bytes, limit: MAX_BYTES }.into()
            );
        }
        if self.objects.get(self.mark).is_some_and(|mark| mark.url == object.url) {
            let why = "the listing repeats itself: an object is listed a second time";
            return Err(ErrorKind::Store(why.into()).into());
        }
        self.objects.push(object);
        if self.objects.len().is_power_of_two() {
            self.mark = self.objects.len() - 1;
        }
        Ok(())
    }

    pub(super) fn into_objects(self) -> Vec<ObjectInfo> {
        self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_of_any_length_is_an_error() {
        for (before, round) in [(0, 1), (0, 2), (3, 1), (5, 7), (100, 9), (9, 1000)] {
            let (mut listing, numbers) =
                (Listing::default(), (0..before).chain((before..before + round).cycle()));
            let end = numbers
                .take(before + round * 5 + 4 * (before + 1))
                .find_map(|number| listing.push(ObjectInfo::new(format!("k/{number}"), 1)).err());
            assert!(matches!(end.unwrap().kind(), ErrorKind::Store(_)), "{before} {round}");
        }
    }

    #[test]
    fn the_memory_of_a_listing_is_bounded() {
        let mut listing = Listing { bytes: MAX_BYTES - 1000, ..Listing::default() };
        let end = (0..100).find_map(|number| listing.push(ObjectInfo::new(format!("k/{number}"), 1)).err());
        assert!(matches!(end.unwrap().kind(), ErrorKind::TooLarge { what: SizeLimit::Listing, .. }));
        assert!(listing.into_objects().len() < 20);
    }
}
