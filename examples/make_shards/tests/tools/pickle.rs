//! Tests of reading pickles: pickles that Python writes, and hostile pickles, which must not end the program.

use make_shards::cifar::pickle::{Pickle, PickleError};
use std::fs;
use std::path::Path;

/// A pickle in the form of Python 2, which `tests/data/make_pickle.py` wrote.
fn python2() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/python2.pickle");
    fs::read(path).unwrap()
}

#[test]
fn pickles_of_python_2_are_read() {
    let bytes = python2();
    let pickle = Pickle::read(&bytes).unwrap();
    let root = pickle.root();
    let (shape, data) = root.get("data").unwrap().array().unwrap();
    assert_eq!((shape, data.len()), (&[3, 3072][..], 3 * 3072));
    assert_eq!(data[..4], [0, 7, 14, 21]);
    assert_eq!(root.get("labels").unwrap().integers(), Some(vec![6, 9, 300]));
    assert!(root.get("filenames").unwrap().integers().is_none());
    assert!(root.get("nothing").is_none() && root.get("labels").unwrap().get("data").is_none());
}

#[test]
fn plain_values_are_read() {
    let integers = b"\x80\x04\x95\0\0\0\0\0\0\0\0](K\x01M\x02\x01J\xff\xff\xff\xff\x8a\x02\xfe\xff\x8a\0e.";
    assert_eq!(Pickle::read(integers).unwrap().root().integers(), Some(vec![1, 258, -1, -2, 0]));
    let entries = b"\x80\x02}(U\x01aK\x01X\x01\0\0\0bK\x02U\x01aK\x03u\x94h\0.";
    let pickle = Pickle::read(entries).unwrap();
    assert!(pickle.root().get("b").is_some() && pickle.root().get("c").is_none());
}

#[test]
fn no_function_of_a_pickle_is_called() {
    for (pickle, module, name) in [
        (&b"\x80\x02cos\nsystem\nU\x02ls\x85R."[..], "os", "system"),
        (b"\x80\x02c__builtin__\neval\nU\x011\x85R.", "__builtin__", "eval"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93.", "builtins", "exec"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\n.", "numpy.core.multiarray", "scalar"),
        (b"\x80\x02c_codecs\ndecode\n.", "_codecs", "decode"),
    ] {
        let error = Pickle::read(pickle).unwrap_err();
        assert_eq!(error, PickleError::Global { module: module.into(), name: name.into() });
    }
    // Operations that call functions or load objects from elsewhere.
    for (pickle, opcode) in
        [(b"(ios\nsystem\n.", b'i'), (b"(oxxxxxxxxxx.", b'o'), (b")\x81xxxxxxxxx..", 0x81)]
    {
        assert!(
            matches!(Pickle::read(pickle), Err(PickleError::Opcode { opcode: found, .. }) if found == opcode)
        );
    }
    for opcode in [0x82, b'P', b'Q', 0x97, 0x98, b'0', b'2', b'S', b'V', b'I', b'F'] {
        let expected = PickleError::Opcode { opcode, at: 2 };
        assert_eq!(Pickle::read(&[0x80, 2, opcode, 0, 0]).unwrap_err(), expected);
    }
}

#[test]
fn malformed_pickles_are_errors() {
    for pickle in [
        &b"\x80\x01."[..],
        b".",
        b"(.",
        b"K\x01a.",
        b"K\x01K\x02a.",
        b"](K\x01u.",
        b"}(K\x01u.",
        b"}K\x01e.",
        b"N(\x85.",
        b"K\x01t.",
        b"h\0.",
        b"j\0\0\0\x80.",
        b"q\0.",
        b"X\x01\0\0\0\xff.",
        b"c\xff\nx\n.",
        b"K\x01K\x02\x93.",
        b"\x8a\x09123456789.",
        b"NNR.",
        b"NNb.",
        b"N)b.",
        b"cnumpy\nndarray\n)R.",
        b"cnumpy\nndarray\n)b.",
        b"cnumpy\ndtype\nU\x02f8\x85R.",
        b"cnumpy\ndtype\n)R.",
        b"cnumpy.core.multiarray\n_reconstruct\n)R.",
        b"c_codecs\nencode\nX\x03\0\0\0\xe7\x8c\xabX\x06\0\0\0latin1\x86R.",
        b"c_codecs\nencode\nX\x01\0\0\0aX\x03\0\0\0hex\x86R.",
    ] {
        assert!(matches!(Pickle::read(pickle), Err(PickleError::Malformed { .. })), "{pickle:?}");
    }
    for pickle in [&b""[..], b"\x80", b"K", b"J\0\0\0", b"U\x02a", b"T\xff\xff\xff\xffa", b"cnumpy\n", b"N"] {
        assert_eq!(Pickle::read(pickle).unwrap_err(), PickleError::Truncated, "{pickle:?}");
    }
    let huge = b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffa.";
    assert_eq!(Pickle::read(huge).unwrap_err(), PickleError::Truncated);
}

/// A pickle of an array with this shape and these bytes, as Python 2 writes it.
fn array(shape: &[u8], bytes: &[u8]) -> Vec<u8> {
    let head = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85U\x01btR(K\x01";
    let kind = b"cnumpy\ndtype\n(U\x02u1K\0K\x01tR\x89U";
    [head, shape, kind, &[bytes.len() as u8], bytes, b"tb."].concat()
}

#[test]
fn shapes_that_do_not_match_their_bytes_are_errors() {
    let good = array(b"K\x02K\x03\x86", b"abcdef");
    assert_eq!(Pickle::read(&good).unwrap().root().array(), Some((&[2, 3][..], &b"abcdef"[..])));
    let large = [&b"(("[..], &b"K\xff".repeat(12), b"tt"].concat();
    for shape in
        [&b"K\x02K\x02\x86"[..], b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86", b"N\x85", b"K\x06", b")", &large]
    {
        assert!(
            matches!(Pickle::read(&array(shape, b"abcdef")), Err(PickleError::Malformed { .. })),
            "{shape:?}"
        );
    }
    let wide = [&b"("[..], &b"J\xff\xff\xff\x7f".repeat(7), b"t"].concat();
    assert!(
        matches!(Pickle::read(&array(&wide, b"abcdef")), Err(PickleError::Malformed { .. })),
        "an overflow"
    );
}

#[test]
fn pickles_with_too_many_or_too_large_values_are_errors() {
    let many = [&b"("[..], &b"N".repeat(2 << 20), b"t."].concat();
    assert!(matches!(Pickle::read(&many), Err(PickleError::TooLarge { .. })));
    // The pickle encodes the same string 1000 times, and each result would need memory.
    let text = [&b"X\x40\0\0\0"[..], &[b'a'; 64], b"q\0"].concat();
    let encode = b"c_codecs\nencode\nq\x02X\x06\0\0\0latin1q\x01";
    let again = b"h\x02h\0h\x01\x86R".repeat(1000);
    assert!(matches!(
        Pickle::read(&[&text[..], encode, &again, b"."].concat()),
        Err(PickleError::TooLarge { .. })
    ));
    // `integers` does not recurse into a list that contains itself.
    let pickle = Pickle::read(b"]q\0h\0a.").unwrap();
    assert!(pickle.root().integers().is_none());
}

#[test]
fn a_pickle_truncated_anywhere_is_an_error() {
    let bytes = python2();
    for end in (0..200).chain((200..bytes.len()).step_by(53)).chain(bytes.len() - 200..bytes.len()) {
        assert!(Pickle::read(&bytes[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_flipped_bit_does_not_panic() {
    let mut bytes = python2();
    for at in (0..400).chain(bytes.len() - 400..bytes.len()) {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            if let Ok(pickle) = Pickle::read(&bytes) {
                let root = pickle.root();
                let _ = (
                    root.get("data").map(|data| data.array()),
                    root.get("labels").map(|list| list.integers()),
                );
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn random_operations_do_not_panic() {
    let mut rng = shardstream::Rng::new(7, 0, 0);
    // Mostly valid opcodes, so that some inputs run for several operations.
    let opcodes =
        b".(NKMUTCBX]})taesuqhcRb\x80\x85\x86\x87\x88\x89\x8a\x8c\x8d\x8e\x93\x94\x95\x96\0\x01\x02\n";
    for _ in 0..20_000 {
        let length = rng.below(60);
        let bytes: Vec<u8> = (0..length).map(|_| opcodes[rng.below(opcodes.len() as u64) as usize]).collect();
        let _ = Pickle::read(&bytes);
    }
}
