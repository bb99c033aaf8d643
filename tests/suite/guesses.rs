//! 17 programs, as a newcomer who has only read the README would write them. The test is that they compile
//! and run. Where the newcomer's first attempt does not compile, a comment shows the attempt.

use serde::Deserialize;
use shardstream::prelude::*;
use std::error::Error;

type Done = Result<(), Box<dyn Error>>;

/// A newcomer first tries `let caption: String = sample.get("txt")?`, which does not compile.
fn prints_captions(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).build()?;
    for sample in dataset.samples(0).decode(Decoder::new()) {
        let sample = sample?;
        let caption: String = sample.read("txt")?;
        assert!(caption.ends_with(sample.key()));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Meta {
    width: u32,
}

/// A newcomer first tries `sample.read("json")?`, which does not compile. The compiler's message suggests
/// `sample.json`.
fn reads_json_into_a_struct(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).build()?;
    let loader = Loader::builder(dataset)
        .map(|sample| {
            let meta: Meta = sample.json("json")?;
            Ok((sample.key().to_string(), meta.width))
        })
        .batch(4)
        .build()?;
    for batch in loader.epoch(0) {
        assert!(batch?.iter().all(|(_, width)| *width == 640));
    }
    Ok(())
}

#[cfg(feature = "image")]
fn makes_normalized_pictures_in_nchw(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).shuffle_shards(true).seed(1).build()?;
    let image = ImageColumn::new("png", 4)
        .then(RandomResizedCrop::new(4)?)
        .then(RandomHorizontalFlip::new(0.5)?)
        .normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        .layout(Layout::NCHW)
        .dtype(DType::F32);
    let columns = Columns::new().with("image", image).with("label", Scalar::<i64>::new("cls"));
    let loader = Loader::builder(dataset).shuffle(1000).collate(columns).batch(6).build()?;
    for batch in loader.epoch(0) {
        let batch = batch?;
        assert_eq!(batch["image"].shape(), [6, 3, 4, 4]);
    }
    Ok(())
}

#[cfg(feature = "image")]
fn reads_pixels_of_sixteen_bits(shards: &str) -> Done {
    use shardstream::half::f16;

    let dataset = Dataset::builder(shards).build()?;
    let image = ImageColumn::new("png", 4).then(RandomResizedCrop::new(4)?).dtype(DType::F16);
    let columns = Columns::new().with("image", image);
    let loader = Loader::builder(dataset).collate(columns).batch(6).build()?;
    for batch in loader.epoch(0) {
        let batch = batch?;
        let pixels: &[f16] = batch["image"].as_slice()?;
        assert_eq!(pixels.len(), 6 * 4 * 4 * 3);
    }
    Ok(())
}

/// A newcomer first tries `.filter(|sample| sample.read::<i64>("cls")? < 3)`, which does not compile.
fn filters_by_label(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).build()?;
    let loader = Loader::builder(dataset)
        .decode(Decoder::new())
        .filter(|sample| Ok(sample.read::<i64>("cls")? < 3))
        .batch(3)
        .build()?;
    assert_eq!(loader.epoch(0).count(), 1);
    Ok(())
}

fn packs_documents(shards: &str) -> Done {
    fn tokenize(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    let dataset = Dataset::builder(shards).build()?;
    let loader = Loader::builder(dataset)
        .decode(Decoder::new())
        .map(|sample| Ok(tokenize(&sample.read::<String>("txt")?)))
        .pack(64)
        .batch(1)
        .build()?;
    for batch in loader.epoch(0) {
        for row in batch? {
            assert!(row.tokens().len() <= 64);
        }
    }
    Ok(())
}

fn cuts_documents_into_rows(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).build()?;
    let loader = Loader::builder(dataset)
        .decode(Decoder::new())
        .map(|sample| Ok(sample.read::<String>("txt")?.bytes().collect::<Vec<u8>>()))
        .chunked(8, 0)
        .batch(1)
        .build()?;
    for batch in loader.epoch(0) {
        assert!(batch?.iter().all(|row| row.len() == 8));
    }
    Ok(())
}

/// A newcomer first tries `Loader::mix([(web, 0.7), (books, 0.3)])`, which does not compile.
fn mixes_two_datasets(shards: &str) -> Done {
    let web = Dataset::builder(shards).shuffle_shards(true).build()?;
    let books = Dataset::builder(shards).shuffle_shards(true).build()?;
    let (web, books) = (Loader::builder(web).weight(7), Loader::builder(books).weight(3));
    let loader = Loader::mix([web, books]).batch(10).build()?;
    for batch in loader.epochs(0).take(5) {
        batch?;
    }
    Ok(())
}

fn reads_a_part_on_each_rank(shards: &str) -> Done {
    let topology = Topology::detect()?;
    let dataset = Dataset::builder(shards)
        .topology(topology)
        .auto_index(AutoIndex::beside())
        .shuffle_shards(true)
        .build()?;
    let loader = Loader::builder(dataset).batch(3).last_batch(LastBatch::Drop).build()?;
    assert!(topology.world_size() > 1 || loader.steps() == Some(2));
    Ok(())
}

fn saves_a_state_as_json(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).build()?;
    let loader = Loader::builder(dataset).batch(2).build()?;
    let mut json = String::new();
    for batch in loader.epochs(0).take(10) {
        let batch = batch?;
        json = serde_json::to_string(batch.state().unwrap())?;
    }
    let state: State = serde_json::from_str(&json)?;
    for batch in loader.restore(&state)?.take(2) {
        batch?;
    }
    Ok(())
}

/// A newcomer first tries `OnError::skip(Failures::all()).max(100)`, which does not compile.
fn skips_damaged_samples(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).build()?;
    let loader =
        Loader::builder(dataset).on_error(OnError::skip(Failures::all()).total(100)).batch(2).build()?;
    let mut batches = loader.epoch(0);
    for batch in &mut batches {
        batch?;
    }
    assert_eq!(batches.state().ledger().skipped(), 0);
    Ok(())
}

fn writes_shards(shards: &str) -> Done {
    let mut writer = ShardWriter::builder(shards.replace("in-000000", "out-%06d")).max_count(100).build()?;
    for i in 0..250 {
        let sample = Sample::new(format!("{i:06}")).with("txt", format!("text {i}")).with("cls", i % 10);
        writer.write(&sample)?;
    }
    assert_eq!(writer.finish()?.len(), 3);
    Ok(())
}

/// A newcomer first tries `Cache::new("/mnt/ssd")?`, which does not compile. The compiler's message suggests
/// `builder`.
fn caches_what_it_reads(shards: &str) -> Done {
    use shardstream::store::Cache;

    let cache = Cache::builder(shards.replace("in-000000.tar", "cache")).build()?;
    let store = Store::builder().cache(cache).build()?;
    assert_eq!(Dataset::builder(shards).store(store).build()?.samples(0).count(), 6);
    Ok(())
}

fn makes_tensors_of_a_framework(shards: &str) -> Done {
    struct MyTensor(Vec<f32>, Vec<usize>);

    let dataset = Dataset::builder(shards).build()?;
    let loader = Loader::builder(dataset)
        .decode(Decoder::new())
        .map(|sample| Ok(sample.read::<i64>("cls")? as f32))
        .batch(3)
        .map_batch(|batch| {
            let n = batch.len();
            Ok(MyTensor(batch.into_items(), vec![n]))
        })
        .build()?;
    for tensor in loader.epoch(0) {
        let MyTensor(numbers, shape) = tensor?;
        assert_eq!([numbers.len()], *shape);
    }
    Ok(())
}

fn has_the_stages_on_an_iterator(_: &str) -> Done {
    let numbers = (0..1000).map(Ok).pipeline().filter(|n| n % 2 == 0).shuffle(100).batch(8);
    for batch in numbers {
        assert!(batch?.iter().all(|n| n % 2 == 0));
    }
    Ok(())
}

fn reads_on_an_executor(shards: &str) -> Done {
    use futures::StreamExt;

    futures::executor::block_on(async {
        let dataset = Dataset::builder(shards).build()?;
        let mut samples = dataset.stream(0);
        while let Some(sample) = samples.next().await {
            assert!(!sample?.key().is_empty());
        }
        let loader = Loader::builder(dataset).batch(3).build()?;
        let mut batches = loader.epoch(0).into_stream();
        while let Some(batch) = batches.next().await {
            assert_eq!(batch?.len(), 3);
        }
        Ok(())
    })
}

/// A newcomer first tries `.shuffle(true).batch_size(64).num_workers(8).drop_last(true)`, which does not
/// compile. The compiler's messages list similar methods.
fn trains_for_some_epochs(shards: &str) -> Done {
    let dataset = Dataset::builder(shards).shuffle_shards(true).build()?;
    let loader =
        Loader::builder(dataset).shuffle(1000).batch(4).threads(2).last_batch(LastBatch::Drop).build()?;
    for epoch in 0..3 {
        for (step, batch) in loader.epoch(epoch).enumerate() {
            assert!(batch?.len() == 4 && step == 0);
        }
    }
    Ok(())
}

#[test]
fn programs_that_newcomers_write_compile_and_run() {
    let directory = tempfile::tempdir().unwrap();
    let pattern = format!("{}/in-%06d.tar", directory.path().display());
    let mut writer = ShardWriter::builder(&pattern).build().unwrap();
    for number in 0..6 {
        let sample = Sample::new(format!("{number:06}")).with("txt", format!("a caption of {number:06}"));
        let sample = sample.with("cls", number).with("json", br#"{"width": 640}"#);
        #[cfg(feature = "image")]
        let sample = sample.with("png", Image::new(ImageMode::Rgb8, (5, 6), vec![7; 90]).unwrap());
        writer.write(&sample).unwrap();
    }
    writer.finish().unwrap();
    let shards = pattern.replace("%06d", "000000");
    let programs = [
        prints_captions,
        reads_json_into_a_struct,
        filters_by_label,
        packs_documents,
        cuts_documents_into_rows,
        mixes_two_datasets,
        reads_a_part_on_each_rank,
        saves_a_state_as_json,
        skips_damaged_samples,
        writes_shards,
        caches_what_it_reads,
        makes_tensors_of_a_framework,
        has_the_stages_on_an_iterator,
        reads_on_an_executor,
        trains_for_some_epochs,
        #[cfg(feature = "image")]
        makes_normalized_pictures_in_nchw,
        #[cfg(feature = "image")]
        reads_pixels_of_sixteen_bits,
    ];
    for (number, program) in programs.into_iter().enumerate() {
        program(&shards).unwrap_or_else(|error| panic!("program {number}: {error:#}"));
    }
}
