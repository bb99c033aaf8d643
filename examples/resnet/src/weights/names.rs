//! Maps the buffers of the exported programs to the names and layouts of torchvision's ResNets.
//!
//! The exporter numbers blocks over the whole network, and its kernels are (height, width, inputs, outputs).
//! Torchvision numbers blocks within a stage, and its kernels are (outputs, inputs, height, width).

use super::WeightsError;
use crate::artifact::{Manifest, StateBuffer};

/// A tensor of a file, and the buffer of the state that has the tensor's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    /// Torchvision's name.
    pub(super) name: String,
    /// Torchvision's shape.
    pub(super) shape: Vec<usize>,
    /// Index of the buffer in the manifest.
    pub(super) buffer: usize,
    layout: Layout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A vector, which has the same layout in the program and in the file.
    Same,
    /// A kernel: (positions, inputs, outputs) in the program, (outputs, inputs, positions) in the file.
    Kernel([usize; 3]),
}

impl Tensor {
    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reorders values from the program's layout to the file's.
    pub(super) fn file_order(&self, values: &[f32]) -> Vec<f32> {
        let Layout::Kernel([positions, inputs, outputs]) = self.layout else { return values.to_vec() };
        let mut out = Vec::with_capacity(values.len());
        for output in 0..outputs {
            for input in 0..inputs {
                let index = |position| (position * inputs + input) * outputs + output;
                out.extend((0..positions).map(|position| values[index(position)]));
            }
        }
        out
    }

    /// Reorders values from the file's layout to the program's.
    pub(super) fn program_order(&self, values: Vec<f32>) -> Vec<f32> {
        let Layout::Kernel([positions, inputs, outputs]) = self.layout else { return values };
        let mut out = Vec::with_capacity(values.len());
        for position in 0..positions {
            for input in 0..inputs {
                let index = |output| (output * inputs + input) * positions + position;
                out.extend((0..outputs).map(|output| values[index(output)]));
            }
        }
        out
    }
}

/// The tensors of this network's file, in the order of the manifest. Buffers of the optimizer are not in the
/// file.
pub(super) fn tensors(manifest: &Manifest) -> Result<Vec<Tensor>, WeightsError> {
    let blocks = Blocks::new(manifest);
    let mut tensors = Vec::new();
    for (index, buffer) in manifest.state.iter().enumerate() {
        if is_of_optimizer(buffer) {
            continue;
        }
        let unnamed = || WeightsError::Unnamed { buffer: buffer.name.clone() };
        tensors.push(tensor(index, buffer, &blocks).ok_or_else(unnamed)?);
    }
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(duplicate) => Err(WeightsError::Unnamed { buffer: duplicate[0].into() }),
        None => Ok(tensors),
    }
}

fn is_of_optimizer(buffer: &StateBuffer) -> bool {
    buffer.name.starts_with("opt.")
}

/// The tensor of buffer number `index`; `None` if torchvision has no name for the buffer.
fn tensor(index: usize, buffer: &StateBuffer, blocks: &Blocks) -> Option<Tensor> {
    let dims = buffer.shape.iter().map(|axis| usize::try_from(*axis).ok()).collect::<Option<Vec<_>>>()?;
    // Refuses a shape whose number of values overflows.
    dims.iter().try_fold(1_usize, |product, axis| product.checked_mul(*axis))?;
    let (kind, path) = buffer.name.split_once('.')?;
    let (module_path, leaf) = path.rsplit_once('.')?;
    let module = blocks.module(module_path)?;
    let (parameter, shape, layout) = match (kind, leaf, &dims[..]) {
        ("params", "kernel", &[height, width, inputs, outputs]) => {
            let layout = Layout::Kernel([height * width, inputs, outputs]);
            ("weight", vec![outputs, inputs, height, width], layout)
        }
        ("params", "kernel", &[inputs, outputs]) => {
            ("weight", vec![outputs, inputs], Layout::Kernel([1, inputs, outputs]))
        }
        ("params", "scale", &[_]) => ("weight", dims, Layout::Same),
        ("params", "bias", &[_]) => ("bias", dims, Layout::Same),
        ("stats", "mean", &[_]) => ("running_mean", dims, Layout::Same),
        ("stats", "var", &[_]) => ("running_var", dims, Layout::Same),
        _ => return None,
    };
    Some(Tensor { name: format!("{module}.{parameter}"), shape, buffer: index, layout })
}

/// The structure of a network's blocks.
struct Blocks {
    /// Number of blocks of each stage.
    stages: Vec<usize>,
    /// Number of convolutions of a block, not counting the convolution of the shortcut.
    convolutions: usize,
}

impl Blocks {
    fn new(manifest: &Manifest) -> Self {
        // A bottleneck begins with a 1x1 convolution. The number of a block's convolutions would not
        // distinguish the two kinds of blocks, since a shortcut may have a convolution.
        let first = manifest.state.iter().find(|buffer| buffer.name == "params.Block_0.Conv_0.kernel");
        let is_bottleneck = first.is_some_and(|kernel| kernel.shape.starts_with(&[1, 1]));
        Self { stages: manifest.stages.clone(), convolutions: if is_bottleneck { 3 } else { 2 } }
    }

    /// Torchvision's name of a module. In ResNet-18, the name of `Block_2.Conv_0` is `layer2.0.conv1`.
    fn module(&self, path: &str) -> Option<String> {
        match path {
            "Conv_0" => return Some("conv1".into()),
            "BatchNorm_0" => return Some("bn1".into()),
            "Dense_0" => return Some("fc".into()),
            _ => {}
        }
        let (block, part) = path.split_once('.')?;
        let (stage, block) = self.locate(number(block, "Block_")?)?;
        let part = match (number(part, "Conv_"), number(part, "BatchNorm_")) {
            (Some(conv), _) if conv < self.convolutions => format!("conv{}", conv + 1),
            (Some(conv), _) if conv == self.convolutions => "downsample.0".into(),
            (_, Some(norm)) if norm < self.convolutions => format!("bn{}", norm + 1),
            (_, Some(norm)) if norm == self.convolutions => "downsample.1".into(),
            _ => return None,
        };
        Some(format!("layer{}.{block}.{part}", stage + 1))
    }

    /// The stage of a block, and the block's number within the stage.
    fn locate(&self, mut block: usize) -> Option<(usize, usize)> {
        for (stage, blocks) in self.stages.iter().enumerate() {
            match block.checked_sub(*blocks) {
                None => return Some((stage, block)),
                Some(rest) => block = rest,
            }
        }
        None
    }
}

fn number(text: &str, prefix: &str) -> Option<usize> {
    text.strip_prefix(prefix)?.parse().ok()
}
