"""Training in PyTorch on the CPU."""

import io

import numpy as np
import pytest
from conftest import numbers

torch = pytest.importorskip("torch", reason="needs torch")

from torch.utils.data import DataLoader  # noqa: E402

import shardstream  # noqa: E402
from shardstream.torch import StreamDataset, torch_batch  # noqa: E402


def dataset(shards, **options):
    image = shardstream.Image(
        16, transforms=[shardstream.RandomCrop(16, padding=1)], layout="chw", dtype=torch.float32
    )
    columns = {"image": image, "label": "cls"}
    return StreamDataset(
        shards, columns=columns, batch=32, shuffle=100, last_batch="drop", index=True, **options
    )


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4))


def train(net, batches, losses, steps=None):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(batches, 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number == steps:
            break


def test_a_small_model_learns_from_a_data_loader(pictures):
    data, net, losses = dataset(pictures), model(), []
    loader = DataLoader(data, batch_size=None, num_workers=0)
    for _ in range(4):
        train(net, loader, losses)
    assert len(loader) == 16 and len(losses) == 64
    with torch.no_grad():
        right = [
            (net(batch["image"]).argmax(1) == batch["label"]).float().mean().item()
            for batch in dataset(pictures)
        ]
    assert np.mean(right) > 0.95
    assert data.report()["batches"] == 16


def test_a_resumed_training_has_the_same_losses(pictures):
    firsts = []
    for _ in range(2):
        train(model(), DataLoader(dataset(pictures), batch_size=None), firsts)
    assert firsts[:16] == firsts[16:], "a new dataset begins with the first epoch"

    whole, net, data = [], model(), dataset(pictures, epochs=2)
    train(net, DataLoader(data, batch_size=None), whole)
    halves, net, data = [], model(), dataset(pictures, epochs=2)
    train(net, DataLoader(data, batch_size=None), halves, 19)
    saved = io.BytesIO()
    torch.save({"model": net.state_dict(), "data": data.state_dict()}, saved)
    saved.seek(0)
    saved = torch.load(saved)
    net, data = model(), dataset(pictures, epochs=2)
    net.load_state_dict(saved["model"])
    data.load_state_dict(saved["data"])
    train(net, DataLoader(data, batch_size=None), halves)
    assert halves == whole


def test_tensors_share_the_memory(shards):
    batch = next(
        iter(shardstream.Loader(shards, {"label": "cls", "b": shardstream.Scalar("cls", torch.bfloat16)}, 8))
    )
    tensors = torch_batch(batch)
    assert tensors["label"].data_ptr() == batch["label"].numpy().__array_interface__["data"][0]
    assert tensors["b"].dtype == torch.bfloat16 and tensors["b"].tolist() == list(range(8))
    tensors["label"] += 1
    assert numbers(batch) == list(range(1, 9))


def test_worker_processes_are_refused(shards):
    data = StreamDataset(shards, columns={"label": "cls"}, batch=8)
    with pytest.raises((shardstream.Error, RuntimeError), match="num_workers=0|spawn"):
        next(iter(DataLoader(data, batch_size=None, num_workers=1)))


def test_the_iterator_is_stateful(pictures):
    batches = iter(dataset(pictures))
    for _ in range(3):
        next(batches)
    state, expected = batches.state_dict(), next(batches)
    other = iter(dataset(pictures))
    other.load_state_dict(state)
    assert torch.equal(next(other)["image"], expected["image"])
