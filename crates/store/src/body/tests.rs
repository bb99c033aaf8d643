//! Tests of bodies as iterators and as streams, of their errors and their end.

use super::*;
use futures::TryStreamExt;

fn chunks(parts: &[&'static str]) -> Vec<Result<Bytes>> {
    parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect()
}

#[test]
fn iterator_and_stream_give_the_same_chunks_and_no_empty_one() {
    let body = || Body::from_chunks(chunks(&["", "ab", "", "c"]));
    let blocking: Vec<_> = body().collect::<Result<_>>().unwrap();
    let asynchronous: Vec<_> = futures::executor::block_on(body().into_stream().try_collect()).unwrap();
    assert_eq!(blocking, ["ab", "c"]);
    assert_eq!(asynchronous, blocking);
}

#[test]
fn a_partly_read_body_can_become_a_stream() {
    let mut body = Body::from_chunks(chunks(&["a", "b"]));
    assert_eq!(body.next().unwrap().unwrap(), "a");
    let rest: Vec<_> = futures::executor::block_on(body.into_stream().try_collect()).unwrap();
    assert_eq!(rest, ["b"]);
}

#[test]
fn an_error_ends_the_body_and_has_a_location() {
    let mut parts = chunks(&["abc"]);
    parts.push(Err(ErrorKind::Checksum.into()));
    parts.extend(chunks(&["d"]));
    let mut body = Body::from_chunks(parts).named("s.tar");
    assert!(body.next().unwrap().is_ok());
    let error = body.next().unwrap().unwrap_err();
    assert_eq!((error.location().shard(), error.location().offset()), (Some("s.tar"), Some(3)));
    assert!(body.next().is_none());
}

#[test]
fn the_object_is_known_after_the_first_chunk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    std::fs::write(&path, "four").unwrap();
    let path = path.to_str().unwrap();
    let store = crate::Store::default();
    let stat = store.stat(path).unwrap();
    assert_eq!(stat.size, Some(4));
    assert_eq!(stat.version, store.list(directory.path().to_str().unwrap()).unwrap()[0].version);

    let mut body = store.open_range(path, 1..2, &ObjectVersion::any()).unwrap();
    assert!(body.object().is_none());
    assert_eq!(body.next().unwrap().unwrap(), "o");
    assert!(body.object().unwrap().is_identical(&stat));

    let body = store.open(path).unwrap();
    let object = body.object_cell();
    let mut stream = body.into_stream();
    assert!(object.get().is_none());
    assert_eq!(futures::executor::block_on(stream.next()).unwrap().unwrap(), "four");
    assert!(object.get().unwrap().is_identical(&stat));
}

#[test]
fn a_stop_wakes_a_waiting_reader() {
    for into_stream in [false, true] {
        let mut body = Body::from_stream(stream::pending());
        let stopper = body.stopper();
        let reader = std::thread::spawn(move || {
            if into_stream {
                futures::executor::block_on(body.into_stream().collect::<Vec<_>>())
            } else {
                body.by_ref().collect()
            }
        });
        stopper.stop();
        let items = reader.join().unwrap();
        assert_eq!(items.len(), 1);
        assert!(matches!(items[0].as_ref().unwrap_err().kind(), ErrorKind::Stopped));
    }
}

#[test]
fn a_panic_of_a_blocking_source_is_not_a_short_body() {
    let body = Body::from_chunks((0..2).map(|i| if i == 0 { Ok("a".into()) } else { panic!("on purpose") }));
    let items: Vec<_> = futures::executor::block_on(body.into_stream().collect());
    assert_eq!(items.len(), 2);
    assert!(matches!(items[1].as_ref().unwrap_err().kind(), ErrorKind::SourcePanicked(_)));
}

#[cfg(feature = "gzip")]
#[test]
fn decompression_runs_on_another_thread_and_ends_with_its_reader() {
    let here = std::thread::current().id();
    let polled_on = Arc::new(std::sync::Mutex::new(None));
    let held = Arc::downgrade(&polled_on);
    let chunks = stream::poll_fn(move |_| {
        *polled_on.lock().unwrap() = Some(std::thread::current().id());
        Poll::<Option<Result<Bytes>>>::Pending
    });
    let compression = Decompressor::of("a.tar.gz").unwrap();
    let mut body = Body::from_stream(chunks).compressed(compression, Expansion::default()).into_stream();
    let polling_thread = || *held.upgrade()?.lock().unwrap();
    assert!(futures::FutureExt::now_or_never(body.next()).is_none());
    while polling_thread().is_none() {
        std::thread::yield_now();
    }
    assert_ne!(polling_thread(), Some(here));
    drop(body);
    while held.strong_count() > 0 {
        std::thread::yield_now();
    }
}

/// Each body has a thread, which waits until the reader takes the next chunk. These waiting threads must not
/// keep another body from starting.
#[test]
fn any_number_of_bodies_can_be_read_in_turn() {
    let (done, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let bodies = (0..600).map(|_| Body::from_chunks((0..9).map(|_| Ok("a".into()))).into_stream());
        let mut bodies: Vec<_> = bodies.collect();
        for body in &mut bodies {
            assert!(futures::executor::block_on(body.next()).unwrap().is_ok());
        }
        done.send(()).unwrap();
    });
    read.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits forever");
}

#[test]
fn bodies_and_stoppers_cross_threads() {
    fn crosses<T: Send + 'static>() {}
    crosses::<Body>();
    crosses::<Stopper>();
}

/// Tokio limits the number of operations of a task until the task yields. Another executor that runs inside
/// the task never yields to Tokio.
#[test]
fn another_executor_in_a_tokio_task_reads_bodies_of_any_length() {
    let (done, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio.block_on(async {
            let chunks = stream::iter(0..300)
                .then(|_| async { crate::runtime::spawn(async { Ok("a".into()) })?.await });
            let chunks = futures::executor::block_on_stream(Body::from_stream(chunks).into_stream());
            assert_eq!(chunks.count(), 300);
        });
        done.send(()).unwrap();
    });
    read.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits forever");
}
