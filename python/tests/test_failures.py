"""Damaged samples, missing shards, logs."""

import logging
import pickle

import pytest
from conftest import labelled, numbers, write_shards

import shardstream


@pytest.fixture
def damaged(tmp_path):
    """64 samples in 2 shards. The label of sample 5 is not a number."""
    return write_shards(
        tmp_path, ({**labelled(n), "cls": b"five" if n == 5 else b"%d" % n} for n in range(64))
    )


def test_a_sample_that_fails_is_an_exception_and_iteration_continues(damaged):
    batches, seen = iter(shardstream.Loader(damaged, {"label": "cls"}, 8)), []
    with pytest.raises(shardstream.DecodeError) as caught:
        for batch in batches:
            seen += numbers(batch)
    error = caught.value
    assert (error.kind, error.key) == ("decode", "000005") and error.shard.endswith("train-000000.tar")
    assert error.offset is None and "five" in str(error)
    seen += [number for batch in batches for number in numbers(batch)]
    assert sorted(seen) == [n for n in range(64) if n != 5]


def test_failures_are_skipped_and_counted(damaged):
    loader = shardstream.Loader(damaged, {"label": "cls"}, 8, on_error=shardstream.Skip("decode", total=3))
    seen = [number for batch in loader for number in numbers(batch)]
    assert sorted(seen) == [n for n in range(64) if n != 5]
    assert loader.report()["ledger"]


def test_too_many_failures_are_an_error(tmp_path):
    shards = write_shards(tmp_path, ({"cls": b"none"} for _ in range(64)))
    loader = shardstream.Loader(shards, {"label": "cls"}, 8, on_error=shardstream.Skip("decode", in_a_row=5))
    with pytest.raises(shardstream.TooManySkippedError, match="5 in a row"):
        list(loader)


def test_the_error_of_a_damaged_shard_has_its_offset(tmp_path):
    shards = write_shards(tmp_path, map(labelled, range(64)))
    file = tmp_path / "train-000000.tar"
    data = bytearray(file.read_bytes())
    data[10_240:10_752] = bytes(range(256)) * 2
    file.write_bytes(data)
    with pytest.raises(shardstream.DamageError) as caught:
        list(shardstream.Loader(shards, {"label": "cls"}, 8))
    assert caught.value.offset == 10_240 and caught.value.shard.endswith("train-000000.tar")
    skipping = shardstream.Loader(shards, {"label": "cls"}, 8, on_error=shardstream.Skip("damage"))
    assert 32 < sum(len(batch["label"]) for batch in skipping) < 64


def test_a_missing_shard_is_an_error_or_is_skipped(tmp_path):
    write_shards(tmp_path, map(labelled, range(64)))
    pattern = f"{tmp_path}/train-{{000000..000002}}.tar"
    with pytest.raises(shardstream.NotFoundError) as caught:
        list(shardstream.Loader(pattern, {"label": "cls"}, 8))
    assert isinstance(caught.value, shardstream.StoreError) and caught.value.shard.endswith(
        "train-000002.tar"
    )
    loader = shardstream.Loader(pattern, {"label": "cls"}, 8, on_error=shardstream.Skip("missing_shards"))
    assert sum(len(batch["label"]) for batch in loader) == 64


def test_after_an_outage_the_next_iteration_continues_the_epoch(damaged, tmp_path):
    loader = shardstream.Loader(damaged, {"label": "cls"}, 8, on_error=shardstream.Skip("decode"))
    whole = [numbers(batch) for batch in loader]
    hidden = tmp_path / "train-000001.tar"
    content = hidden.read_bytes()
    hidden.unlink()
    hidden.symlink_to(hidden)
    loader = shardstream.Loader(damaged, {"label": "cls"}, 8, on_error=shardstream.Skip("decode"))
    seen = []
    with pytest.raises(shardstream.StoreError):
        for batch in loader:
            seen.append(numbers(batch))
    hidden.unlink()
    hidden.write_bytes(content)
    seen += [numbers(batch) for batch in loader]
    assert seen == whole


@pytest.fixture
def outage(tmp_path):
    """A loader of two shards, and a function. The second shard cannot be read until the function is
    called."""
    shards = write_shards(tmp_path, map(labelled, range(64)))
    hidden = tmp_path / "train-000001.tar"
    loader = shardstream.Loader(shards, {"label": "cls"}, 8)
    content = hidden.read_bytes()
    hidden.unlink()
    hidden.symlink_to(hidden)

    def end():
        hidden.unlink()
        hidden.write_bytes(content)

    return loader, end


def test_an_iterator_that_an_outage_ended_raises_again(outage):
    loader, end_outage = outage
    batches, seen = iter(loader), []
    with pytest.raises(shardstream.StoreError):
        for batch in batches:
            seen.append(numbers(batch))
    for _ in range(2):
        with pytest.raises(shardstream.StoreError, match="loader again") as caught:
            next(batches)
        assert caught.value.kind == "failed"
    end_outage()
    loader.set_epoch(0)  # Trainers call this before each iteration.
    seen += [numbers(batch) for batch in loader]
    assert sorted(sum(seen, [])) == list(range(64))


def test_an_outage_loses_no_batch_that_was_transferred_ahead(outage):
    jax = pytest.importorskip("jax")
    from shardstream.jax import DeviceBatches

    loader, end_outage = outage
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    batches, seen = DeviceBatches(loader, one, depth=3), []
    for _ in range(2):
        with pytest.raises(shardstream.StoreError):
            for batch in batches:
                seen += batch["label"].tolist()
    assert seen == list(range(len(seen))) and len(seen) >= 8
    end_outage()
    for batch in batches:
        seen += batch["label"].tolist()
    assert seen == list(range(64))


def test_exceptions_are_pickled_with_their_attributes(damaged):
    with pytest.raises(shardstream.DecodeError) as caught:
        list(shardstream.Loader(damaged, {"label": "cls"}, 8))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is shardstream.DecodeError
    assert (str(copy), copy.key, copy.shard) == (str(caught.value), caught.value.key, caught.value.shard)


def test_events_are_logged_by_pythons_logging(labels, caplog, monkeypatch):
    with caplog.at_level(logging.WARNING, "shardstream"):
        # The library warns about a shuffle buffer without shuffled shards.
        next(iter(labels(shuffle=20, shuffle_shards=False, epochs=None)))
    assert any("every epoch begins with the same shards" in record.getMessage() for record in caplog.records)
    assert all(record.name == "shardstream" for record in caplog.records)
