use super::*;

#[test]
fn taking_a_field_as_the_wrong_type_leaves_the_sample_unchanged() {
    let mut sample = Sample::new("a").with("cls", 300).with("txt", "x");
    let error = sample.take::<u8>("cls").unwrap_err().to_string();
    assert_eq!(
        error,
        "the field \"cls\" holds a whole number, not a whole number of 8 bits without a sign (sample a)"
    );
    assert_eq!(sample.fields().map(|(name, _)| name).collect::<Vec<_>>(), ["cls", "txt"]);
    assert_eq!(sample.take::<u16>("cls").unwrap(), 300);
}

#[test]
fn the_error_for_a_wrong_type_says_what_to_do() {
    let mut sample = Sample::new("a").with("bin", b"x").with("txt", "x");
    let error = sample.take::<i64>("bin").unwrap_err().to_string();
    assert!(error.contains("is a `decode` step missing"), "{error}");
    let error = sample.take::<Bytes>("txt").unwrap_err().to_string();
    assert!(error.contains("`Decoder::without`"), "{error}");
    #[cfg(feature = "image")]
    {
        let error = sample.take::<crate::image::Image>("bin").unwrap_err().to_string();
        assert!(error.contains("`images(…)`"), "{error}");
    }
}

#[test]
fn a_value_of_the_callers_own_type_is_taken_as_an_arc_of_that_type() {
    let mut sample = Sample::new("a").with("own", Value::other('x'));
    assert!(sample.take::<Arc<u8>>("own").is_err());
    assert_eq!(*sample.take::<Arc<char>>("own").unwrap(), 'x');
    assert!(sample.is_empty());
}

#[test]
fn of_several_names_the_first_present_field_is_taken() {
    let mut sample = Sample::new("k").with("png", b"p").with("jpg", b"j");
    assert_eq!(sample.take::<Bytes>("jpg;png").unwrap(), "j");
    assert_eq!(sample.take::<Bytes>("jpg;png").unwrap(), "p");
    let error = sample.take::<Bytes>("jpg;png").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::MissingField { .. }));
    assert!(error.to_string().contains("it has: nothing else"), "{error}");
    assert_eq!(error.location().key(), Some("k"));
}

#[test]
fn the_error_for_a_wrong_type_names_the_type_of_the_value() {
    let error = Sample::new("k").with("cls", b"7").take::<i64>("cls").unwrap_err();
    assert!(error.to_string().contains("bytes"), "{error}");
}

#[test]
fn compact_keeps_the_content() {
    let chunk = Bytes::from(vec![7u8; 1 << 20]);
    let mut sample =
        Sample::new("k").with("a", chunk.slice(..10)).with("b", 3).with("c", chunk.slice(20..25));
    sample.compact();
    drop(chunk);
    assert_eq!(sample.get("a").unwrap().as_bytes().unwrap(), &[7u8; 10][..]);
    assert_eq!(sample.get("c").unwrap().as_bytes().unwrap(), &[7u8; 5][..]);
    assert_eq!(sample.size(), 10 + 8 + 5);
}

#[test]
fn compact_copies_arrays_that_are_slices_of_shared_memory() {
    let rows = Bytes::from(vec![7u8; 1 << 20]);
    let array = |data: Bytes| Array::new(DType::U8, vec![data.len()], data).unwrap();
    let mut sample =
        Sample::new("k").with("a", array(rows.slice(..10))).with("b", array(vec![1u8; 9].into()));
    let own = sample.read::<Array>("b").unwrap().data().as_ptr();
    sample.compact();
    assert!(rows.is_unique(), "a sample that is kept for long would keep all rows");
    let [a, b] = ["a", "b"].map(|name| sample.read::<Array>(name).unwrap());
    assert_eq!(a, array(vec![7u8; 10].into()));
    assert_eq!(b.data().as_ptr(), own, "an array with memory of its own is not copied");
}

#[test]
fn random_numbers_depend_on_the_seed_and_the_position_only() {
    let at = |epoch, sample| {
        let position = Position { epoch, shard: 3, sample, ..Position::default() };
        Sample::from_parts("k".into(), Fields::new(), "s".into(), position)
    };
    assert_eq!(at(1, 2).rng(9).below(1 << 60), at(1, 2).rng(9).below(1 << 60));
    assert_ne!(at(1, 2).rng(9).below(1 << 60), at(2, 2).rng(9).below(1 << 60));
    assert_ne!(at(1, 2).rng(9).below(1 << 60), at(1, 3).rng(9).below(1 << 60));
}
