"""Training in JAX on the CPU."""

import itertools
import os
import struct

import numpy as np
import pytest
from conftest import write_shards

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import shardstream  # noqa: E402
from shardstream.jax import DeviceBatches, global_batch  # noqa: E402


@pytest.fixture
def sharding():
    return NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))


def image_loader(shards, **options):
    columns = {
        "image": shardstream.Image(16, transforms=[shardstream.RandomCrop(16, padding=1)], dtype="float32"),
        "label": shardstream.Scalar("cls", "int32"),
    }
    return shardstream.Loader(shards, columns, 32, shuffle=100, last_batch="drop", index=True, **options)


@jax.jit
def step(weights, images, labels):
    def loss(weights):
        logits = images.reshape(len(images), -1) @ weights
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


def accuracy(weights, shards):
    right = [
        (batch["image"].numpy().reshape(32, -1) @ np.asarray(weights)).argmax(1) == batch["label"].numpy()
        for batch in image_loader(shards, seed=99)
    ]
    return np.mean(right)


def test_a_small_model_learns_from_shards_on_four_devices(pictures, sharding):
    loader, weights = image_loader(pictures), jnp.zeros((768, 4))
    losses = []
    for _ in range(4):
        for batch in DeviceBatches(loader, sharding):
            assert len(batch["image"].sharding.device_set) == len(jax.devices())
            weights, loss = step(weights, batch["image"], batch["label"])
            losses.append(float(loss))
    assert len(losses) == 64 and losses[-1] < losses[0] / 2
    assert accuracy(weights, pictures) > 0.95


def test_a_resumed_training_has_the_same_losses(pictures, sharding):
    def train(batches, weights, losses, steps):
        for _, batch in zip(range(steps), batches):
            weights, loss = step(weights, batch["image"], batch["label"])
            losses.append(float(loss))
        return weights

    whole = []
    train(DeviceBatches(image_loader(pictures, epochs=None), sharding), jnp.zeros((768, 4)), whole, 40)
    halves, batches = [], DeviceBatches(image_loader(pictures, epochs=None), sharding, depth=3)
    weights = train(batches, jnp.zeros((768, 4)), halves, 17)
    state = batches.get_state()
    loader = image_loader(pictures, epochs=None)
    loader.set_state(state)
    train(DeviceBatches(loader, sharding), weights, halves, 23)
    assert halves == whole
    batches.set_state(state)
    assert np.array_equal(next(batches)["label"], next(iter_after(pictures, state))["label"].numpy())


def test_a_batch_that_cannot_be_transferred_is_not_lost(labels, sharding, monkeypatch):
    batches, seen = DeviceBatches(labels(), sharding), []
    make, calls, failures = jax.make_array_from_process_local_data, itertools.count(), 0

    def sometimes(*args):
        if next(calls) in (3, 4, 9):
            raise RuntimeError("out of memory")
        return make(*args)

    monkeypatch.setattr(jax, "make_array_from_process_local_data", sometimes)
    while len(seen) < 32:
        try:
            seen.append(next(batches)["label"].tolist())
        except RuntimeError:
            failures += 1
    assert failures == 3 and sum(seen, []) == list(range(256))
    assert next(batches, None) is None


def test_a_last_batch_that_the_devices_cannot_divide_fails_after_the_others(tmp_path, sharding):
    shards = write_shards(tmp_path, ({"cls": b"%d" % n} for n in range(50)))
    batches, seen = DeviceBatches(shardstream.Loader(shards, {"label": "cls"}, 20), sharding), []
    with pytest.raises(ValueError, match="divi"):
        for batch in batches:
            seen += batch["label"].tolist()
    assert seen == list(range(40))


def test_orbax_saves_a_state_and_restores_it(pictures, tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    loader = image_loader(pictures)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        manager.save(3, args=ocp.args.Composite(data=ocp.args.JsonSave(loader.state_dict())))
        manager.wait_until_finished()
        restored = manager.restore(3, args=ocp.args.Composite(data=ocp.args.JsonRestore()))
    again = image_loader(pictures)
    again.load_state_dict(restored["data"])
    assert np.array_equal(next(iter(again))["image"].numpy(), next(batches)["image"].numpy())


def iter_after(pictures, state):
    loader = image_loader(pictures, epochs=None)
    loader.set_state(state)
    return iter(loader)


def test_arrays_of_jax_keep_their_values_when_the_loader_continues(pictures, sharding):
    loader = image_loader(pictures, epochs=None, prefetch=1, threads=1)
    batches = iter(loader)
    expected = [
        batch["image"].numpy().copy()
        for batch, _ in zip(iter(image_loader(pictures, epochs=None)), range(30))
    ]
    arrays = [global_batch(next(batches), sharding)["image"] for _ in range(30)]
    assert all(np.array_equal(array, pixels) for array, pixels in zip(arrays, expected))


def test_jax_reads_tensors_by_dlpack_and_bfloat16_too(tmp_path):
    shards = write_shards(tmp_path, ({"bin": struct.pack("<4f", *range(n, n + 4))} for n in range(8)))
    loader = shardstream.Loader(shards, {"x": shardstream.Array("bin", jnp.float32, [4], raw=True)}, 8)
    batch = next(iter(loader))
    array = jax.dlpack.from_dlpack(batch["x"])
    assert array.shape == (8, 4) and float(array.sum()) == sum(range(8)) * 4 + 8 * 6
    labels = write_shards(tmp_path, ({"cls": b"%d" % n} for n in range(8)))
    batch = next(iter(shardstream.Loader(labels, {"x": shardstream.Scalar("cls", jnp.bfloat16)}, 8)))
    assert jax.dlpack.from_dlpack(batch["x"]).dtype == jnp.bfloat16
    assert jnp.asarray(batch["x"].numpy()).sum() == 28


def test_a_batch_is_a_jax_tree(pictures):
    batch = next(iter(image_loader(pictures)))
    shapes = jax.tree.map(
        lambda tensor: tensor.shape, shardstream.numpy_batch(batch), is_leaf=lambda x: hasattr(x, "shape")
    )
    assert shapes == {"image": (32, 16, 16, 3), "label": (32,)}
