//! npy and npz files, compared with numpy.

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
fn npy_values_match_numpy() {
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
    assert!(matches!(Array::from_npy(&file).unwrap_err().kind(), ErrorKind::Pickle { .. }));
    let error = Decoder::new().decode_field("a.npy", &file).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Pickle { field } if field == "a.npy"), "{error}");
}

#[test]
fn unsupported_dtypes_are_typed_errors() {
    let files = files("npy", "other-");
    assert_eq!(files.len(), 5);
    for path in files {
        let error = Array::from_npy(&read(&path)).unwrap_err();
        let is_decode = matches!(error.kind(), ErrorKind::Decode { .. });
        let text = format!("{error:#}");
        assert!(is_decode && text.contains(" are not supported: use bool"), "{}: {text}", path.display());
    }
}

#[cfg(feature = "npz")]
#[test]
fn npz_archives_decode_and_encode_by_array_name() {
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
