//! Makes the pictures of samples smaller before the samples are written.

use crate::failure::causes;
use crate::field::is_image_file;
use crate::saved_plan::SavedPlan;
use crate::text;
use serde::Serialize;
use shardstream::image::{ImageError, KeptReason, Shrink, Shrunk};
use shardstream::{Error, Result, Sample};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The JPEG decoder. It is part of the plan, because pixels of different decoders may differ by 1 or 2, and
/// so the shards would differ.
const DECODER: &str = if cfg!(feature = "turbojpeg") { "libjpeg-turbo" } else { "zune-jpeg" };

/// Options that make pictures smaller.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ShrinkOptions {
    #[command(flatten)]
    side: SideOptions,
    /// With --max-side or --short-side: quality of the JPEG files that are written, from 1 to 100.
    /// [default: 90]
    #[arg(long, value_name = "QUALITY", requires = "side")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    #[arg(default_value = "90", hide_default_value = true)]
    quality: u8,
    /// With --max-side or --short-side: resize only these fields. In these fields, PNGs that are grey or have
    /// a palette are resized too. By default, all fields with the extension of a picture are resized, but
    /// PNGs that are grey or have a palette are kept, because they may be masks. Masks in RGB (COCO panoptic,
    /// ADE20K) look like photographs to the program: if a field has such masks, list all other fields here.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', requires = "side")]
    shrink_fields: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[group(id = "side", multiple = false)]
struct SideOptions {
    /// Shrink JPEG and PNG pictures whose longer side has more pixels than this, by a Lanczos filter in
    /// linear light, and apply their EXIF orientation. Other pictures are stored unchanged. --max-size limits
    /// the bytes of the original files in a shard: give a larger size, since the written shards get smaller.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..))]
    max_side: Option<u32>,
    /// Like --max-side, but limits the shorter side, as torchvision's Resize does.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..))]
    short_side: Option<u32>,
}

impl ShrinkOptions {
    /// Whether pictures are made smaller.
    pub(crate) fn is_set(&self) -> bool {
        self.side.max_side.or(self.side.short_side).is_some()
    }

    /// The shrinker; `None` if pictures are not made smaller.
    ///
    /// # Errors
    /// None in practice: the parser of the options accepts only valid values.
    pub(crate) fn shrinker(&self) -> Result<Option<SampleShrinker>> {
        let shrink = match self.side {
            SideOptions { max_side: Some(side), .. } => Shrink::max_side(side)?,
            SideOptions { short_side: Some(side), .. } => Shrink::short_side(side)?,
            _ => return Ok(None),
        };
        let shrink = shrink.quality(self.quality)?;
        let fields = self.shrink_fields.clone();
        let shrink = shrink.grey_and_palette(!fields.is_empty());
        Ok(Some(SampleShrinker { shrink, fields, counts: Mutex::default() }))
    }

    /// Adds these options to a plan, if pictures are made smaller.
    pub(crate) fn planned(&self, plan: SavedPlan) -> SavedPlan {
        let SideOptions { max_side, short_side } = self.side;
        let sides = [("max-side", max_side), ("short-side", short_side)];
        let Some((name, side)) = sides.into_iter().find_map(|(name, side)| Some((name, side?))) else {
            return plan;
        };
        let mut plan =
            plan.option(name, side).option("jpeg-decoder", DECODER).option("quality", self.quality);
        if !self.shrink_fields.is_empty() {
            plan = plan.option("shrink-fields", self.shrink_fields.join(","));
        }
        plan
    }
}

/// Makes the pictures of samples smaller, on any number of threads, and counts them.
#[derive(Debug)]
pub(crate) struct SampleShrinker {
    shrink: Shrink,
    /// The fields that are resized. If empty, all fields with the extension of a picture are resized.
    fields: Vec<String>,
    counts: Mutex<ShrunkPictures>,
}

/// Counts of pictures that were made smaller, and of pictures that were kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ShrunkPictures {
    resized: u64,
    /// Size of the resized pictures in bytes, before they were resized.
    bytes_before: u64,
    /// Size of the resized pictures in bytes, after they were resized.
    bytes_after: u64,
    /// Number of pictures that were stored unchanged.
    kept: u64,
    /// Number of pictures that were stored unchanged, by reason.
    #[serde(serialize_with = "by_name")]
    reasons: BTreeMap<KeptReason, u64>,
}

/// Serialises reasons by the lower-case names of their variants: `small`, `labels`.
fn by_name<S: serde::Serializer>(
    reasons: &BTreeMap<KeptReason, u64>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer
        .collect_map(reasons.iter().map(|(reason, count)| (format!("{reason:?}").to_lowercase(), count)))
}

impl SampleShrinker {
    /// Returns the sample with smaller pictures.
    ///
    /// # Errors
    /// If a picture is damaged.
    pub(crate) fn apply(&self, mut sample: Sample) -> Result<Sample> {
        let is_picture = |name: &str| match &self.fields[..] {
            [] => is_image_file(name),
            fields => fields.iter().any(|field| field == name),
        };
        let mut counts = ShrunkPictures::default();
        let mut resized = Vec::new();
        for (name, value) in sample.fields().filter(|(name, _)| is_picture(name)) {
            let Some(file) = value.as_bytes() else { continue };
            match self.shrink.apply(file).map_err(|error| damaged(&sample, name, &error))? {
                Shrunk::Kept(reason) => counts.keep(reason, 1),
                Shrunk::Resized(smaller) => {
                    counts.resized += 1;
                    counts.bytes_before += file.len() as u64;
                    counts.bytes_after += smaller.len() as u64;
                    resized.push((name.to_owned(), smaller));
                }
            }
        }
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).add(&counts);
        for (name, smaller) in resized {
            drop(sample.set(name, smaller));
        }
        Ok(sample)
    }

    /// The counts of all samples so far.
    pub(crate) fn counts(&self) -> ShrunkPictures {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ShrunkPictures {
    pub(crate) fn add(&mut self, more: &Self) {
        self.resized += more.resized;
        self.bytes_before += more.bytes_before;
        self.bytes_after += more.bytes_after;
        more.reasons.iter().for_each(|(reason, count)| self.keep(*reason, *count));
    }

    fn keep(&mut self, reason: KeptReason, count: u64) {
        self.kept += count;
        *self.reasons.entry(reason).or_default() += count;
    }

    /// A short text to show with the progress.
    pub(crate) fn progress(&self) -> String {
        format!("{} resized", text::counted(self.resized, "picture"))
    }

    /// A summary on one line.
    pub(crate) fn line(&self) -> String {
        let pictures = text::counted(self.resized + self.kept, "picture");
        let (before, after) = (text::bytes(self.bytes_before), text::bytes(self.bytes_after));
        let mut line = format!("{pictures}: {} resized", text::number(self.resized));
        if self.resized > 0 {
            line.push_str(&format!(", from {before} to {after}"));
        }
        for (reason, count) in &self.reasons {
            line.push_str(&format!("; {} {reason}", text::number(*count)));
        }
        line
    }
}

/// The error for a picture that cannot be resized.
fn damaged(sample: &Sample, field: &str, error: &ImageError) -> Error {
    let what = format!(
        "{}; to leave out such pictures, use `create --verify --skip-bad`, or `reshard --without` with the \
         list of `verify --decode --to-list`",
        causes(error)
    );
    sample.locate(Error::decode(field, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_kept_pictures_by_reason() {
        let mut sums = ShrunkPictures::default();
        assert_eq!(sums.line(), "0 pictures: 0 resized");
        let resized =
            ShrunkPictures { resized: 2, bytes_before: 3000, bytes_after: 1000, ..Default::default() };
        let mut kept = ShrunkPictures::default();
        kept.keep(KeptReason::Labels, 1);
        kept.keep(KeptReason::Small, 1000);
        [&resized, &kept, &resized].into_iter().for_each(|more| sums.add(more));
        let expected = "1,005 pictures: 4 resized, from 6.0 kB to 2.0 kB; 1,000 small enough; \
                        1 grey or palette PNG, perhaps masks";
        assert_eq!(sums.line(), expected);
        let json = serde_json::to_value(&sums).unwrap();
        assert_eq!(json["reasons"], serde_json::json!({"small": 1000, "labels": 1}));
    }
}
