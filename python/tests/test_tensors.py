"""Tensors share their memory with arrays, and return it to the loader."""

import contextlib
import ctypes
import gc
import threading
import time
import weakref

import numpy as np
import pytest
from conftest import numbers, write_shards

import shardstream

DTYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]


@pytest.fixture
def batch(shards):
    columns = {name: shardstream.Scalar("cls", name) for name in DTYPES + ["bfloat16"]}
    columns["row"] = shardstream.Array("raw", "float32", [2, 2], raw=True)
    columns["flag"] = shardstream.Tokens("json", 8, at="/tokens", mask=True)
    return next(iter(shardstream.Loader(shards, columns, batch=8)))


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_shares_the_memory_by_every_protocol(batch, name):
    tensor = batch[name]
    arrays = [tensor.numpy(), np.asarray(tensor), np.from_dlpack(tensor), np.asarray(memoryview(tensor))]
    for array in arrays:
        assert array.dtype == np.dtype(name) and array.tolist() == list(range(8))
        assert address(array) == address(arrays[0])
    arrays[0][3] = 99
    assert arrays[2].tolist() == [0, 1, 2, 99, 4, 5, 6, 7]
    copy = np.array(tensor, copy=True)
    assert address(copy) != address(arrays[0])


def test_shapes_and_truth_values(batch):
    assert memoryview(batch["row"]).shape == (8, 2, 2) and batch["row"].numpy()[1, 1, 1] == 4
    assert batch["flag.mask"].numpy().dtype == np.bool_
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # NumPy 1's from_dlpack refuses bool.
        assert np.from_dlpack(batch["flag.mask"])[2].tolist() == [True, True] + [False] * 6
    assert batch["row"].nbytes == 128 and len(batch["row"]) == 8
    assert repr(batch["row"]) == "shardstream.Tensor(float32[8, 2, 2])"
    assert batch["row"].__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        batch["row"].__dlpack__(copy=True)
    with pytest.raises(BufferError):
        batch["row"].__dlpack__(dl_device=(2, 0))


def test_bfloat16_has_no_buffer_format_but_numpy_shares_its_memory(batch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(batch["bfloat16"])
    arrays = [batch["bfloat16"].numpy(), np.asarray(batch["bfloat16"])]
    assert all(
        array.dtype == ml_dtypes.bfloat16 and array.astype(int).tolist() == list(range(8)) for array in arrays
    )


def test_a_buffer_in_fortran_order_is_refused_unless_both_orders_are_the_same(batch):
    def ask(tensor, flags):
        view = (ctypes.c_byte * 256)()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor), view, flags)
        ctypes.pythonapi.PyBuffer_Release(view)

    strides, c, f, either = 0x18, 0x20, 0x40, 0x80
    with pytest.raises(BufferError, match="row-major"):
        ask(batch["row"], f | strides)
    for flags in (strides, c | strides, either | strides):
        ask(batch["row"], flags)
    ask(batch["int32"], f | strides)


def test_empty_tensors_are_shared(shards):
    columns = {"ragged": shardstream.Ragged("json", "int16", at="/tokens")}
    batch = next(iter(shardstream.Loader(shards, columns, batch=1)))
    assert batch["ragged"].shape == (0,) and batch["ragged"].numpy().tolist() == []
    assert (
        np.from_dlpack(batch["ragged"]).shape == (0,)
        and shardstream.pieces(batch, "ragged")[0].tolist() == []
    )


def test_the_memory_returns_when_the_last_view_dies(labels):
    batches = iter(labels(epochs=None, prefetch=1, threads=1))
    seen = set()
    for _ in range(200):
        seen.add(address(next(batches)["label"].numpy()))
    assert len(seen) < 20, "the loader reuses the memory of dropped batches"

    view = np.from_dlpack(next(batches)["label"])[2:4]
    before, at = view.tolist(), address(view)
    for _ in range(200):
        assert address(next(batches)["label"].numpy()) != at - 16
    assert view.tolist() == before
    del view
    assert any(address(next(batches)["label"].numpy()) == at - 16 for _ in range(200))


def test_a_thousand_batches_can_be_held_at_once(labels):
    batches = iter(labels(epochs=None, shuffle=40))
    held = [next(batches) for _ in range(1000)]
    arrays = [np.from_dlpack(batch["label"]) for batch in held]
    assert len({address(array) for array in arrays}) == 1000
    del held
    again = iter(labels(epochs=None, shuffle=40))
    assert all(array.tolist() == numbers(next(again)) for array in arrays)


def test_views_may_die_on_other_threads_and_in_cycles(labels):
    batches = iter(labels(epochs=None))

    class Node:
        pass

    def hold(batch):
        node = Node()
        node.itself, node.array = node, np.from_dlpack(batch["label"])
        return weakref.ref(node), node.array.tolist()

    nodes, threads = [], []
    for _ in range(100):
        node, values = hold(next(batches))
        nodes.append(node)
        thread = threading.Thread(
            target=lambda batch: np.from_dlpack(batch["label"]).sum(), args=(next(batches),)
        )
        thread.start()
        threads.append(thread)
        assert len(set(values)) == 8
    [thread.join() for thread in threads]
    gc.collect()
    assert all(node() is None for node in nodes)
    batches.close()
    assert len(numbers(next(iter(labels())))) == 8


def test_threads_with_an_iterator_each_read_the_same_batches(labels):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append([numbers(batch) for batch in labels(shuffle=30)]))
        for _ in range(4)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(results) == 4 and all(result == results[0] for result in results)


def test_two_threads_on_one_iterator_get_each_batch_once_or_an_error(labels):
    batches, seen, errors = iter(labels()), [], []

    def take():
        while True:
            try:
                batch = next(batches, None)
            except shardstream.Error as error:
                errors.append(error.kind)
                time.sleep(0.001)
                continue
            if batch is None:
                return
            seen.extend(numbers(batch))

    threads = [threading.Thread(target=take) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(seen) == list(range(256)) and set(errors) <= {"in_use"}


def test_two_threads_at_the_end_of_an_epoch_lose_no_batch(labels, monkeypatch):
    batches = iter(labels(epochs=3))
    seen = [numbers(next(batches)) for _ in range(32)]
    started = type(batches._runs).started

    def slowly(*args):
        time.sleep(0.3)
        return started(*args)

    def take():
        with contextlib.suppress(shardstream.Error):  # "in_use", while the other thread waits.
            seen.append(numbers(next(batches)))

    monkeypatch.setattr(type(batches._runs), "started", slowly)
    threads = [threading.Thread(target=take) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    seen += [numbers(batch) for batch in batches]
    assert len(seen) == 96


def test_closing_while_the_next_epoch_begins_closes_that_epoch(labels, monkeypatch):
    batches = iter(labels(epochs=2))
    for _ in range(32):
        next(batches)
    started = type(batches._runs).started

    def closed_meanwhile(*args):
        closing = threading.Thread(target=batches.close)
        closing.start()
        closing.join()
        return started(*args)

    monkeypatch.setattr(type(batches._runs), "started", closed_meanwhile)
    with pytest.raises(shardstream.Error, match="closed"):
        next(batches)


def test_an_array_outlives_the_loader(tmp_path):
    shards = write_shards(tmp_path, ({"bin": bytes([n]) * 300_000} for n in range(8)))
    loader = shardstream.Loader(shards, {"x": shardstream.Array("bin", "uint8", [300_000], raw=True)}, 8)
    array = np.from_dlpack(next(iter(loader))["x"])
    del loader
    gc.collect()
    assert (array == np.arange(8)[:, None]).all()
