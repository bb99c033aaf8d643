//! Counts allocations: the promised number per sample, and the memory of indexes, batches and decoders.

use crate::alone;
use bytes::Bytes;
use shardstream::codec::Array;
use shardstream::codec::DType;
use shardstream::collate::{ArrayColumn, Blob, Columns, Ragged, Scalar, Tokens};
use shardstream::plan::Plan;
use shardstream::prelude::*;
use shardstream::tar::{Event, Limits, SampleParser, Walker, read};
use shardstream::{Index, SecretUrl, Topology};

/// An archive of `count` members of `size` bytes, two members per sample. With `pax`, each member has the pax
/// header that Python's `webdataset` writes.
fn archive(count: usize, size: usize, pax: bool) -> Bytes {
    let mut archive = tar::Builder::new(Vec::new());
    for at in 0..count {
        if pax {
            archive.append_pax_extensions([("mtime", &b"1700000000.25"[..])]).unwrap();
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(size as u64);
        let name = format!("{:08}.{}", at / 2, ["cls", "jpg"][at % 2]);
        archive.append_data(&mut header, name, &vec![1; size][..]).unwrap();
    }
    archive.into_inner().unwrap().into()
}

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

#[test]
fn walking_allocates_nothing_per_member() {
    let _alone = alone();
    for pax in [false, true] {
        let archive = archive(1000, 1000, pax);
        let count = allocations(|| {
            let mut walker = Walker::new();
            walker.push(archive);
            walker.finish();
            while walker.next().unwrap() != Event::End {}
        });
        assert!(count <= 2, "{count} allocations for 1000 members (pax: {pax})");
    }
}

#[test]
fn a_sample_costs_one_allocation() {
    let _alone = alone();
    let archive = archive(2000, 1000, true);
    let count = allocations(|| {
        let samples = read([Ok(archive)].into_iter(), SampleParser::new("s.tar"));
        assert_eq!(samples.map(|sample| sample.unwrap().len()).sum::<usize>(), 2000);
    });
    // Each of the 1000 samples allocates one list of fields. The other 30 allocations are for the table of
    // keys, which grows.
    assert!(count <= 1000 + 30, "{count} allocations for 1000 samples");
}

/// The streams of a rank share the order of an epoch's shards, so that the memory of a stream does not grow
/// with the number of shards.
#[test]
fn streams_of_a_rank_share_one_epoch_order() {
    const SHARDS: usize = 100_000;
    let _alone = alone();
    let counted = Plan::counted(vec![1000; SHARDS], 32_768, 42).unwrap();
    for plan in [Plan::new(SHARDS, 32_768, 42).unwrap(), counted.clone(), counted.shuffled(false)] {
        for epoch in 0..3 {
            assert!(!plan.stream(epoch, 0).is_empty());
            let memory = allocation_counter::measure(|| {
                // The streams of one rank in a job of 4,096 ranks.
                for stream in (1..8).map(|local_stream| local_stream * 4096) {
                    assert!(plan.stream(epoch, stream).len() < 8);
                }
            });
            assert!(memory.bytes_total < 20_000, "{memory:?} for 7 streams");
            assert_eq!(memory.bytes_current, 0);
        }
    }
}

/// An index without layouts holds the URL, version, size and number of samples of each shard, and a hash
/// table from URLs to shards.
#[test]
fn an_index_costs_few_bytes_per_shard() {
    const SHARDS: usize = 50_000;
    let _alone = alone();
    let pattern = format!("gs://bucket/datasets/train/shard-{{0000000..{:07}}}-of-1000000.tar", SHARDS - 1);
    let entry = |url: &SecretUrl| {
        let url = url.expose_secret();
        format!(r#"{{"url":"{url}","nsamples":1000,"filesize":1025024,"version":"1764000000000000"}}"#)
    };
    let list: Vec<String> = ShardList::expand(&pattern).unwrap().iter().map(entry).collect();
    let text = format!(r#"{{"wids_version":1,"shardlist":[{}]}}"#, list.join(","));
    let mut kept = None;
    let memory = allocation_counter::measure(|| {
        let index = Index::from_json(text.as_bytes(), "").unwrap();
        let dataset = Dataset::builder(&pattern).index(index).topology(Topology::new(77, 4096).unwrap());
        let dataset = dataset.streams(4096).shuffle_shards(true).build().unwrap();
        assert!((0..2).all(|epoch| !dataset.plan().stream(epoch, 77).is_empty()));
        kept = Some(dataset);
    });
    let each = memory.bytes_current / SHARDS as i64;
    assert!(each < 300, "{each} bytes for each shard");
    let index = Index::from_json(text.as_bytes(), "").unwrap();
    let copy = "s3://copy/shard-0000777-of-1000000.tar";
    let found = allocation_counter::measure(|| {
        assert!(index.get("gs://bucket/none.tar").is_none());
        assert!(index.get(copy).unwrap().url().contains("0000777"));
    });
    // The index has two hash tables of 4 bytes per slot. More than a third of their slots are in use.
    assert!(found.bytes_current < 22 * SHARDS as i64, "{found:?}");
}

/// The parser drops the headers of empty members. Each header takes at least 512 bytes, far more than the
/// member's name.
#[test]
fn a_member_takes_memory_for_its_name_and_content_only() {
    const COUNT: u64 = 100_000;
    let _alone = alone();
    let mut archive = tar::Builder::new(Vec::new());
    for at in 0..COUNT {
        archive.append_data(&mut tar::Header::new_ustar(), format!("key.{at}"), &b""[..]).unwrap();
    }
    let archive = archive.into_inner().unwrap();
    let mut limits = Limits::default();
    limits.members = COUNT;
    let mut sample = None;
    let kept = allocation_counter::measure(|| {
        let chunks = archive.chunks(512 << 10).map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
        let mut samples = read(chunks, SampleParser::new("s.tar").with_limits(limits));
        sample = samples.next();
    });
    assert_eq!(sample.unwrap().unwrap().len() as u64, COUNT);
    assert!(kept.bytes_current < 300 * COUNT as i64, "{kept:?}");
}

/// While the parser skips a sample that is too large, it holds no more than the limit, however many members
/// the sample has.
#[test]
fn a_sample_above_its_limit_takes_no_memory() {
    const LIMIT: usize = 1 << 20;
    let _alone = alone();
    let members: Vec<_> =
        (0..64).map(|at| (format!("large.{at}"), LIMIT - 1)).chain([("next.x".into(), 9)]).collect();
    let mut limits = Limits::default();
    limits.sample = LIMIT as u64;
    let mut found = Vec::new();
    let taken = allocation_counter::measure(|| {
        let bytes = members.iter().flat_map(|(name, size)| {
            let mut header = tar::Header::new_ustar();
            header.set_path(name).unwrap();
            header.set_size(*size as u64);
            header.set_cksum();
            let zeros = std::iter::repeat_n(Bytes::from_static(&[0; 512]), size.div_ceil(512));
            std::iter::once(Bytes::copy_from_slice(header.as_bytes())).chain(zeros)
        });
        let end = [Bytes::from_static(&[0; 1024])];
        found = read(bytes.chain(end).map(Ok), SampleParser::new("s.tar").with_limits(limits)).collect();
    });
    assert_eq!((found.len(), found[1].as_ref().unwrap().key()), (2, "next"));
    assert!(taken.bytes_max < 2 * LIMIT as u64 + (64 << 10), "{taken:?}");
}

#[test]
fn compacting_costs_one_allocation() {
    let _alone = alone();
    let archive = archive(2, 1000, false);
    let mut samples: Vec<_> = read([Ok(archive)].into_iter(), SampleParser::new("s.tar")).collect();
    let sample = samples[0].as_mut().unwrap();
    let count = allocations(|| sample.compact());
    assert!(count <= 2, "{count} allocations");
}

/// `count` samples of raw numbers, an npy file and a label.
fn samples(count: u32) -> Vec<Sample> {
    let npy = Array::from_vec(vec![2, 3], vec![0.5f32; 6]).unwrap().to_npy();
    let raw = Bytes::from_static(&[7; 64]);
    let sample = |at| {
        Sample::new("key")
            .with("cls", Bytes::from_static(b"7"))
            .with("npy", npy.clone())
            .with("bin", raw.slice(..at as usize % 64 / 8 * 8))
    };
    (0..count).map(sample).collect()
}

#[test]
fn numbers_are_written_into_slots_without_allocating() {
    let _alone = alone();
    let columns = [
        ("scalar", Columns::new().with("x", Scalar::<i32>::new("cls"))),
        ("npy", Columns::new().with("x", ArrayColumn::new("npy", DType::F32, [2, 3]))),
        ("raw", Columns::new().with("x", Tokens::<i32>::new("bin", 64).raw(DType::U16))),
        (
            "four tensors",
            Columns::new()
                .with("a", Scalar::<i64>::new("cls"))
                .with("b", ArrayColumn::new("npy", DType::F32, [2, 3]))
                .with("c", Tokens::<i32>::new("bin", 64).raw(DType::U16)),
        ),
        ("ragged", Columns::new().with("x", Ragged::<u32>::new("bin").raw(DType::U32))),
    ];
    for (name, columns) in columns {
        let mut counts = [256, 1024].map(|count| {
            let samples = samples(count);
            allocations(|| {
                columns.collate(samples).unwrap();
            })
        });
        counts.sort_unstable();
        // Growing the lists takes a few allocations.
        assert!(counts[1] < counts[0] + 8, "{name}: {counts:?} allocations for 256 and 1024 samples");
    }
}

/// A dataset of 1000 samples in four shards on a disk.
fn dataset(dir: &std::path::Path, field: &str, file: &[u8]) -> Dataset {
    let pattern = format!("{}/%06d.tar", dir.display());
    let mut writer = ShardWriter::builder(&pattern).max_count(250).build().unwrap();
    for at in 0..1000 {
        writer.write(&Sample::new(format!("{at:06}")).with(field, file.to_vec()).with("cls", at)).unwrap();
    }
    writer.finish().unwrap();
    let shards = pattern.replace("%06d", "{000000..000003}");
    Dataset::builder(shards).streams(2).shuffle_shards(true).topology(Topology::single()).build().unwrap()
}

/// The loader allocates once for each document (here the `bin` field of a sample) in a batch. Lists of rows,
/// tags and queue entries grow only in the first batches.
#[test]
fn a_document_in_a_batch_costs_one_allocation() {
    const BATCHES: usize = 40;
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let columns = Columns::new().with("x", Blob::new("bin"));
    // The loader has no threads, as only allocations of this thread are counted.
    let loader = Loader::builder(dataset(dir.path(), "bin", &[1; 1000])).threads(0).batch(50);
    let mut batches = loader.collate(columns).build().unwrap().epochs(0);
    let mut read = || batches.by_ref().take(BATCHES).map(|batch| batch.unwrap().len()).sum::<usize>();
    read();
    let count = allocations(|| assert_eq!(read(), 50 * BATCHES));
    // A batch also has about twenty allocations for its tensors, its state and the opening of shards.
    assert!(count <= (50 + 23) * BATCHES as u64, "{count} allocations");
}

#[test]
fn memory_is_flat_over_a_hundred_thousand_samples() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let columns = Columns::new().with("x", Blob::new("bin")).with("label", Scalar::<i32>::new("cls"));
    // The loader has no threads, as only allocations of this thread are counted.
    let loader = Loader::builder(dataset(dir.path(), "bin", &[1; 1000])).shuffle(100).threads(0).batch(100);
    let mut batches = loader.collate(columns).build().unwrap().epochs(0);
    let mut read =
        |count| batches.by_ref().take(count).for_each(|batch| assert_eq!(batch.unwrap().len(), 100));
    read(100);
    let (first, all) =
        (allocation_counter::measure(|| read(100)), allocation_counter::measure(|| read(1000)));
    // The batches together are 100 MB, so a leak would exceed this bound. One or two buffers may be in use at
    // either measurement.
    assert!(all.bytes_max < first.bytes_max + (2 << 20), "{all:?} after {first:?}");
    assert!(all.bytes_current < 2 << 20, "{all:?}");
}

#[cfg(feature = "image")]
#[test]
fn decoding_allocates_only_what_the_image_decoder_does() {
    let _alone = alone();
    use shardstream::collate::ImageColumn;
    use shardstream::image::{Image, ImageMode, RandomHorizontalFlip, RandomResizedCrop};

    let mut rng = shardstream::Rng::new(1, 0, 0);
    let pixels: Vec<u8> = (0..64 * 48 * 3).map(|_| rng.below(256) as u8).collect();
    let file = Image::new(ImageMode::Rgb8, (48, 64), pixels).unwrap().to_jpeg(90).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let crop = RandomResizedCrop::new(32).unwrap();
    let image = ImageColumn::new("jpg", 32).then(crop).then(RandomHorizontalFlip::new(0.5).unwrap());
    let columns = Columns::new().with("image", image.dtype(DType::F32));
    let loader = Loader::builder(dataset(dir.path(), "jpg", &file))
        .threads(0)
        .batch(100)
        .collate(columns)
        .build()
        .unwrap();
    let mut batches = loader.epochs(0);
    let mut read =
        |count| batches.by_ref().take(count).for_each(|batch| assert_eq!(batch.unwrap().len(), 100));
    read(10);
    let count = allocation_counter::measure(|| read(10)).count_total;
    // The decoder allocates tables and rows, and the resizer allocates coefficients. Nothing is allocated for
    // pixels.
    assert!(count < 90 * 1000, "{count} allocations for 1000 pictures");
}

/// Mono sound is decoded into its final buffer. Several channels are decoded into a buffer each and then
/// copied into one.
#[cfg(feature = "audio")]
#[test]
fn sound_of_a_known_length_takes_at_most_two_copies_in_memory() {
    let _alone = alone();
    for (channels, most) in [(1_u8, 1.1), (2, 2.1), (8, 2.1)] {
        let bytes = (2_000_000_u32 * u32::from(channels)).to_le_bytes();
        let rate = 8_000_u32 * 2 * u32::from(channels);
        let head = [
            &b"RIFF"[..],
            &(u32::from_le_bytes(bytes) + 36).to_le_bytes(),
            b"WAVEfmt \x10\0\0\0\x01\0",
            &[channels, 0, 0x40, 0x1f, 0, 0],
            &rate.to_le_bytes(),
            &[2 * channels, 0, 16, 0],
            b"data",
            &bytes,
        ];
        let file = [head.concat(), vec![7; 2_000_000 * usize::from(channels)]].concat();
        let mut sound = None;
        let used = allocation_counter::measure(|| sound = shardstream::audio::Audio::decode(&file).ok());
        let size = sound.unwrap().size();
        assert_eq!(size, 4_000_000 * usize::from(channels));
        assert!((used.bytes_max as f64) < most * size as f64, "{channels} channels: {used:?}");
    }
}
