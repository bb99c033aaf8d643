"""Computes the logits of images in one of several ways, which `tests/trainer/weights.rs` compares.

    python logits.py REQUEST.json

A request names two files of float32 numbers: `images` (N x 3 x SIZE x SIZE, normalised), and `logits` (N x
CLASSES), which is written. Its `by` is one of these:

    exporter      the JAX network of the exporter, with each of the states that the file `state` holds, one after
                  the other, in the order of the manifest
    names         the same network, built independently from the tensor names of the safetensors file `weights`, in
                  PyTorch's layouts of images and kernels; needs JAX, not PyTorch
    torchvision   torchvision's network `model`, with the safetensors file `weights`, loaded strictly
    random        torchvision's network `model` with random weights and statistics, which are written to `weights`

The last two need torch, torchvision and safetensors, and also compare torchvision's names with
`torchvision.txt`.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def exporter(request, images):
    sys.path.insert(0, str(HERE.parent.parent.parent / "export"))
    import jax
    from export_resnet import Config, network, programs

    cfg = Config(request["model"], request["classes"], request["size"], batch=len(images))
    initial = programs(cfg)[0]
    leaves, shape = jax.tree.flatten(initial)
    ends = np.cumsum([leaf.size for leaf in leaves])
    net = network(cfg)
    forward = jax.jit(lambda variables, x: net.apply(variables, x, train=False))

    def logits(values):
        pieces = zip(np.split(values, ends[:-1]), leaves, strict=True)
        state = jax.tree.unflatten(shape, [piece.reshape(leaf.shape) for piece, leaf in pieces])
        return forward({"params": state["params"], "batch_stats": state["stats"]}, images.transpose(0, 2, 3, 1))

    states = np.fromfile(request["state"], "<f4").reshape(-1, ends[-1])
    return np.concatenate([logits(values) for values in states])


def read(path):
    """The tensors of a safetensors file of float32, without the package of that name."""
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    types = {"F32": "<f4", "I64": "<i8"}
    return {
        name: np.frombuffer(data[8 + size :][slice(*info["data_offsets"])], types[info["dtype"]]).reshape(info["shape"])
        for name, info in header.items()
    }


def names(request, images):
    import jax
    import jax.numpy as jnp

    weights = read(request["weights"])

    def conv(x, name, stride=1):
        kernel = weights[name + ".weight"]
        half = kernel.shape[-1] // 2
        padding, layout = ((half, half), (half, half)), ("NCHW", "OIHW", "NCHW")
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=layout)

    def norm(x, name):
        scale, bias, mean, var = (
            weights[f"{name}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / np.sqrt(var + 1e-5) * scale + bias

    def block(x, name, stride):
        bottleneck = name + ".conv3.weight" in weights
        y = jax.nn.relu(norm(conv(x, name + ".conv1", 1 if bottleneck else stride), name + ".bn1"))
        y = norm(conv(y, name + ".conv2", stride if bottleneck else 1), name + ".bn2")
        if bottleneck:
            y = norm(conv(jax.nn.relu(y), name + ".conv3"), name + ".bn3")
        if name + ".downsample.0.weight" in weights:
            x = norm(conv(x, name + ".downsample.0", stride), name + ".downsample.1")
        return jax.nn.relu(x + y)

    def forward(x):
        large = weights["conv1.weight"].shape[-1] == 7
        x = jax.nn.relu(norm(conv(x, "conv1", 2 if large else 1), "bn1"))
        if large:
            window_padding = ((0, 0), (0, 0), (1, 1), (1, 1))
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), window_padding)
        for stage in range(1, 5):
            for number in range(64):
                name = f"layer{stage}.{number}"
                if name + ".conv1.weight" in weights:
                    x = block(x, name, 2 if stage > 1 and number == 0 else 1)
        return x.mean((2, 3)) @ weights["fc.weight"].T + weights["fc.bias"]

    return jax.jit(forward)(images)


def torchvision(request, images):
    import torch
    from safetensors.torch import load_file, save_file
    from torchvision import models

    model = getattr(models, request["model"])(num_classes=request["classes"]).eval()
    state = model.state_dict()
    lines = (HERE / "torchvision.txt").read_text().splitlines()
    shapes = sorted(f"{request['model']} {name} {list(tensor.shape)}" for name, tensor in state.items())
    assert shapes == [line for line in lines if line.startswith(request["model"] + " ")], "torchvision.txt is not current"
    if request["by"] == "random":
        generator = torch.Generator().manual_seed(7)
        for name, tensor in state.items():
            if tensor.ndim == 1:
                # Variances must be positive.
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
        save_file(state, request["weights"])
    else:
        weights = load_file(request["weights"])
        assert weights.keys() == state.keys(), weights.keys() ^ state.keys()
        model.load_state_dict(weights, strict=True)
    with torch.no_grad():
        return model(torch.from_numpy(images)).numpy()


def main():
    with open(sys.argv[1]) as file:
        request = json.load(file)
    size = request["size"]
    images = np.fromfile(request["images"], "<f4").reshape(-1, 3, size, size)
    by = {"exporter": exporter, "names": names}.get(request["by"], torchvision)
    np.asarray(by(request, images), "<f4").tofile(request["logits"])


if __name__ == "__main__":
    main()
