//! Which image columns draw the same random numbers: an image and its mask draw the same numbers, and
//! different views of an image draw different numbers.

use crate::support::versioned_source::VersionedSource;
use shardstream::ErrorKind;
use shardstream::codec::DType;
use shardstream::collate::{Boxes, Cell, Column, Mask, Optional, Output, RaggedImages, Stack, TensorBatch};
use shardstream::image::{RandomHorizontalFlip, RandomResizedCrop, Transforms};
use shardstream::prelude::*;

const SEED: u64 = 11;

/// An image in which no two pixels are equal.
fn picture() -> Vec<u8> {
    let pixels: Vec<u8> = (0..96 * 96).flat_map(|at: u32| [(at % 96) as u8, (at / 96) as u8, 7]).collect();
    Image::new(ImageMode::Rgb8, (96, 96), pixels).unwrap().to_png().unwrap()
}

fn samples() -> Vec<Sample> {
    let file = picture();
    let grey = Image::decode(&file, ImageMode::L8).unwrap().to_png().unwrap();
    let sample = |at| {
        let sample = Sample::new("k").with_position(2, at).with("png", file.clone());
        sample.with("seg.png", grey.clone()).with("json", r#"{"boxes": [[40, 40, 56, 56]]}"#)
    };
    (0..6).map(sample).collect()
}

fn transforms() -> Transforms {
    Transforms::new().then(RandomResizedCrop::new(32).unwrap()).then(RandomHorizontalFlip::new(0.5).unwrap())
}

fn view() -> ImageColumn {
    ImageColumn::new("png", 32)
        .then(RandomResizedCrop::new(32).unwrap())
        .then(RandomHorizontalFlip::new(0.5).unwrap())
}

fn collate(columns: Columns) -> TensorBatch {
    columns.seed(SEED).collate(samples()).unwrap()
}

/// Number of samples whose bytes are equal in both tensors.
fn equal_rows(one: &[u8], other: &[u8]) -> usize {
    let size = one.len() / 6;
    one.chunks(size).zip(other.chunks(size)).filter(|(one, other)| one == other).count()
}

#[test]
fn columns_of_one_field_are_different_views() {
    let batch = collate(Columns::new().with("global", view()).with("local", view()).with("third", view()));
    for (one, other) in [("global", "local"), ("global", "third"), ("local", "third")] {
        assert_eq!(equal_rows(batch[one].as_bytes(), batch[other].as_bytes()), 0, "{one} {other}");
    }
}

#[test]
fn a_column_keeps_its_random_numbers_next_to_other_columns() {
    let alone = collate(Columns::new().with("image", view()));
    // A single column draws its numbers from `sample.rng(SEED)`, whatever the column's name.
    let made = |sample: &Sample| {
        let image = transforms().image(&picture(), ImageMode::Rgb8, &mut sample.rng(SEED)).unwrap();
        image.as_u8().unwrap().to_vec()
    };
    assert_eq!(alone["image"].as_bytes(), samples().iter().flat_map(made).collect::<Vec<u8>>());
    assert_eq!(collate(Columns::new().with("x", view()))["x"], alone["image"]);
    // Next to other columns, this column still draws the same numbers. The other columns draw numbers that
    // depend on their names, and not on their order.
    let first = collate(Columns::new().with("image", view()).with("a", view()).with("b", view()));
    let second = collate(Columns::new().with("image", view()).with("b", view()).with("a", view()));
    assert_eq!(first["image"], alone["image"]);
    assert_eq!((&first["a"], &first["b"]), (&second["a"], &second["b"]));
    let named = |sample: &Sample| {
        let mut rng = sample.rng_named(SEED, "a");
        let image = transforms().image(&picture(), ImageMode::Rgb8, &mut rng).unwrap();
        image.as_u8().unwrap().to_vec()
    };
    assert_eq!(first["a"].as_bytes(), samples().iter().flat_map(named).collect::<Vec<u8>>());
}

#[test]
fn a_column_that_follows_an_image_draws_its_random_numbers() {
    let grey = |field: &str| {
        ImageColumn::new(field, 32)
            .mode(ImageMode::L8)
            .then(RandomResizedCrop::new(32).unwrap())
            .then(RandomHorizontalFlip::new(0.5).unwrap())
    };
    // Columns that use the random numbers of `b`. They are listed before `b`, listed after `b`, or inside
    // other columns.
    let columns = Columns::new()
        .with("before", grey("seg.png").same_as("b"))
        .with("a", grey("seg.png"))
        .with("b", grey("seg.png"))
        .with("like a", grey("seg.png").same_as("a"))
        .with("optional", Optional::new(grey("seg.png").same_as("b")))
        .with("stack", Stack::new(["seg.png"], |field| grey(field).same_as("b")))
        .with("ragged", RaggedImages::new(grey("*.png").same_as("b")));
    let batch = collate(columns);
    assert_eq!(equal_rows(batch["a"].as_bytes(), batch["b"].as_bytes()), 0);
    assert_eq!(batch["like a"], batch["a"]);
    for name in ["before", "optional", "stack", "ragged"] {
        assert_eq!(batch[name].as_bytes(), batch["b"].as_bytes(), "{name}");
    }
    // The mask and the boxes of a column follow that column's image.
    let with = |column: ImageColumn| {
        column.mask(Mask::new("seg.png").dtype(DType::I32)).boxes(Boxes::new("json").at("/boxes"))
    };
    let batch = collate(Columns::new().with("one", with(view())).with("two", with(view())));
    assert_ne!(batch["one.mask"], batch["two.mask"]);
    assert_ne!(batch["one.boxes"], batch["two.boxes"]);
    assert_eq!(batch["one.mask"], collate(Columns::new().with("x", with(view())))["x.mask"]);
}

#[test]
fn a_stack_has_the_same_view_or_different_ones() {
    let stack = || Stack::new(["png", "png"], |_| view());
    let batch = collate(Columns::new().with("same", stack()).with("views", stack().independent()));
    let equal = |name: &str| {
        let pairs = batch[name].as_bytes().chunks(2 * 32 * 32 * 3);
        pairs.filter(|pair| pair[..pair.len() / 2] == pair[pair.len() / 2..]).count()
    };
    assert_eq!((equal("same"), equal("views")), (6, 0));
}

/// Two columns of a caller's own type, each of which draws a number.
#[test]
fn custom_columns_have_their_own_random_numbers() {
    struct Drawn(Option<&'static str>);
    impl Column for Drawn {
        fn outputs(&self) -> Vec<Output> {
            vec![Output::fixed(DType::U64, [])]
        }
        fn follows(&self) -> Option<&str> {
            self.0
        }
        fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> shardstream::Result<()> {
            cells[0].numbers::<u64>()?.fill(sample.rng(seed).below(u64::MAX));
            Ok(())
        }
    }
    let columns = Columns::new()
        .with("a", Drawn(None))
        .with("image", view())
        .with("b", Drawn(None))
        .with("c", Drawn(Some("a")))
        .with("d", Drawn(Some("image")));
    let batch = collate(columns);
    assert_eq!(equal_rows(batch["a"].as_bytes(), batch["b"].as_bytes()), 0);
    assert_eq!(batch["c"], batch["a"]);
    let image: Vec<u64> = samples().iter().map(|sample| sample.rng(SEED).below(u64::MAX)).collect();
    assert_eq!(batch["d"].as_slice::<u64>().unwrap(), image);
    assert_eq!(equal_rows(batch["a"].as_bytes(), batch["d"].as_bytes()), 0);
}

#[test]
fn a_column_follows_one_that_exists_and_follows_none() {
    for (columns, wanted) in [
        (Columns::new().with("a", view().same_as("imge")), "imge"),
        (Columns::new().with("a", view().same_as("a")), "\"a\""),
        (
            Columns::new().with("a", view()).with("b", view().same_as("a")).with("c", view().same_as("b")),
            "\"b\"",
        ),
    ] {
        let error = columns.check().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
        assert!(error.to_string().contains(wanted) && error.to_string().contains("same_as"), "{error}");
    }
}

/// Views of an image differ in a loader, too. The datasets of a mix have different views.
#[test]
fn views_of_a_loader_differ() {
    let loader = |parts: usize| {
        let part = |_| {
            let dataset = VersionedSource::of(&[6]).dataset(1).seed(SEED).build().unwrap();
            let file = picture();
            Loader::builder(dataset)
                .map(move |sample| Ok(Sample::new(sample.key()).with("png", file.clone())))
        };
        let columns = Columns::new().with("image", view()).with("other", view());
        Loader::mix((0..parts).map(part)).collate(columns).batch(6 * parts).build().unwrap()
    };
    let one = loader(1).epoch(0).next().unwrap().unwrap();
    assert_eq!(equal_rows(one["image"].as_bytes(), one["other"].as_bytes()), 0);
    let both = loader(2).epoch(0).next().unwrap().unwrap();
    let rows: std::collections::HashSet<&[u8]> =
        ["image", "other"].into_iter().flat_map(|name| both[name].as_bytes().chunks(32 * 32 * 3)).collect();
    assert_eq!(rows.len(), 24);
}
