//! A small ResNet: three residual blocks.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// A 3x3 or 1x1 convolution, followed by a batch normalisation.
#[derive(Module, Debug)]
struct Conv {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Conv {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Self {
        let pad = kernel / 2;
        let conv = Conv2dConfig::new(channels, [kernel, kernel])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
            .with_bias(false);
        Conv { conv: conv.init(device), norm: BatchNormConfig::new(channels[1]).init(device) }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// Two convolutions with a shortcut around them.
#[derive(Module, Debug)]
struct Block {
    first: Conv,
    second: Conv,
    shortcut: Conv,
}

impl Block {
    fn new(channels: [usize; 2], device: &Device) -> Self {
        Block {
            first: Conv::new(channels, 3, 2, device),
            second: Conv::new([channels[1]; 2], 3, 1, device),
            shortcut: Conv::new(channels, 1, 2, device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let shortcut = self.shortcut.forward(x.clone());
        relu(self.second.forward(relu(self.first.forward(x))) + shortcut)
    }
}

/// The network: a convolution, three residual blocks and a linear layer, eight layers deep.
#[derive(Module, Debug)]
pub struct ResNet {
    stem: Conv,
    blocks: Vec<Block>,
    head: Linear,
}

impl ResNet {
    /// A network with random weights.
    pub fn new(classes: usize, device: &Device) -> Self {
        ResNet {
            stem: Conv::new([3, 16], 3, 1, device),
            blocks: [[16, 16], [16, 32], [32, 64]].map(|channels| Block::new(channels, device)).into(),
            head: LinearConfig::new(64, classes).init(device),
        }
    }

    /// Returns logits as (N, classes) for images as (N, RGB, height, width).
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.stem.forward(images));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.head.forward(x.mean_dim(3).mean_dim(2).flatten(1, 3))
    }
}
