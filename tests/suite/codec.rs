//! Decoding and encoding, compared with numpy, Pillow and webdataset.
//!
//! The files in `tests/data/codec` are written by `tests/scripts/make_codec_fixtures.py`.

use bytes::Bytes;
use serde_json::json;
use shardstream::codec::{Array, DType, Decoder, Encoder, NpyError};
use shardstream::{ErrorKind, Sample, Value};
use std::error::Error as _;
use std::path::{Path, PathBuf};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/codec").join(path)
}

fn read(path: &Path) -> Bytes {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

/// The files of a folder whose names begin with a prefix, sorted.
fn files(folder: &str, prefix: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(data(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{prefix}");
    files
}

fn array(path: &Path) -> Array {
    Array::from_npy(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

mod npy {
    use super::*;

    #[test]
    fn npy_files_are_written_as_numpy_writes_them() {
        let files = files("npy", "plain-");
        assert_eq!(files.len(), 16);
        for path in files {
            let file = read(&path);
            assert_eq!(Array::from_npy(&file).unwrap().to_npy(), file, "{}", path.display());
        }
    }

    #[test]
    fn npy_values_are_those_of_numpy() {
        let of = |name: &str| array(&data(&format!("npy/plain-{name}.npy")));
        assert_eq!(of("int16").to_vec::<i16>().unwrap(), [0, 1, 2, 3, 100, 5]);
        assert_eq!(of("float32").to_vec::<f32>().unwrap(), [0., 1., 2., 3., 100., 5.]);
        assert_eq!(of("bool").to_vec::<bool>().unwrap(), [false, true, true, true, true, true]);
        assert_eq!(of("float16").dtype(), DType::F16);
        assert_eq!(of("uint64").shape(), [2, 3]);
        assert_eq!((of("scalar").shape(), of("scalar").to_vec::<f64>().unwrap()), (&[][..], vec![1.5]));
        assert_eq!(of("empty").shape(), [0, 3]);
    }

    #[test]
    fn memory_orders_and_format_versions_decode_alike() {
        let mut pairs = 0;
        for path in files("npy", "pair-") {
            let name = path.to_str().unwrap().strip_suffix(".npy").unwrap();
            if !name.ends_with(".same") {
                assert_eq!(array(&path).to_npy(), read(Path::new(&format!("{name}.same.npy"))), "{name}");
                pairs += 1;
            }
        }
        assert_eq!(pairs, 6);
    }

    #[test]
    fn object_arrays_are_refused_as_pickles() {
        let file = read(&data("npy/pickle-objects.npy"));
        assert_eq!(Array::from_npy(&file).unwrap_err(), NpyError::Pickle);
        let error = Decoder::new().decode_field("a.npy", &file).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Pickle { field } if field == "a.npy"), "{error}");
    }

    #[test]
    fn unsupported_dtypes_are_typed_errors() {
        let files = files("npy", "other-");
        assert_eq!(files.len(), 5);
        for path in files {
            let error = Array::from_npy(&read(&path)).unwrap_err();
            assert!(matches!(error, NpyError::Unsupported(_)), "{}: {error}", path.display());
        }
    }

    #[cfg(feature = "npz")]
    #[test]
    fn npz() {
        for name in ["stored.npz", "compressed.npz"] {
            let value = Decoder::new().decode_field("npz", &read(&data(name))).unwrap().unwrap();
            let Value::Arrays(arrays) = &value else { panic!("{value:?}") };
            assert_eq!(arrays.keys().collect::<Vec<_>>(), ["a", "b.c"]);
            assert_eq!(arrays["a"].to_vec::<u8>().unwrap(), [0, 1, 2, 3, 100, 5]);
            let again = Encoder::new().encode("npz", &value).unwrap();
            let again = Decoder::new().decode_field("npz", &again).unwrap().unwrap();
            assert!(matches!(again, Value::Arrays(again) if again == *arrays));
        }
    }
}

mod fields {
    use super::*;

    /// The result of the standard decoder as text; "raw" where it leaves the field as it is.
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
    fn extensions() {
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
        let sample =
            Sample::new("k").with("cls", b"7").with("bin", b"b").with("txt", 5).with("a.json", b"null");
        let sample = Decoder::new().decode(sample).unwrap();
        assert_eq!(
            format!("{sample:?}"),
            r#"{"__key__": "k", "cls": 7, "bin": b"b", "txt": 5, "a.json": Null}"#
        );
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
}

#[cfg(feature = "image")]
mod images {
    use super::*;
    use shardstream::image::{Image, ImageError, ImageMode, Size};

    fn image_files() -> Vec<PathBuf> {
        files("images", "").into_iter().filter(|path| path.extension().unwrap() != "npy").collect()
    }

    /// For each pixel the values of L, R G B and R G B A, as Pillow decodes them.
    fn pillow(path: &Path) -> Array {
        array(Path::new(&format!("{}.npy", path.display())))
    }

    #[test]
    fn decoded_pixels_are_those_of_pillow() {
        let modes = [(ImageMode::L8, 0..1), (ImageMode::Rgb8, 1..4), (ImageMode::Rgba8, 4..8)];
        let files = image_files();
        assert_eq!(files.len(), 29);
        for path in files {
            let lossy = path.extension().unwrap() == "jpg" || path.file_stem().unwrap() == "lossy";
            let (most, mean) = if lossy { (6, 0.5) } else { (0, 0.0) };
            let wanted = pillow(&path);
            for (mode, channels) in &modes {
                let image = Image::decode(&read(&path), *mode)
                    .unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
                assert_eq!([image.height() as usize, image.width() as usize, 8], wanted.shape());
                let wanted = wanted.data().chunks(8).flat_map(|pixel| &pixel[channels.clone()]);
                let off: Vec<u8> =
                    image.as_u8().unwrap().iter().zip(wanted).map(|(a, b)| a.abs_diff(*b)).collect();
                let average = off.iter().copied().map(f64::from).sum::<f64>() / off.len() as f64;
                let worst = *off.iter().max().unwrap();
                assert!(
                    worst <= most && average <= mean,
                    "{} {mode}: off by up to {worst}, {average} on average",
                    path.display()
                );
            }
        }
    }

    #[test]
    fn float_pixels_are_fractions_of_255() {
        let file = read(&data("images/rgba.png"));
        for (bytes, floats) in [
            (ImageMode::L8, ImageMode::LF32),
            (ImageMode::Rgb8, ImageMode::RgbF32),
            (ImageMode::Rgba8, ImageMode::RgbaF32),
        ] {
            let bytes = Image::decode(&file, bytes).unwrap();
            let floats = Image::decode(&file, floats).unwrap();
            let wanted: Vec<f32> =
                bytes.as_u8().unwrap().iter().map(|byte| f32::from(*byte) / 255.0).collect();
            assert_eq!(floats.as_f32().unwrap(), wanted);
        }
    }

    #[test]
    fn a_truncated_image_is_an_error() {
        for path in image_files() {
            // In text PNM, a truncated number is still a number.
            if path.file_stem().unwrap() == "plain" {
                continue;
            }
            let file = read(&path);
            let whole = Image::decode(&file, ImageMode::Rgba8).unwrap();
            for end in (0..file.len()).step_by(if file.len() > 1000 { 7 } else { 1 }).chain([file.len() - 1])
            {
                if let Ok(image) = Image::decode(&file[..end], ImageMode::Rgba8) {
                    // Only bytes after the pixels may be missing.
                    assert!(image == whole, "{} cut to {end} of {}", path.display(), file.len());
                    assert_ne!(path.extension().unwrap(), "jpg");
                }
            }
        }
    }

    #[test]
    fn damage_never_panics_and_checksums_reveal_it() {
        for path in image_files() {
            let file = read(&path);
            let whole = Image::decode(&file, ImageMode::Rgba8).unwrap();
            for at in (0..file.len()).step_by(if file.len() > 1000 { 11 } else { 1 }) {
                let mut damaged = file.to_vec();
                damaged[at] ^= 0x41;
                if let Ok(image) = Image::decode_within(&damaged, ImageMode::Rgba8, 1 << 20) {
                    let checked = path.extension().unwrap() == "png";
                    assert!(!checked || image == whole, "{} damaged at {at}", path.display());
                }
            }
        }
    }

    #[test]
    fn decompression_bombs_are_refused_before_allocation() {
        let png = read(&data("images/rgb.png"));
        assert!(Image::decode_within(&png, ImageMode::Rgb8, 7 * 5 * 3).is_ok());
        for (mode, limit) in [(ImageMode::Rgb8, 7 * 5 * 3 - 1), (ImageMode::RgbF32, 7 * 5 * 12 - 1)] {
            let error = Image::decode_within(&png, mode, limit).unwrap_err();
            assert!(
                matches!(error, ImageError::TooLarge { size: Size { height: 5, width: 7 }, .. }),
                "{error}"
            );
        }
        let jpeg = read(&data("images/444.jpg"));
        assert!(matches!(
            Image::decode_within(&jpeg, ImageMode::L8, 53 * 37),
            Err(ImageError::TooLarge { size: Size { height: 37, width: 53 }, .. })
        ));
        let error = Image::decode(b"P5 4294967295 4294967295 255 ", ImageMode::L8).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{error:?}");
        let error =
            Decoder::new().images(ImageMode::Rgb8).max_size(10).decode_field("png", &png).unwrap_err();
        assert!(error.source().unwrap().to_string().contains("limit"), "{error:?}");
    }

    #[test]
    fn an_image_without_pixels_is_an_error() {
        let jpeg = read(&data("images/444.jpg"));
        let size = jpeg.windows(2).position(|marker| marker == b"\xff\xc0").unwrap() + 5;
        let resized = |from: usize| {
            let mut jpeg = jpeg.to_vec();
            jpeg[size + from..][..2].fill(0);
            jpeg
        };
        let mut png = read(&data("images/gray.png")).to_vec();
        png[16..20].fill(0);
        let files =
            [b"P1 0 1 ", &b"P2 1 0 255 "[..], b"P3 0 0 255 ", b"P4 0 1\n", b"P5 0 1 255\n", b"P6 1 0 255\n"];
        let pam = b"P7\nWIDTH 0\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n".to_vec();
        let files = files.map(<[u8]>::to_vec).into_iter().chain([resized(0), resized(2), png, pam]);
        for file in files {
            let name = file[..file.len().min(20)].escape_ascii().to_string();
            for mode in [ImageMode::L8, ImageMode::Rgba8] {
                let error = Image::decode(&file, mode).expect_err(&name);
                assert!(matches!(error, ImageError::Decode(_)), "{name}: {error:?}");
            }
        }
    }

    #[test]
    fn the_extension_marks_an_image_and_its_content_the_format() {
        let decoder = Decoder::new().images(ImageMode::Rgb8);
        let png = read(&data("images/rgb.png"));
        for field in ["png", "jpg", "a.jpeg", "jpe", "jfif", "webp", "ppm", "pgm", "pbm", "pnm"] {
            assert!(matches!(decoder.decode_field(field, &png).unwrap(), Some(Value::Image(_))), "{field}");
        }
        for field in ["tiff", "gif", "bmp", "jp2", "h5", "mpg"] {
            assert!(decoder.decode_field(field, &png).unwrap().is_none(), "{field}");
        }
        for other in [&b""[..], b"GIF89a\x01\0\x01\0\0\0\0;", b"BM", b"II*\0", b"cat"] {
            let error = Image::decode(other, ImageMode::Rgb8).unwrap_err();
            assert!(matches!(error, ImageError::Format), "{error:?}");
        }
    }

    #[test]
    fn encoded_values_decode_to_themselves() {
        let encoder = Encoder::new();
        let decoder = |mode| Decoder::new().images(mode);
        let pixels =
            |mode: ImageMode| (0..15 * mode.channels()).map(|i| (i * 17 % 256) as u8).collect::<Vec<_>>();
        let table: [(&str, &[ImageMode]); 6] = [
            ("png", &[ImageMode::L8, ImageMode::Rgb8, ImageMode::Rgba8]),
            ("webp", &[ImageMode::L8, ImageMode::Rgb8, ImageMode::Rgba8]),
            ("pgm", &[ImageMode::L8]),
            ("ppm", &[ImageMode::Rgb8]),
            ("pnm", &[ImageMode::L8, ImageMode::Rgb8]),
            ("jpg", &[ImageMode::L8, ImageMode::Rgb8]),
        ];
        for (field, modes) in table {
            for mode in [ImageMode::L8, ImageMode::Rgb8, ImageMode::Rgba8] {
                let image = Image::new(mode, (3, 5), pixels(mode)).unwrap();
                let encoded = encoder.encode(field, &image.clone().into());
                assert_eq!(encoded.is_ok(), modes.contains(&mode), "{field} {mode}");
                let Ok(bytes) = encoded else { continue };
                let back = match decoder(mode).decode_field(field, &bytes).unwrap() {
                    Some(Value::Image(back)) => back,
                    other => panic!("{other:?}"),
                };
                if field == "jpg" {
                    assert!(bytes.starts_with(b"\xff\xd8"));
                } else {
                    assert!(back == image, "{field} {mode}");
                }
            }
        }
    }

    #[test]
    fn only_floats_from_0_to_1_are_encoded() {
        let image = |number| Image::new(ImageMode::LF32, 1, vec![number]).unwrap();
        let png = image(0.5).to_png().unwrap();
        assert_eq!(Image::decode(&png, ImageMode::L8).unwrap().as_u8().unwrap(), [128]);
        for number in [-0.01, 1.01, f32::NAN] {
            assert!(matches!(image(number).to_png(), Err(ImageError::Range(_))), "{number}");
        }
    }
}
