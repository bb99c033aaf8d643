"""Exports ResNet training as the StableHLO programs that the Rust trainer runs.

    python export_resnet.py                   write the checked-in artifacts
    python export_resnet.py --check           export again and compare with the checked-in ones
    python export_resnet.py --model resnet50 --size 64 --classes 200 --batch 128 --devices 8 \
        --dtype bfloat16 --out mine/r50       write another artifact

No accelerator is needed. An artifact OUT is three portable StableHLO programs and a manifest:

    OUT.init.mlirbc   (i32 seed) -> state...
    OUT.step.mlirbc   (state..., u8[N,H,W,3], i32[N], f32[4] hyper) -> (state..., f32 loss, i32 correct)
    OUT.eval.mlirbc   (state..., u8[N,H,W,3], i32[N]) -> (i32 correct, i32 top5, i32 valid)
    OUT.json          model, shapes, the state buffers by name, sha256 of the programs

N is batch x devices: the number of images of all devices of the job. Loss and counts are over all N images,
too. `hyper` is learning rate, weight decay, label smoothing, momentum. `step` donates the state, so it is
updated in place. In `eval`, label -1 marks padding, which no count includes. `top5` is the number of samples
whose class is among the five with the highest logits (or among all classes, if there are fewer).

resnet18, 34, 50, 101 and 152 at 128 pixels and more are torchvision's networks of these names: the same
weights give the same logits. For smaller images, the first convolution is 3x3 without stride, and there is no
max pooling.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

MAX_DEVICES = 64
os.environ["JAX_PLATFORMS"] = "cpu"
# Lowering for n devices needs n devices. CPU devices cost nothing.
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={MAX_DEVICES}"

import flax.linen as nn  # noqa: E402
import jax  # noqa: E402
import jax.export  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

# Otherwise the artifact contains source paths of the machine that exported it.
jax.config.update("jax_traceback_in_locations_limit", 0)

ARTIFACTS = Path(__file__).resolve().parent.parent / "artifacts"

# Mean and standard deviation of ImageNet's channels, for pixels from 0 to 1, as in torchvision's weights.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

# Changes when the programs' arguments or results change, or when a model's name means another network. The
# trainer's `src/artifact/format.rs` has the same number.
FORMAT = 2


@dataclass(frozen=True)
class Config:
    """The options of one artifact. Shapes are static, so each combination is an artifact of its own."""

    model: str
    classes: int = 10
    size: int = 32
    batch: int = 64  # images per device
    devices: int = 1
    dtype: str = "float32"  # of the activations; parameters are always float32

    @property
    def name(self):
        """MODEL[-SIZE][-bf16][-xDEVICES]; the defaults are 32x32 pixels, float32 and one device."""
        parts = [self.model]
        parts += [str(self.size)] if self.size != 32 else []
        parts += ["bf16"] if self.dtype == "bfloat16" else []
        parts += [f"x{self.devices}"] if self.devices > 1 else []
        return "-".join(parts)


BF16 = "bfloat16"
# The trainer's `src/artifact/built_in.rs` lists the same names.
CHECKED_IN = [
    Config("resnet8", batch=64),
    Config("resnet8", batch=8, devices=8),
    Config("resnet8", batch=8, devices=8, dtype=BF16),
    Config("resnet20", batch=128),
    Config("resnet18", batch=128),
    Config("resnet18", batch=128, devices=8, dtype=BF16),
    Config("resnet50", batch=128, devices=8, dtype=BF16),
    Config("resnet50", batch=128, devices=16, dtype=BF16),
    Config("resnet50", batch=128, devices=32, dtype=BF16),
    Config("resnet50", size=224, classes=1000, batch=32),
    Config("resnet50", size=224, classes=1000, batch=128, dtype=BF16),
    Config("resnet50", size=224, classes=1000, batch=128, devices=8, dtype=BF16),
    Config("resnet50", size=224, classes=1000, batch=128, devices=16, dtype=BF16),
    Config("resnet50", size=224, classes=1000, batch=128, devices=32, dtype=BF16),
]

MODELS = {
    "resnet8": dict(stages=(1, 1, 1), width=16),
    "resnet20": dict(stages=(3, 3, 3), width=16),
    "resnet18": dict(stages=(2, 2, 2, 2), width=64),
    "resnet34": dict(stages=(3, 4, 6, 3), width=64),
    "resnet50": dict(stages=(3, 4, 6, 3), width=64, bottleneck=True),
    "resnet101": dict(stages=(3, 4, 23, 3), width=64, bottleneck=True),
    "resnet152": dict(stages=(3, 8, 36, 3), width=64, bottleneck=True),
}

# Numbers of parameters of torchvision's models with 1000 classes, from its documentation.
TORCHVISION = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
}


def conv(width, kernel, stride=1, **options):
    """A convolution padded as in PyTorch, by half a kernel on each side. "SAME" with a stride pads one side
    less."""
    half = kernel // 2
    padding = ((half, half), (half, half))
    return nn.Conv(width, (kernel, kernel), (stride, stride), padding, use_bias=False, **options)


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1."""

    width: int
    stride: int
    bottleneck: bool
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, train):
        convolve = partial(conv, dtype=self.dtype)
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9, dtype=self.dtype)
        out = self.width * (4 if self.bottleneck else 1)
        y = x
        if self.bottleneck:
            y = nn.relu(norm()(convolve(self.width, 1)(y)))
        y = nn.relu(norm()(convolve(self.width, 3, self.stride)(y)))
        y = norm()(convolve(out, 1 if self.bottleneck else 3)(y))
        if x.shape != y.shape:
            x = norm()(convolve(out, 1, self.stride)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    stages: tuple
    width: int
    classes: int
    dtype: jnp.dtype
    bottleneck: bool = False

    @nn.compact
    def __call__(self, x, train):
        large = x.shape[1] >= 128
        kernel, stride = (7, 2) if large else (3, 1)
        x = conv(self.width, kernel, stride, dtype=self.dtype)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9, dtype=self.dtype)(x))
        if large:
            x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for i, blocks in enumerate(self.stages):
            for j in range(blocks):
                stride = 2 if i > 0 and j == 0 else 1
                x = Block(self.width * 2**i, stride, self.bottleneck, self.dtype)(x, train)
        return nn.Dense(self.classes)(x.mean((1, 2)).astype(jnp.float32))


def network(cfg):
    """The network, whose input is images from `normalise`."""
    return ResNet(**MODELS[cfg.model], classes=cfg.classes, dtype=jnp.dtype(cfg.dtype))


def normalise(x, dtype):
    """Turns images with values from 0 to 255 into the input of the network."""
    mean, std = 255 * np.array(MEAN, np.float32), 255 * np.array(STD, np.float32)
    return ((x.astype(jnp.float32) - mean) / std).astype(dtype)


def programs(cfg):
    """Returns the shapes of the state, and the three jitted functions with the shapes of their arguments."""
    dtype = jnp.dtype(cfg.dtype)
    net = network(cfg)
    momentum = partial(optax.trace, nesterov=True)

    def init(seed):
        # All He-normal kernels are parts of one draw: a generator for each layer makes a far larger program.
        example = jnp.zeros((1, cfg.size, cfg.size, 3))
        shapes = jax.eval_shape(lambda: net.init(jax.random.key(0), example, train=False))
        sizes = [int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes) if leaf.ndim > 1]
        draw = jax.random.normal(jax.random.key(seed, impl="unsafe_rbg"), (sum(sizes),))
        pieces = iter(jnp.split(draw, np.cumsum(sizes)[:-1]))

        def leaf(path, like):
            if like.ndim > 1:
                return next(pieces).reshape(like.shape) * np.float32(np.sqrt(2 / np.prod(like.shape[:-1])))
            if path[-1].key == "var":
                return jnp.ones(like.shape)
            if path[-1].key == "scale":
                return jnp.full(like.shape, 0.0 if ends_bottleneck(path) else 1.0)
            return jnp.zeros(like.shape)

        variables = jax.tree_util.tree_map_with_path(leaf, shapes)
        params = variables["params"]
        return {"params": params, "opt": momentum(0.0).init(params), "stats": variables["batch_stats"]}

    def ends_bottleneck(path):
        # With a zero scale, a block starts as the identity. That helps deep networks, and slows small ones
        # down.
        last = any(p.key.startswith("Block_") for p in path) and path[-2].key == "BatchNorm_2"
        return last and MODELS[cfg.model].get("bottleneck", False)

    def step(state, x, y, hyper):
        lr, decay, smoothing, trace = hyper

        def loss_fn(params):
            variables = {"params": params, "batch_stats": state["stats"]}
            logits, new = net.apply(variables, normalise(x, dtype), train=True, mutable=["batch_stats"])
            target = optax.smooth_labels(jax.nn.one_hot(y, cfg.classes), smoothing)
            return optax.softmax_cross_entropy(logits, target).mean(), (logits, new["batch_stats"])

        (loss, (logits, stats)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state["params"])
        # Weight decay excludes biases and the parameters of batch norm.
        grads = jax.tree.map(lambda g, p: g + decay * p if p.ndim > 1 else g, grads, state["params"])
        updates, opt = momentum(trace).update(grads, state["opt"])
        params = jax.tree.map(lambda p, u: p - lr * u, state["params"], updates)
        return {"params": params, "opt": opt, "stats": stats}, loss, within(1, logits, y)

    def evaluate(state, x, y):
        variables = {"params": state["params"], "batch_stats": state["stats"]}
        logits = net.apply(variables, normalise(x, dtype), train=False)
        return within(1, logits, y), within(5, logits, y), (y >= 0).sum(dtype=jnp.int32)

    def within(k, logits, y):
        # Number of samples whose class is among the k highest logits. Of equal logits, the first counts as
        # higher. The code compares logits, since StableHLO has no operation for top_k.
        own = jnp.take_along_axis(logits, jnp.maximum(y, 0)[:, None], axis=-1)
        first = jnp.arange(cfg.classes) < y[:, None]
        above = ((logits > own) | (logits == own) & first).sum(-1)
        # Label -1 marks padding. No logit is above NaN, so a NaN must be excluded.
        return ((above < k) & (y >= 0) & ~jnp.isnan(own[:, 0])).sum(dtype=jnp.int32)

    n = cfg.batch * cfg.devices
    scalar = partial(jax.ShapeDtypeStruct, ())
    state = jax.eval_shape(init, scalar(jnp.int32))
    x = jax.ShapeDtypeStruct((n, cfg.size, cfg.size, 3), jnp.uint8)
    y = jax.ShapeDtypeStruct((n,), jnp.int32)
    # Unused arguments (the optimizer's in `eval`) are kept, so that all programs have the same state.
    jit = partial(jax.jit, keep_unused=True)
    step_jit, eval_jit = partial(jit, donate_argnums=0), jit
    if cfg.devices > 1:
        # Data parallel: the batch is split and the state replicated. XLA inserts the all-reduces.
        mesh = Mesh(np.array(jax.devices()[: cfg.devices]), ("data",))
        whole = NamedSharding(mesh, PartitionSpec())
        split = NamedSharding(mesh, PartitionSpec("data"))
        step_jit = partial(step_jit, in_shardings=(whole, split, split, whole), out_shardings=whole)
        eval_jit = partial(eval_jit, in_shardings=(whole, split, split), out_shardings=whole)
    return state, {
        "init": (jit(init), (scalar(jnp.int32),)),
        "step": (step_jit(step), (state, x, y, jax.ShapeDtypeStruct((4,), jnp.float32))),
        "eval": (eval_jit(evaluate), (state, x, y)),
    }


def export(cfg, out):
    """Writes the programs and the manifest of `cfg`, and returns their paths."""
    out.parent.mkdir(parents=True, exist_ok=True)
    state, functions = programs(cfg)
    written, digests = [], {}
    for name, (function, arguments) in functions.items():
        # The platform is only recorded: the programs have nothing specific to TPU.
        code = jax.export.export(function, platforms=["tpu"])(*arguments).mlir_module_serialized
        digests[name] = hashlib.sha256(code).hexdigest()
        written.append(out.with_name(f"{out.name}.{name}.mlirbc"))
        written[-1].write_bytes(code)
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    assert all(leaf.dtype == jnp.float32 for _, leaf in leaves), "the trainer expects a float32 state"
    buffers = [
        {"name": jax.tree_util.keystr(path, simple=True, separator="."), "shape": leaf.shape}
        for path, leaf in leaves
    ]
    head = {
        "format": FORMAT,
        "model": cfg.model,
        "stages": MODELS[cfg.model]["stages"],
        "classes": cfg.classes,
        "size": cfg.size,
        "batch": cfg.batch,
        "devices": cfg.devices,
        "dtype": cfg.dtype,
        "mean": MEAN,
        "std": STD,
        "sha256": digests,
    }
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}," for k, v in head.items()]
    rows = ",\n".join(f"    {json.dumps(b)}" for b in buffers)
    written.append(out.with_name(f"{out.name}.json"))
    written[-1].write_text("{\n" + "\n".join(lines) + '\n  "state": [\n' + rows + "\n  ]\n}\n")
    return written


def parameters(state):
    """Number of parameters of the network, without its batch statistics."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(state["params"]))


def check_parameters():
    """Exports the models that are not checked in. Returns True if all models have as many parameters as
    torchvision's."""
    same = True
    with tempfile.TemporaryDirectory() as tmp:
        for model, expected in TORCHVISION.items():
            cfg = Config(model, size=224, classes=1000, batch=2)
            got = parameters(programs(cfg)[0])
            if got != expected:
                print(f"{model}: {got} parameters, but {expected} in torchvision", file=sys.stderr)
                same = False
            if model not in {checked_in.model for checked_in in CHECKED_IN}:
                paths = export(cfg, Path(tmp) / cfg.name)
                print(f"{cfg.name}: {got} parameters, {sum(path.stat().st_size for path in paths)} bytes", flush=True)
    return same


def check():
    """Exports the checked-in artifacts again. Returns True if every byte is the same."""
    same = check_parameters()
    with tempfile.TemporaryDirectory() as tmp:
        for path in export_all(Path(tmp)):
            old = ARTIFACTS / path.name
            if not old.exists() or old.read_bytes() != path.read_bytes():
                print(f"{path.name}: differs from the checked-in file", file=sys.stderr)
                same = False
    known = {cfg.name for cfg in CHECKED_IN}
    for path in sorted(ARTIFACTS.iterdir()):
        if path.name.split(".")[0] not in known:
            print(f"{path.name}: belongs to no artifact of this script", file=sys.stderr)
            same = False
    return same


def export_all(folder):
    """Writes all checked-in artifacts into a folder, prints their sizes, and returns the paths."""
    written, start = [], time.monotonic()
    for number, cfg in enumerate(CHECKED_IN, 1):
        before = time.monotonic()
        paths = export(cfg, folder / cfg.name)
        size = sum(path.stat().st_size for path in paths)
        duration = time.monotonic() - before
        print(f"{number:2} of {len(CHECKED_IN)}  {cfg.name:24} {size:7} bytes {duration:5.1f} s", flush=True)
        written += paths
    size = sum(path.stat().st_size for path in written)
    print(f"{len(CHECKED_IN)} artifacts, {size} bytes, {time.monotonic() - start:.1f} s")
    return written


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true", help="compare with the artifacts that are checked in")
    p.add_argument("--out", type=Path, help="write one artifact, described by the options below")
    p.add_argument("--model", default="resnet18", choices=MODELS)
    p.add_argument("--classes", type=int, default=10)
    p.add_argument("--size", type=int, default=32, help="height and width of the images")
    p.add_argument("--batch", type=int, default=64, help="images per device")
    p.add_argument("--devices", type=int, default=1, choices=range(1, MAX_DEVICES + 1), metavar="N")
    p.add_argument("--dtype", default="float32", choices=["float32", BF16])
    a = p.parse_args()
    if a.check:
        same = check()
        print("no differences" if same else "there are differences")
        sys.exit(0 if same else 1)
    elif a.out:
        for path in export(Config(a.model, a.classes, a.size, a.batch, a.devices, a.dtype), a.out):
            print(f"{path.name}: {path.stat().st_size} bytes")
    else:
        export_all(ARTIFACTS)


if __name__ == "__main__":
    main()
