//! Encodes and decodes safetensors files.

use super::error::WeightsError;
use super::names::{self, Tensor};
use crate::artifact::Manifest;
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use serde_json::Value;
use shardstream::SecretUrl;
use std::collections::BTreeMap;

/// Number of differences that an error lists.
const LISTED: usize = 5;

/// Torchvision's names of the last layer.
const HEAD: [&str; 2] = ["fc.weight", "fc.bias"];

/// PyTorch's counter of batches, a tensor of each batch norm. Networks do not use its value.
const COUNTER: &str = "num_batches_tracked";

/// The decoded weights of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// For each buffer in the file, its index in the manifest, and its values in the program's order.
    pub buffers: Vec<(usize, Vec<f32>)>,
    /// Why the file's last layer is not used; `None` if the layer is used.
    pub head: Option<String>,
}

/// Encodes the weights of a state. The same weights always give the same bytes.
pub fn encode(manifest: &Manifest, state: &[Vec<f32>]) -> Result<Vec<u8>, WeightsError> {
    let tensors = names::tensors(manifest)?;
    if state.len() != manifest.state.len() {
        let what = format!("it has {} buffers, not {}", state.len(), manifest.state.len());
        return Err(WeightsError::State(what));
    }
    let mut contents = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let values = &state[tensor.buffer];
        if values.len() != tensor.len() {
            let what = format!("{} has {} values, not {}", tensor.name, values.len(), tensor.len());
            return Err(WeightsError::State(what));
        }
        check_finite(tensor, values, None)?;
        let mut bytes = Vec::with_capacity(4 * values.len());
        tensor.file_order(values).iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        contents.push((tensor.name.clone(), Dtype::F32, tensor.shape.clone(), bytes));
        if let Some(norm) = tensor.name.strip_suffix("running_var") {
            // Torchvision's files have the counter, so this file has it too.
            contents.push((format!("{norm}{COUNTER}"), Dtype::I64, vec![], vec![0; 8]));
        }
    }
    let mut views = Vec::with_capacity(contents.len());
    for (name, dtype, shape, bytes) in &contents {
        views.push((name, TensorView::new(*dtype, shape.clone(), bytes).map_err(WeightsError::Encode)?));
    }
    let metadata = metadata(manifest).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut bytes = serialize(views, Some(metadata)).map_err(WeightsError::Encode)?;
    sort_header(&mut bytes);
    Ok(bytes)
}

/// The metadata of a file: the network, and the normalisation of its images.
fn metadata(manifest: &Manifest) -> [(&'static str, String); 7] {
    let Manifest { model, classes, size, mean, std, .. } = manifest;
    [
        // Python's safetensors requires this entry.
        ("format", "pt".into()),
        ("model", model.clone()),
        ("classes", classes.to_string()),
        ("image_size", size.to_string()),
        ("mean", format!("{mean:?}")),
        ("std", format!("{std:?}")),
        ("shardstream", env!("CARGO_PKG_VERSION").into()),
    ]
}

/// Sorts the header by names, since the crate `safetensors` writes metadata in the random order of a hash
/// map.
fn sort_header(bytes: &mut [u8]) {
    type Header = BTreeMap<String, BTreeMap<String, Value>>;
    let Some((size, rest)) = bytes.split_first_chunk_mut::<8>() else { return };
    let size = usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX);
    let Some(header) = rest.get_mut(..size) else { return };
    let parsed = serde_json::from_slice::<Header>(header);
    let Ok(sorted) = parsed.and_then(|parsed| serde_json::to_vec(&parsed)) else { return };
    // The sorted header has the same length, except for the padding at the end.
    let Some((text, padding)) = header.split_at_mut_checked(sorted.len()) else { return };
    text.copy_from_slice(&sorted);
    padding.fill(b' ');
}

/// Decodes the file `bytes`, which was read from `url`, for this network. The tensors are float32, float64,
/// float16 or bfloat16.
///
/// The last layer may be missing or have another number of classes; the last layer is then ignored, for
/// fine-tuning on other classes. All other tensors must fit.
pub fn decode(bytes: &[u8], url: &str, manifest: &Manifest) -> Result<Decoded, WeightsError> {
    let tensors = names::tensors(manifest)?;
    let file = SafeTensors::deserialize(bytes).map_err(|source| {
        // torch.save writes a zip archive, or a pickle in older versions.
        let is_pytorch = bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"\x80\x02");
        WeightsError::Format { url: url.into(), is_pytorch, source }
    })?;
    let present: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
    let head = other_head(&present, &tensors);
    let is_needed = |tensor: &&Tensor| head.is_none() || !HEAD.contains(&tensor.name.as_str());
    let needed: Vec<&Tensor> = tensors.iter().filter(is_needed).collect();

    let mut differences: Vec<String> =
        needed.iter().filter_map(|tensor| difference(tensor, present.get(tensor.name.as_str()))).collect();
    let is_known = |name: &str| name.ends_with(COUNTER) || tensors.iter().any(|tensor| tensor.name == name);
    let others = present.keys().filter(|name| !is_known(name));
    differences.extend(others.map(|name| format!("the network has no {name}")));
    if !differences.is_empty() {
        let count = differences.len();
        differences.truncate(LISTED);
        return Err(WeightsError::Mismatch {
            url: url.into(),
            model: manifest.model.clone(),
            differences,
            count,
        });
    }

    let url = SecretUrl::from(url);
    let mut buffers = Vec::with_capacity(needed.len());
    for tensor in needed {
        let values = present.get(tensor.name.as_str()).and_then(floats).unwrap_or_default();
        check_finite(tensor, &values, Some(&url))?;
        buffers.push((tensor.buffer, tensor.program_order(values)));
    }
    Ok(Decoded { buffers, head })
}

/// Why the last layer of the file cannot be used: it is missing, or has another number of classes. `None` if
/// it can be used.
fn other_head(file: &BTreeMap<&str, TensorView<'_>>, tensors: &[Tensor]) -> Option<String> {
    let ours = tensors.iter().find(|tensor| tensor.name == HEAD[0])?;
    let [classes, features] = ours.shape[..] else { return None };
    match HEAD.map(|name| file.get(name)) {
        [None, None] => Some("the file has none".into()),
        [Some(weight), Some(bias)] => match (weight.shape(), bias.shape()) {
            (&[outputs, inputs], &[biases])
                if outputs == biases && inputs == features && outputs != classes =>
            {
                Some(format!("that of the file has {outputs} classes, and the network has {classes}"))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Why a tensor of the file does not fit the network; `None` if it fits.
fn difference(ours: &Tensor, theirs: Option<&TensorView<'_>>) -> Option<String> {
    let Tensor { name, shape, .. } = ours;
    let Some(theirs) = theirs else { return Some(format!("it has no {name}")) };
    if theirs.shape() != shape {
        let hint = match (&**name, shape.get(2), theirs.shape().get(2)) {
            ("conv1.weight", Some(3), Some(7)) => {
                " (the first convolution of networks for images of fewer than 128 pixels is 3x3, that of \
                 torchvision's networks 7x7)"
            }
            ("conv1.weight", Some(7), Some(3)) => {
                " (the file is of a network for images of fewer than 128 pixels)"
            }
            _ => "",
        };
        return Some(format!("{name} is {:?}, and the network's is {shape:?}{hint}", theirs.shape()));
    }
    match theirs.dtype() {
        Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::BF16 => None,
        other => Some(format!("{name} is of the type {other}, and not F32, F64, F16 or BF16")),
    }
}

/// The values of a tensor of floats, converted to float32; `None` for a tensor of another type.
fn floats(tensor: &TensorView<'_>) -> Option<Vec<f32>> {
    let data = tensor.data();
    Some(match tensor.dtype() {
        Dtype::F32 => chunks(data, f32::from_le_bytes),
        Dtype::F64 => chunks(data, |bytes| f64::from_le_bytes(bytes) as f32),
        Dtype::F16 => chunks(data, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => chunks(data, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => return None,
    })
}

fn chunks<const N: usize>(data: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    data.chunks_exact(N).filter_map(|chunk| chunk.try_into().ok()).map(value).collect()
}

fn check_finite(tensor: &Tensor, values: &[f32], url: Option<&SecretUrl>) -> Result<(), WeightsError> {
    match values.iter().filter(|value| !value.is_finite()).count() {
        0 => Ok(()),
        values => Err(WeightsError::NotFinite { url: url.cloned(), tensor: tensor.name.clone(), values }),
    }
}
