use super::names::tensors;
use super::*;
use crate::artifact::Artifact;
use proptest::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

fn manifest(name: &str) -> Manifest {
    Artifact::open(name).unwrap().manifest
}

/// The manifest of the network with an eighth of its channels: the same buffers with fewer values.
fn narrow(mut manifest: Manifest) -> Manifest {
    for axis in manifest.state.iter_mut().flat_map(|buffer| &mut buffer.shape) {
        *axis = if *axis >= 64 { *axis / 8 } else { *axis };
    }
    manifest
}

/// A state with zeros in the optimizer's buffers, which a file of weights does not store. All other buffers
/// have finite values with random bits.
fn state(manifest: &Manifest, seed: u32) -> Vec<Vec<f32>> {
    let mut bits = seed;
    let mut value = || {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = f32::from_bits(bits);
        // About one value in 256 is infinite or NaN, and is replaced.
        if value.is_finite() { value } else { -0.0 }
    };
    let buffers = manifest.state.iter().map(|buffer| {
        let values = buffer.shape.iter().product::<i64>() as usize;
        if buffer.name.starts_with("opt.") {
            vec![0.0; values]
        } else {
            (0..values).map(|_| value()).collect()
        }
    });
    buffers.collect()
}

fn bits(state: &[Vec<f32>]) -> Vec<Vec<u32>> {
    state.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
}

/// A state of zeros into which the decoded values were copied.
fn applied(decoded: Decoded, manifest: &Manifest) -> Vec<Vec<f32>> {
    let mut state: Vec<Vec<f32>> =
        manifest.state.iter().map(|b| vec![0.0; b.shape.iter().product::<i64>() as usize]).collect();
    let (url, sha256) = (SecretUrl::from("x"), String::new());
    Initial { url, sha256, decoded }.apply(&mut state);
    state
}

/// The type, shape and bytes of each tensor of a file, by name.
type Contents = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Writes the tensors of a file again, after `change` has changed them.
fn changed(bytes: &[u8], change: impl FnOnce(&mut Contents)) -> Vec<u8> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let mut contents: Contents = file
        .iter()
        .map(|(name, t)| (name.to_owned(), (t.dtype(), t.shape().to_vec(), t.data().to_vec())))
        .collect();
    change(&mut contents);
    let views = contents
        .iter()
        .map(|(name, (dtype, shape, data))| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    serialize(views, None).unwrap()
}

#[test]
fn the_weights_of_every_built_in_network_are_read_as_they_were_written() {
    let names = crate::artifact::names();
    let mut seen: Vec<Manifest> = Vec::new();
    for name in names.split(", ") {
        let manifest = manifest(name);
        // A network's programs for other types or numbers of devices have the same state, so one of these
        // programs is enough.
        if seen.iter().any(|other| other.state == manifest.state && other.stages == manifest.stages) {
            continue;
        }
        let network = narrow(manifest.clone());
        let before = state(&network, seen.len() as u32);
        let bytes = encode(&network, &before).unwrap();
        let decoded = decode(&bytes, name, &network).unwrap();
        assert_eq!(decoded.head, None);
        assert!(bits(&applied(decoded, &network)) == bits(&before), "{name}");
        seen.push(manifest);
    }
    assert_eq!(seen.len(), 5);
}

#[test]
fn the_same_weights_give_the_same_bytes() {
    let manifest = manifest("resnet8");
    let state = state(&manifest, 1);
    let bytes = encode(&manifest, &state).unwrap();
    for _ in 0..5 {
        assert!(bytes == encode(&manifest, &state).unwrap());
    }
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().as_ref().unwrap();
    let expected = [
        ("format", "pt"),
        ("model", "resnet8"),
        ("classes", "10"),
        ("image_size", "32"),
        ("mean", "[0.485, 0.456, 0.406]"),
        ("std", "[0.229, 0.224, 0.225]"),
        ("shardstream", env!("CARGO_PKG_VERSION")),
    ];
    assert_eq!(metadata.len(), expected.len());
    for (key, value) in expected {
        assert_eq!(metadata[key], value, "{key}");
    }
}

#[test]
fn kernels_have_the_layout_of_pytorch() {
    let manifest = manifest("resnet8");
    let mut state = state(&manifest, 2);
    let index = |name: &str| manifest.state.iter().position(|buffer| buffer.name == name).unwrap();
    // The kernel's (height, width, inputs, outputs) is (3, 3, 16, 32); the dense layer's (inputs, outputs) is
    // (64, 10).
    let (kernel, dense) = (index("params.Block_1.Conv_0.kernel"), index("params.Dense_0.kernel"));
    for buffer in [kernel, dense] {
        state[buffer] = (0..state[buffer].len()).map(|value| value as f32).collect();
    }
    let bytes = encode(&manifest, &state).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let value = |name: &str, index: usize| {
        let data = file.tensor(name).unwrap().data();
        f32::from_le_bytes(data[4 * index..4 * index + 4].try_into().unwrap()) as usize
    };
    for (o, i, h, w) in [(0, 0, 0, 0), (31, 0, 0, 0), (5, 7, 1, 2), (31, 15, 2, 2)] {
        let index = ((o * 16 + i) * 3 + h) * 3 + w;
        assert_eq!(value("layer2.0.conv1.weight", index), ((h * 3 + w) * 16 + i) * 32 + o);
    }
    for (o, i) in [(0, 63), (9, 0), (3, 5)] {
        assert_eq!(value("fc.weight", o * 64 + i), i * 10 + o);
    }
}

/// Compares names and shapes with the names and shapes of torchvision's networks, which are in
/// `tests/trainer/weights/`.
#[test]
fn names_and_shapes_are_those_of_torchvision() {
    let golden = include_str!("../../tests/trainer/weights/torchvision.txt");
    let mut networks = BTreeMap::from([("resnet50", manifest("resnet50-224"))]);
    // The built-in ResNet-18 is for 32 pixels and 10 classes.
    let mut resnet18 = manifest("resnet18");
    for buffer in &mut resnet18.state {
        let (_, name) = buffer.name.split_once('.').unwrap();
        match name.trim_start_matches("trace.") {
            "Conv_0.kernel" => buffer.shape = vec![7, 7, 3, 64],
            "Dense_0.kernel" => buffer.shape = vec![512, 1000],
            "Dense_0.bias" => buffer.shape = vec![1000],
            _ => {}
        }
    }
    networks.insert("resnet18", resnet18);
    for (model, manifest) in networks {
        let expected: Vec<&str> =
            golden.lines().filter_map(|line| line.strip_prefix(model)?.strip_prefix(' ')).collect();
        // The names are from a file of the narrow network, and the shapes are from the whole network.
        let network = narrow(manifest.clone());
        let bytes = encode(&network, &state(&network, 3)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = tensors(&manifest).unwrap();
        let shape = |name: &str| {
            let tensor = tensors.iter().find(|tensor| tensor.name == name);
            tensor.map_or(vec![], |tensor| tensor.shape.clone())
        };
        let mut ours: Vec<String> =
            file.names().into_iter().map(|name| format!("{name} {:?}", shape(name))).collect();
        ours.sort();
        assert_eq!(ours, expected, "{model}");
    }
}

#[test]
fn tensors_of_other_float_types_are_converted() {
    let manifest = manifest("resnet8");
    // The state has only numbers that all types represent exactly.
    let state: Vec<Vec<f32>> = state(&manifest, 4)
        .into_iter()
        .map(|values| {
            values.into_iter().map(|value| ((value.to_bits() % 255) as f32 - 127.0) / 16.0).collect()
        })
        .collect();
    let bytes = encode(&manifest, &state).unwrap();
    let expected = decode(&bytes, "x", &manifest).unwrap();
    type Convert = fn(f32) -> Vec<u8>;
    let types: [(Dtype, Convert); 3] = [
        (Dtype::F64, |value| f64::from(value).to_le_bytes().into()),
        (Dtype::F16, |value| half::f16::from_f32(value).to_le_bytes().into()),
        (Dtype::BF16, |value| half::bf16::from_f32(value).to_le_bytes().into()),
    ];
    for (dtype, convert) in types {
        let file = changed(&bytes, |contents| {
            for (tensor_dtype, _, data) in contents.values_mut().filter(|(dtype, ..)| *dtype == Dtype::F32) {
                *tensor_dtype = dtype;
                let values = data.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap()));
                *data = values.flat_map(convert).collect();
            }
        });
        assert!(decode(&file, "x", &manifest).unwrap() == expected, "{dtype}");
    }
    let integers = changed(&bytes, |contents| contents.get_mut("bn1.bias").unwrap().0 = Dtype::I32);
    let error = decode(&integers, "x", &manifest).unwrap_err().to_string();
    assert!(error.contains("bn1.bias is of the type I32"), "{error}");
    let large = changed(&bytes, |contents| {
        *contents.get_mut("bn1.bias").unwrap() = (Dtype::F64, vec![16], 1e300_f64.to_le_bytes().repeat(16));
    });
    let error = decode(&large, "x", &manifest).unwrap_err();
    assert!(matches!(error, WeightsError::NotFinite { values: 16, .. }), "{error}");
}

#[test]
fn a_last_layer_of_other_classes_is_ignored_and_all_other_tensors_must_fit() {
    let manifest = manifest("resnet8");
    let bytes = encode(&manifest, &state(&manifest, 5)).unwrap();
    let head = |classes: usize| {
        changed(&bytes, |contents| {
            contents.insert("fc.weight".into(), (Dtype::F32, vec![classes, 64], vec![0; classes * 256]));
            contents.insert("fc.bias".into(), (Dtype::F32, vec![classes], vec![0; classes * 4]));
        })
    };
    let all = decode(&bytes, "x", &manifest).unwrap().buffers.len();
    let decoded = decode(&head(1000), "x", &manifest).unwrap();
    assert!(decoded.head.unwrap().contains("1000 classes, and the network has 10"));
    assert_eq!(decoded.buffers.len(), all - 2);
    assert_eq!(decode(&head(10), "x", &manifest).unwrap().head, None);
    let none = changed(&bytes, |contents| contents.retain(|name, _| !name.starts_with("fc.")));
    assert_eq!(decode(&none, "x", &manifest).unwrap().head.unwrap(), "the file has none");

    let message = |file: Vec<u8>| {
        let error = decode(&file, "model.safetensors", &manifest).unwrap_err();
        assert!(matches!(error, WeightsError::Mismatch { .. }), "{error}");
        error.to_string()
    };
    let half_a_head = message(changed(&bytes, |contents| drop(contents.remove("fc.bias"))));
    assert!(half_a_head.ends_with("resnet8: it has no fc.bias"), "{half_a_head}");
    let of_other_width = message(changed(&bytes, |contents| {
        contents.insert("fc.weight".into(), (Dtype::F32, vec![10, 512], vec![0; 20480]));
    }));
    assert!(
        of_other_width.contains("fc.weight is [10, 512], and the network's is [10, 64]"),
        "{of_other_width}"
    );
    let more = message(changed(&bytes, |contents| {
        contents.insert("aux.weight".into(), (Dtype::F32, vec![1], vec![0; 4]));
    }));
    assert!(more.ends_with("the network has no aux.weight"), "{more}");
    let another = encode(&self::manifest("resnet20"), &state(&self::manifest("resnet20"), 1)).unwrap();
    let another = message(another);
    assert!(another.contains("the network has no layer1.1.bn1.bias"), "{another}");
    assert!(another.ends_with("; and 55 more"), "{another}");
    assert_eq!(another.matches(';').count(), 5, "{another}");
}

#[test]
fn the_error_for_a_first_convolution_of_another_size_has_a_hint() {
    let small = manifest("resnet8");
    let bytes = encode(&small, &state(&small, 6)).unwrap();
    let large = changed(&bytes, |contents| {
        contents.insert("conv1.weight".into(), (Dtype::F32, vec![16, 3, 7, 7], vec![0; 16 * 147 * 4]));
    });
    let error = decode(&large, "gs://bucket/r18.safetensors", &small).unwrap_err().to_string();
    let expected = "conv1.weight is [16, 3, 7, 7], and the network's is [16, 3, 3, 3] (the first convolution \
                    of networks for images of fewer than 128 pixels is 3x3";
    assert!(error.contains(expected) && error.contains("gs://bucket/r18.safetensors"), "{error}");
}

#[test]
fn nan_and_infinite_weights_are_neither_read_nor_written() {
    let manifest = manifest("resnet8");
    let mut state = state(&manifest, 7);
    let bytes = encode(&manifest, &state).unwrap();
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let file = changed(&bytes, |contents| {
            contents.get_mut("bn1.running_var").unwrap().2[..4].copy_from_slice(&value.to_le_bytes());
        });
        let error = decode(&file, "x", &manifest).unwrap_err();
        assert!(matches!(&error, WeightsError::NotFinite { values: 1, .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("bn1.running_var") && message.ends_with("are not used"), "{message}");
        let index = manifest.state.iter().position(|b| b.name == "stats.BatchNorm_0.var").unwrap();
        state[index][3] = value;
        let error = encode(&manifest, &state).unwrap_err().to_string();
        assert!(error.contains("bn1.running_var") && error.ends_with("are not written"), "{error}");
    }
    // A state without one of its buffers is refused.
    let error = encode(&manifest, &state[1..]).unwrap_err();
    assert!(matches!(error, WeightsError::State(_)), "{error}");
}

#[test]
fn networks_with_other_buffers_are_refused() {
    let good = manifest("resnet8");
    for name in
        ["params.Embed_0.kernel", "params.Block_3.Conv_0.kernel", "params.Block_0.Conv_3.kernel", "x", ""]
    {
        let mut manifest = good.clone();
        manifest.state.last_mut().unwrap().name = name.into();
        let error = tensors(&manifest).unwrap_err();
        assert!(matches!(&error, WeightsError::Unnamed { buffer } if buffer == name), "{error}");
    }
    let mut twice = good.clone();
    *twice.state.last_mut().unwrap() = twice.state[40].clone();
    assert!(tensors(&twice).is_err());
    let mut negative = good;
    negative.state.last_mut().unwrap().shape = vec![-1];
    assert!(tensors(&negative).is_err());
}

#[test]
fn the_error_for_a_file_of_torch_save_says_how_to_convert_it() {
    let manifest = manifest("resnet8");
    for start in [&b"PK\x03\x04"[..], b"\x80\x02"] {
        let error = decode(&[start, &[0; 99]].concat(), "r18.pth", &manifest).unwrap_err().to_string();
        assert!(error.contains("save_file"), "{error}");
    }
    let error = decode(b"{}", "x", &manifest).unwrap_err();
    assert!(matches!(&error, WeightsError::Format { is_pytorch: false, .. }), "{error}");
}

#[test]
fn a_directory_gets_a_file_and_a_destination_that_cannot_be_written_is_an_error_at_once() {
    let manifest = manifest("resnet8");
    let state = state(&manifest, 8);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (given, written) in [("", "model.safetensors"), ("a/", "a/model.safetensors"), ("b/c.bin", "b/c.bin")]
    {
        let destination = Destination::new(&path(given)).unwrap();
        assert!(!Path::new(&path(written)).exists(), "there is no file before it is written");
        let saved = destination.write(&manifest, &state, &[]).unwrap();
        assert!(saved.to_string().contains(written), "{saved}");
        let initial = Initial::read(&path(written), &manifest).unwrap();
        let mut read = applied(initial.decoded, &manifest);
        assert!(bits(&read) == bits(&state));
        // Older weights are replaced.
        read[0][0] = 5.0;
        destination.write(&manifest, &read, &[]).unwrap();
    }
    let files = std::fs::read_dir(dir.path().join("b")).unwrap().count();
    assert_eq!(files, 1, "no temporary file is left");
    std::fs::write(path("file"), "").unwrap();
    for wrong in [path("file/x.safetensors"), "nowhere://bucket/x".into(), "https://host.invalid/x".into()] {
        let error = Destination::new(&wrong).unwrap_err();
        assert!(matches!(error, WeightsError::Write { .. }), "{error}");
    }
    let error = Initial::read(&path("none"), &manifest).unwrap_err();
    assert!(matches!(error, WeightsError::Read { .. }), "{error}");
}

#[test]
fn a_file_truncated_anywhere_is_refused() {
    let manifest = manifest("resnet8");
    let bytes = encode(&manifest, &state(&manifest, 9)).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let lengths = (0..header)
        .step_by(67)
        .chain([header - 1, header])
        .chain((header..bytes.len()).step_by(40_099))
        .chain([bytes.len() - 1]);
    for length in lengths {
        let error = decode(&bytes[..length], "x", &manifest).unwrap_err();
        assert!(matches!(error, WeightsError::Format { .. }), "{length}: {error}");
    }
    assert!(decode(&[&bytes[..], b"x"].concat(), "x", &manifest).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn damage_is_an_error_or_changes_only_values(
        changes in prop::collection::vec((0_usize..12_000, any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        static FILE: OnceLock<(Manifest, Vec<u8>)> = OnceLock::new();
        let (manifest, bytes) = FILE.get_or_init(|| {
            let manifest = manifest("resnet8");
            let bytes = encode(&manifest, &state(&manifest, 10)).unwrap();
            (manifest, bytes)
        });
        let mut bytes = bytes.clone();
        for (offset, byte) in changes {
            bytes[offset] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(Decoded { buffers, .. }) = decode(&bytes, "x", manifest) {
            for (buffer, values) in buffers {
                let expected = manifest.state[buffer].shape.iter().product::<i64>();
                prop_assert_eq!(values.len() as i64, expected);
                prop_assert!(values.iter().all(|value| value.is_finite()));
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn any_finite_weights_are_read_as_they_were_written(seed: u32) {
        let manifest = manifest("resnet8");
        let before = state(&manifest, seed);
        let decoded = decode(&encode(&manifest, &before).unwrap(), "x", &manifest).unwrap();
        prop_assert!(bits(&applied(decoded, &manifest)) == bits(&before));
    }
}
