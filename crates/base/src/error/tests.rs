use super::*;
use std::time::Duration;

#[test]
fn the_message_has_the_kind_and_the_location() {
    let error = Error::from(ErrorKind::DuplicateMember { field: "jpg".into() })
        .in_shard("s.tar")
        .at_offset(512)
        .in_member("a.jpg")
        .with_key("a");
    assert_eq!(
        error.to_string(),
        "duplicate member: the sample already has a field \"jpg\" (shard s.tar, byte 512, member a.jpg, \
         sample a)"
    );
}

#[test]
fn the_message_has_the_number_and_the_duration_of_the_tries() {
    let error = Error::from(std::io::Error::other("refused")).after(5, Duration::from_millis(2040));
    assert_eq!(format!("{error:#}"), "input/output error (after 5 tries in 2.0 s): refused");
    assert_eq!(error.attempts(), Some(Attempts { tries: 5, elapsed: Duration::from_millis(2040) }));
    let error = error.in_shard("s.tar");
    assert_eq!(error.to_string(), "input/output error (shard s.tar, after 5 tries in 2.0 s)");
}

#[test]
fn the_alternate_form_shows_the_causes() {
    let inner = Error::from(std::io::Error::other("line lost")).in_shard("b.tar");
    let error = Error::decode("png", inner).with_key("a");
    assert_eq!(error.to_string(), "cannot decode the field \"png\" (sample a)");
    assert_eq!(
        format!("{error:#}"),
        "cannot decode the field \"png\" (sample a): input/output error (shard b.tar): line lost"
    );
}

#[test]
fn main_shows_the_message_with_its_causes() {
    let error = Error::from(std::io::Error::other("line lost")).in_shard("b.tar").at_offset(7);
    assert_eq!(format!("{error:?}"), "input/output error (shard b.tar, byte 7): line lost");
    assert_eq!(format!("{error:#?}"), format!("{error:?}"));
    assert!(matches!(error.kind(), ErrorKind::Io(_)) && error.location().offset() == Some(7));
}

#[test]
fn debug_begins_with_the_message_of_every_kind() {
    for kind in one_of_each() {
        let error = Error::from(kind).in_shard("b.tar").with_key("a");
        let (shown, message) = (format!("{error:?}"), error.to_string());
        assert!(shown.starts_with(&message), "{shown}");
        let causes = std::error::Error::source(&error).is_some();
        assert_eq!(shown.len() > message.len(), causes, "{shown}");
    }
}

#[test]
fn secrets_of_shards_and_causes_are_not_shown() {
    let error = std::io::Error::other("GET https://me:s3cret@h/a?s3cret failed");
    let error = Error::from(error).in_shard("https://me:s3cret@h/a?s3cret");
    assert_eq!(error.location().shard(), Some("https://[redacted]@h/a?[redacted]"));
    assert_eq!(
        format!("{error:?}"),
        "input/output error (shard https://[redacted]@h/a?[redacted]): GET \
         https://[redacted]@h/a?[redacted] failed"
    );
}

#[test]
fn a_later_location_does_not_replace_the_first() {
    let error = Error::from(ErrorKind::Checksum).in_shard("inner").in_shard("outer");
    assert_eq!(error.location().shard(), Some("inner"));
}

#[test]
fn the_caret_points_at_the_character() {
    let error =
        Error::from(ErrorKind::Pattern { pattern: "é{a".into(), position: 2, message: "open".into() });
    assert_eq!(error.to_string(), "bad shard pattern: open\n  é{a\n   ^");
}

#[test]
fn an_error_is_one_pointer_and_crosses_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Error>();
    assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
}

#[test]
fn an_exceeded_limit_names_its_option() {
    let text = |what| ErrorKind::TooLarge { what, size: 2, limit: 1 }.to_string();
    assert_eq!(
        text(SizeLimit::Sample),
        "a sample of 2 bytes exceeds the limit of 1 bytes: set `tar::Limits::sample` if you trust the shard \
         (`--limit sample=SIZE` in the program)"
    );
    assert_eq!(
        text(SizeLimit::Listing),
        "a listing of 2 bytes exceeds the limit of 1 bytes of names in memory: list a directory below it"
    );
    assert_eq!(text(SizeLimit::State), "the state of 2 bytes exceeds the limit of 1 bytes");
}

#[test]
fn a_value_of_another_type_names_the_missing_step() {
    let text = |wanted, found| ErrorKind::WrongType { field: "a".into(), wanted, found }.to_string();
    for (wanted, found, expected) in [
        (
            ValueType::Image,
            ValueType::Bytes,
            "raw bytes, not an image; images are decoded by a `Decoder` with `images(…)`",
        ),
        (
            ValueType::Named("a whole number of 8 bits"),
            ValueType::Bytes,
            "raw bytes, not a whole number of 8 bits; is a `decode` step missing, or a decoder for this \
             extension?",
        ),
        (ValueType::Bytes, ValueType::Text, "text, not raw bytes; `Decoder::without` leaves a field raw"),
        (ValueType::Json, ValueType::Array, "an array, not a JSON document"),
    ] {
        assert_eq!(text(wanted, found), format!("the field \"a\" holds {expected}"));
    }
}
