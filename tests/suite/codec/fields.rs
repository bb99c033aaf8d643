//! Decoders and encoders of fields by their extensions.

use super::*;

/// The result of the standard decoder as text; "raw" if it leaves the field as it is.
fn decoded(field: &str, bytes: &[u8]) -> String {
    match Decoder::new().decode_field(field, &Bytes::copy_from_slice(bytes)) {
        Ok(Some(value)) => format!("{value:?}"),
        Ok(None) => "raw".into(),
        Err(error) => match error.kind() {
            ErrorKind::Decode { field: named, .. } if named == field => "error".into(),
            ErrorKind::Pickle { field: named } if named == field => "pickle".into(),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn each_extension_has_its_decoder() {
    let table: &[(&str, &[u8], &str)] = &[
        ("txt", "é ".as_bytes(), r#""é ""#),
        ("text", b"", r#""""#),
        ("a.b.transcript", b"x\n", r#""x\n""#),
        ("txt", b"\xff", "error"),
        ("cls", b" 7\n", "7"),
        ("cls2", b"-1_0", "-10"),
        ("index", b"0", "0"),
        ("inx", b"1.5", "error"),
        ("id", b"", "error"),
        ("class", b"1", "1"),
        ("count", b"2", "2"),
        ("json", b"{\"a\": [1, 2.5]}", r#"Object {"a": Array [Number(1), Number(2.5)]}"#),
        ("jsn", b"null", "Null"),
        ("json", b"\xef\xbb\xbf1", "Number(1)"),
        ("json", b"NaN", "error"),
        ("npy", b"", "error"),
        ("pkl", b"", "pickle"),
        ("a.pickle", b"", "pickle"),
        ("pyd", b"", "pickle"),
        ("pth", b"", "pickle"),
        ("pt", b"", "pickle"),
        ("TXT", b"x", r#""x""#),
        ("jpg", b"x", "raw"),
        ("html", b"x", "raw"),
        ("mp4", b"x", "raw"),
        ("msgpack", b"x", "raw"),
        ("xtxt", b"x", "raw"),
        ("txt.x", b"x", "raw"),
        ("", b"x", "raw"),
        (".", b"x", "raw"),
        ("gz", b"x", "raw"),
        (".gz", b"x", "raw"),
        ("html.gz", b"x", "raw"),
    ];
    for (field, bytes, wanted) in table {
        assert_eq!(decoded(field, bytes), *wanted, "{field} {:?}", bytes.escape_ascii().to_string());
    }
}

#[cfg(feature = "gzip")]
#[test]
fn gz_fields_are_decompressed_once() {
    let encoder = Encoder::new();
    let gz = |field: &str, value: Value| encoder.encode(field, &value).unwrap();
    let seven = gz("cls.gz", 7.into());
    assert!(seven.starts_with(b"\x1f\x8b"));
    assert_eq!(decoded("a.cls.gz", &seven), "7");
    assert_eq!(decoded("cls.GZ", &seven), "7");
    assert_eq!(decoded("cls.gz", b"7"), "error");
    assert_eq!(decoded("cls.gz", &seven[..seven.len() - 1]), "error");
    assert_eq!(decoded("txt.gz.gz", &seven), "raw");
    // An unknown inner extension leaves the bytes as they are, unless a decoder is set.
    let page = gz("html.gz", "<p>".into());
    assert_eq!(decoded("html.gz", &page), "raw");
    let decoder = Decoder::new().with("html", |bytes| Ok(bytes.clone().into()));
    assert_eq!(decoder.decode_field("html.gz", &page).unwrap().unwrap().as_bytes().unwrap(), "<p>");
    let decoder = decoder.with("html.gz", |bytes| Ok((bytes.len() as i32).into()));
    assert!(matches!(decoder.decode_field("html.gz", &page).unwrap(), Some(Value::Int(n)) if n > 3));
}

#[cfg(feature = "gzip")]
#[test]
fn the_decompressed_size_of_a_field_is_limited() {
    let bomb = Encoder::new().encode("txt.gz", &"a".repeat(100_000).into()).unwrap();
    assert!(Decoder::new().max_size(100_000).decode_field("txt.gz", &bomb).is_ok());
    assert!(Decoder::new().max_size(99_999).decode_field("txt.gz", &bomb).is_err());
}

#[test]
fn custom_decoders_and_longer_extensions_take_precedence() {
    let number = |number: i32| move |_: &Bytes| Ok(Value::from(number));
    let decoder = Decoder::new()
        .with("seg.png pkl", number(1))
        .with("png;.Mask.txt", number(2))
        .with("cls", number(3))
        .with("cls", number(4))
        .without("json txt");
    let of = |field| match decoder.decode_field(field, &Bytes::from_static(b"0")).unwrap() {
        Some(Value::Int(int)) => int,
        Some(other) => panic!("{other:?}"),
        None => 0,
    };
    let fields = ["seg.png", "a.seg.png", "xseg.png", "png", "pkl", "mask.txt", "txt", "cls", "json"];
    assert_eq!(fields.map(of), [1, 1, 2, 2, 1, 2, 0, 4, 0]);
}

#[test]
fn fields_without_a_decoder_are_kept() {
    let sample = Sample::new("k").with("cls", b"7").with("bin", b"b").with("txt", 5).with("a.json", b"null");
    let sample = Decoder::new().decode(sample).unwrap();
    assert_eq!(format!("{sample:?}"), r#"{"__key__": "k", "cls": 7, "bin": b"b", "txt": 5, "a.json": Null}"#);
}

#[test]
fn only_matches_full_field_names() {
    let decoder = Decoder::new().only(&["cls"]);
    let sample = Sample::new("k").with("cls", b"7").with("a.cls", b"7").with("pkl", b"evil");
    let sample = decoder.decode(sample).unwrap();
    assert_eq!(format!("{sample:?}"), r#"{"__key__": "k", "cls": 7, "a.cls": b"7", "pkl": b"evil"}"#);
}

#[test]
fn errors_say_where_and_why() {
    let error = Decoder::new().decode(Sample::new("k7").with("cls", b"cat")).unwrap_err();
    assert_eq!(error.to_string(), "cannot decode the field \"cls\" (sample k7)");
    assert_eq!(error.source().unwrap().to_string(), "\"cat\" is not a whole number");
}

#[test]
fn encoded_values_decode_to_themselves() {
    let values = [
        ("txt", Value::from("é\n")),
        ("cls", Value::Int(-3)),
        ("a.json", Value::Json(json!({"b": [null, 0.1, "x"]}))),
        ("npy", Value::Array(Array::from_vec(vec![2], vec![1.5f32, -2.]).unwrap())),
    ];
    for (field, value) in &values {
        let bytes = Encoder::new().encode(field, value).unwrap();
        let back = Decoder::new().decode_field(field, &bytes).unwrap().unwrap();
        assert_eq!(format!("{back:?}"), format!("{value:?}"));
    }
}

#[test]
fn the_extension_selects_the_encoder() {
    let text = || Value::from("7");
    let array = || Value::Array(Array::from_vec(vec![], vec![1u8]).unwrap());
    let table: [(&str, Value, Option<&[u8]>); 17] = [
        ("npy", Value::from(b"raw"), Some(b"raw")),
        ("x.gz", Value::from(b"raw"), Some(b"raw")),
        ("txt", text(), Some(b"7")),
        ("csv", text(), Some(b"7")),
        ("cls", text(), Some(b"7")),
        ("json", text(), Some(b"7")),
        ("json", Value::Int(7), Some(b"7")),
        ("json", Value::Json(json!({"a": 1})), Some(b"{\"a\":1}")),
        ("cls", "cat".into(), None),
        ("json", "cat".into(), None),
        ("txt", Value::Int(7), None),
        ("csv", Value::Int(7), None),
        ("cls", array(), None),
        ("json", array(), None),
        ("npy", text(), None),
        ("pkl", text(), None),
        ("cls", Value::other(7u8), None),
    ];
    for (field, value, wanted) in table {
        let encoded = Encoder::new().encode(field, &value);
        match (&encoded, wanted) {
            (Ok(bytes), Some(wanted)) => assert_eq!(bytes, wanted, "{field}"),
            (Err(error), None) => assert!(matches!(error.kind(), ErrorKind::Encode { .. }), "{error}"),
            _ => panic!("{field} {value:?}: {encoded:?}"),
        }
    }
    let own = Encoder::new().with("cls", |value| Ok(format!("{value:?}!").into()));
    assert_eq!(own.encode("a.cls", &7.into()).unwrap(), "7!");
}

#[test]
fn decoders_and_encoders_are_clone_send_and_sync() {
    fn shared<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<Decoder>();
    shared::<Encoder>();
    assert!(format!("{:?}", Decoder::new().without(&"cls ".repeat(2))).contains("\"cls2\""));
}
