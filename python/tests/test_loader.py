"""The batches of a loader and their order."""

import contextlib
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import labelled, numbers, write_shards
from PIL import Image

import shardstream


def test_each_column_has_the_values_of_its_field(shards):
    columns = {
        "label": "cls",
        "small": shardstream.Scalar("cls", "float32"),
        "age": shardstream.Scalar("json", np.float64, at="/age"),
        "row": shardstream.Array("raw", np.float32, [2, 2], raw=True),
        "tokens": shardstream.Tokens("json", 8, at="/tokens", pad=-1, mask=True),
        "ragged": shardstream.Ragged("json", "int16", at="/tokens"),
        "text": "txt",
        "bytes": shardstream.Blob("bin"),
        "key": shardstream.Key(),
        "missing": shardstream.Optional(shardstream.Scalar("none"), default=-7),
        "pair": shardstream.Stack(["cls", "none"], shardstream.Scalar("cls", "int32")),
    }
    batch = next(iter(shardstream.Loader(shards, columns, batch=16)))
    assert list(batch)[:3] == ["label", "small", "age"]
    assert numbers(batch) == list(range(16))
    assert batch["small"].dtype == "float32" and batch["small"].shape == (16,)
    assert numbers(batch, "age") == [number / 2 for number in range(16)]
    assert batch["row"].numpy()[3].tolist() == [[3, 4], [5, 6]]
    assert batch["tokens"].numpy()[3].tolist() == [0, 1, 2, -1, -1, -1, -1, -1]
    assert batch["tokens.mask"].numpy()[3].tolist() == [True] * 3 + [False] * 5
    assert numbers(batch, "tokens.lengths")[:4] == [0, 1, 2, 3]
    assert [piece.tolist() for piece in shardstream.pieces(batch, "ragged")][:3] == [[], [0], [0, 1]]
    assert shardstream.strings(batch, "text")[15] == "text 15 é"
    assert shardstream.strings(batch, "key")[15] == "000015"
    assert [bytes(piece) for piece in shardstream.pieces(batch, "bytes")] == [
        labelled(n)["bin"] for n in range(16)
    ]
    assert numbers(batch, "missing") == [-7] * 16 and not any(numbers(batch, "missing.present"))
    assert numbers(batch, "pair")[5] == [5, 0] and numbers(batch, "pair.present")[5] == [True, False]


def test_an_epoch_has_each_sample_once_and_the_next_epoch_has_another_order(labels):
    loader = labels(shuffle=50, seed=7)
    epochs = [[number for batch in loader for number in numbers(batch)] for _ in range(3)]
    assert all(sorted(epoch) == list(range(256)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert loader.epoch == 2
    loader.set_epoch(1)
    assert [number for batch in loader for number in numbers(batch)] == epochs[1]


def test_ranks_read_disjoint_parts(labels):
    parts = [labels(rank=rank, world=2, streams=4, shuffle=10, uneven_steps=True) for rank in range(2)]
    seen = [[number for batch in loader for number in numbers(batch)] for loader in parts]
    assert sorted(seen[0] + seen[1]) == list(range(256)) and len(seen[0]) == 128


def test_the_rank_comes_from_the_environment_of_the_launcher(labels, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = [number for batch in labels(uneven_steps=True) for number in numbers(batch)]
    assert len(seen) == 128


def test_the_length_is_known_with_an_index(labels):
    with pytest.raises(TypeError, match="index"):
        len(labels())
    assert len(labels(index=True)) == 32 == sum(1 for _ in labels(index=True))
    assert len(labels(index=True, epochs=3)) == 96 == sum(1 for _ in labels(index=True, epochs=3))
    with pytest.raises(TypeError):
        len(labels(index=True, epochs=None))


def test_iterations_of_several_epochs_and_without_an_end(labels):
    loader = labels(epochs=2)
    assert sum(1 for _ in loader) == 64
    assert loader.epoch == 1
    assert sum(1 for _ in loader) == 64
    assert loader.epoch == 3
    next(iter(loader))
    assert sum(1 for _ in loader) == 64 and loader.epoch == 7, "epochs of an iteration that ended early"
    with pytest.raises(shardstream.ConfigError, match="multiples"):
        loader.set_epoch(7)
    endless = labels(epochs=None, shuffle=20)
    first = [numbers(batch) for batch, _ in zip(endless, range(40))]
    more = [numbers(batch) for batch, _ in zip(endless, range(10))]
    again = [numbers(batch) for batch, _ in zip(labels(epochs=None, shuffle=20), range(60))]
    # `zip` reads one batch more than it returns.
    assert first == again[:40] and more == again[41:51]


def test_an_incomplete_last_batch_is_kept_dropped_padded_or_repeated(shards):
    def sizes(last, **options):
        loader = shardstream.Loader(shards, {"label": "cls"}, batch=100, last_batch=last, **options)
        return [len(batch["label"]) for batch in loader]

    assert sizes("keep") == [100, 100, 56]
    assert sizes("drop") == [100, 100]
    assert sizes("repeat", index=True) == [100, 100, 100]
    *_, padded = shardstream.Loader(shards, {"label": "cls"}, batch=100, last_batch="pad")
    assert padded["mask"].numpy().tolist() == [True] * 56 + [False] * 44
    with pytest.raises(shardstream.ConfigError, match="mask"):
        shardstream.Loader(shards, {"mask": "cls"}, batch=100, last_batch="pad")


def test_the_number_of_threads_changes_nothing(labels):
    expected = [numbers(batch) for batch in labels(shuffle=30, threads=0)]
    for threads in (1, 3):
        assert [numbers(batch) for batch in labels(shuffle=30, threads=threads, prefetch=3)] == expected


def test_a_loader_reads_a_list_of_paths_through_a_cache(tmp_path, shards):
    paths = sorted(tmp_path.glob("*.tar"))
    loader = shardstream.Loader(
        paths, {"label": "cls"}, 8, cache=shardstream.Cache(tmp_path / "cache", max_bytes=1 << 20)
    )
    assert sum(len(batch["label"]) for batch in loader) == 256


def test_pictures_are_cropped_and_normalised(tmp_path):
    def picture(number):
        file = io.BytesIO()
        Image.new("RGB", (40, 30), (number, 100, 200)).save(file, "PNG")
        return {"png": file.getvalue(), "cls": str(number).encode()}

    shards = write_shards(tmp_path, map(picture, range(8)))
    image = shardstream.Image(
        16,
        transforms=[
            shardstream.RandomResizedCrop(16),
            shardstream.RandomHorizontalFlip(),
            shardstream.ColorJitter(),
        ],
        layout="chw",
        dtype=np.float32,
        normalize=([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]),
    )
    plain = shardstream.Image((30, 40), "png")
    batch = next(iter(shardstream.Loader(shards, {"image": image, "plain": plain}, 8)))
    assert batch["image"].shape == (8, 3, 16, 16) and batch["plain"].shape == (8, 30, 40, 3)
    assert batch["plain"].numpy()[5, 0, 0].tolist() == [5, 100, 200]
    assert np.allclose(batch["image"].numpy()[:, 1], (100 / 255 - 0.5) / 0.25, atol=1e-5)


def test_every_column_and_transform_can_be_used(tmp_path):
    ss = shardstream
    boxes = {"boxes": [[2, 2, 10, 10]], "labels": [7], "tokens": [1, 2, 3]}

    def sample(number):
        image, mask = io.BytesIO(), io.BytesIO()
        Image.new("RGB", (20, 20), (number, 0, 0)).save(image, "PNG")
        Image.new("L", (20, 20), number).save(mask, "PNG")
        return {
            "png": image.getvalue(),
            "seg.png": mask.getvalue(),
            "0.png": image.getvalue(),
            "1.png": image.getvalue(),
            "json": json.dumps(boxes).encode(),
        }

    shards = write_shards(tmp_path, map(sample, range(8)))
    transforms = [
        ss.Resize(18, max_size=30, filter="bicubic"),
        ss.RandomCrop((16, 14), padding=(1, 2), pad_if_needed=True, fill=(1, 2, 3)),
        ss.RandomResizedCrop(15),
        ss.CenterCrop((12, 10)),
        ss.RandomHorizontalFlip(0.3),
        ss.Pad((1, 2, 3, 4), padding_mode="reflect"),
        ss.RandomVerticalFlip(),
        ss.RandomApply([ss.GaussianBlur(3), ss.RandomRotation(30, filter="bilinear")], 0.8),
        ss.RandomRotation((10, 20), fill=(1, 2, 3)),
        ss.RandomAffine(15, (0.1, 0.1), (0.9, 1.1), (-5, 5, -3, 3)),
        ss.RandomPerspective(0.3, 1.0),
        ss.GaussianBlur((3, 5), 0.7),
        ss.AutoAugment("cifar10"),
        ss.ColorJitter(0.1, (0.5, 1.5), 0.2, (-0.1, 0.1)),
        ss.RandomGrayscale(),
        ss.RandomErasing(value="random"),
        ss.RandomErasing(value=(1, 2, 3)),
        ss.RandAugment(),
        ss.TrivialAugmentWide(filter="bilinear"),
        ss.Resize((8, 6)),
    ]
    labelled_boxes = ss.Boxes(field="json", at="/boxes", labels="json", labels_at="/labels", fixed=2)
    crop = [ss.RandomCrop(16)]
    columns = {
        "augmented": ss.Image((8, 6), "png", transforms=transforms),
        "boxed": ss.Image(
            16, "png", transforms=crop, boxes=labelled_boxes, mask=ss.Mask(field="seg.png", dtype="int32")
        ),
        "alike": ss.Image(16, "png", transforms=crop, same_as="boxed", mode="l8", dtype="bfloat16"),
        "many": ss.RaggedImages(ss.Image(20, "*.png"), max=2),
        "packed": ss.PackedTokens("json", 4, 16, "int64", at="/tokens", pad=-1, drop_rest=True),
        "where": ss.Position(),
        "shard": ss.Shard(),
        "views": ss.Stack(["0.png", "1.png"], ss.Image(20, "png"), independent=True),
    }
    options = {"index": ss.Index(at=tmp_path / "index.json", checksums=True), "checksums": True, "streams": 1}
    limits = ss.Skip("damage", "decode", in_a_row=9, total=9, share=(0.5, 10), rest_of_shard=True)
    loader = ss.Loader(shards, columns, 8, on_error=limits, cores=1, stall_after=9.5, **options)
    batch = next(iter(loader))
    assert batch["augmented"].shape == (8, 8, 6, 3)
    assert batch["boxed.boxes"].shape == (8, 2, 4) and batch["boxed.labels"].numpy()[0].tolist()[:1] in (
        [7],
        [0],
    )
    assert batch["boxed.mask"].dtype == "int32" and batch["alike"].dtype == "bfloat16"
    assert batch["many"].shape == (16, 20, 20, 3) and batch["views"].shape == (8, 2, 20, 20, 3)
    assert batch["packed"].shape == (4, 16) and numbers(batch, "packed.dropped") == [0]
    assert shardstream.strings(batch, "shard")[0].endswith("train-000000.tar")


def test_transforms_change_the_pixels_as_their_options_say(tmp_path):
    ss = shardstream
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    shards = write_shards(tmp_path, [{"png": file.getvalue()}] * 2)

    def changed(size, *transforms):
        column = ss.Image(size, "png", transforms=transforms)
        return next(iter(ss.Loader(shards, {"image": column}, 2)))["image"].numpy()[0]

    assert np.array_equal(changed((8, 6), ss.RandomVerticalFlip(1.0)), pixels[::-1])
    assert np.array_equal(changed((8, 6), ss.RandomApply([ss.RandomVerticalFlip(1.0)], 0.0)), pixels)
    twice = ss.RandomApply([ss.RandomVerticalFlip(1.0), ss.RandomHorizontalFlip(1.0)], 1.0)
    assert np.array_equal(changed((8, 6), twice), pixels[::-1, ::-1])
    assert np.array_equal(changed((8, 6), ss.RandomRotation((180, 180))), pixels[::-1, ::-1])
    assert np.array_equal(changed((6, 8), ss.RandomRotation((90, 90), expand=True)), np.rot90(pixels))
    for mode in ["edge", "reflect", "symmetric"]:
        expected = np.pad(pixels, ((2, 4), (1, 3), (0, 0)), mode)
        assert np.array_equal(changed((14, 10), ss.Pad((1, 2, 3, 4), padding_mode=mode)), expected), mode
    border = changed((12, 8), ss.Pad((2, 1), fill=(9, 8, 7)))
    assert np.array_equal(border[2:-2, 1:-1], pixels) and border[0, 0].tolist() == [9, 8, 7]
    moved = changed((8, 6), ss.RandomAffine(0, scale=(2, 2)))
    assert moved.shape == (8, 6, 3) and not np.array_equal(moved, pixels)
    assert np.array_equal(changed((8, 6), ss.RandomPerspective(0.0, 1.0)), pixels)
    assert np.ptp(changed((8, 6), ss.GaussianBlur(7, (5, 5)))) < np.ptp(pixels)
    for wrong in [ss.GaussianBlur(4), ss.RandomRotation(-1), ss.RandomApply([ss.GaussianBlur(3)], 2)]:
        with pytest.raises(ss.ConfigError, match=type(wrong).__name__):
            changed((8, 6), wrong)


def test_a_bad_option_is_an_error_with_its_name(shards, tmp_path):
    def error(match, *args, **options):
        with pytest.raises(shardstream.ConfigError, match=match) as caught:
            shardstream.Loader(*args, **options)
        assert caught.value.kind and isinstance(caught.value, ValueError)

    error("batch", shards, {"label": "cls"}, 0)
    error("Scalar\\('jpg'\\)", shards, {"image": "jpg"}, 8)
    error('unknown dtype "int"', shards, {"label": shardstream.Scalar("cls", "int")}, 8)
    error("`seed`: .*-1", shards, {"label": "cls"}, 8, seed=-1)
    error("`last_batch`: .*`dorp`", shards, {"label": "cls"}, 8, last_batch="dorp")
    error('`batch`: .*"8"', shards, {"label": "cls"}, "8")
    error("`seed`: .*set", shards, {"label": "cls"}, 8, seed={1})
    error("`stall_after`: -1", shards, {"label": "cls"}, 8, stall_after=-1)
    error("stall_after", shards, {"label": "cls"}, 8, stall_after=float("nan"))
    error("without `world`", shards, {"label": "cls"}, 8, rank=1)
    error("exclude each other", shards, {"x": shardstream.Tokens("json", 4, raw="int16", at="/tokens")}, 8)
    error("Skip", shards, {"label": "cls"}, 8, on_error=shardstream.Skip("everything"))
    error("pattern", f"{tmp_path}/train-{{1..", {"label": "cls"}, 8)
    with pytest.raises(shardstream.Error):
        shardstream.Loader(f"{tmp_path}/none-*.tar", {"label": "cls"}, 8)


def test_a_report_is_a_dictionary_and_lines_for_a_log(labels):
    loader = labels()
    assert loader.report() is None
    assert sum(1 for _ in loader) == 32
    report = loader.report()
    assert (report["items"], report["batches"]) == (256, 32)
    assert str(report).startswith("256 items in 32 batches")
    json.dumps(report)


def test_a_loader_is_pickled_without_its_position(labels):
    loader = labels(shuffle=20)
    batches = iter(loader)
    first = [numbers(next(batches)) for _ in range(3)]
    copy = pickle.loads(pickle.dumps(loader))
    assert [numbers(batch) for batch, _ in zip(copy, range(3))] == first


def test_columns_are_values():
    crop = shardstream.RandomResizedCrop(224, scale=(0.5, 1.0))
    assert shardstream.Image(224, transforms=[crop]) == shardstream.Image(224, transforms=[crop])
    assert "RandomResizedCrop(size=224" in repr(shardstream.Image(224, transforms=[crop]))


def threads():
    """The number of threads that belong to an iteration. The process keeps other threads of the library."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as name:
            count += name.read().startswith(("shardstream-map", "shardstream-pre"))
    return count


def ends(expected):
    """Whether the number of threads goes back to `expected`. The system lists a joined thread for a moment
    longer."""
    for _ in range(1000):
        if threads() == expected:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_an_iterator_that_is_dropped_or_closed_ends_its_threads(labels):
    gc.disable()
    try:
        before = threads()
        for _ in range(5):
            batches = iter(labels(epochs=None))
            batch = next(batches)
            assert threads() > before
            del batches
            assert ends(before), "without the garbage collector"
        for batch in labels():
            break
        assert ends(before)
        batches = iter(labels(epochs=None))
        next(batches)
        batches.close()
        assert ends(before)
    finally:
        gc.enable()
    assert numbers(batch) == list(range(8))
    with pytest.raises(shardstream.Error, match="closed"):
        next(batches)


def test_a_closed_loader_without_an_end_continues(labels):
    loader = labels(epochs=None)
    first = [numbers(batch) for batch, _ in zip(loader, range(3))]
    loader.close()
    more = numbers(next(iter(loader)))
    # `zip` reads one batch more than it returns.
    assert [*first, more] == [list(range(n, n + 8)) for n in (0, 8, 16, 32)]


def test_the_loader_continues_a_closed_iterator_without_an_end(labels):
    loader = labels(epochs=None)
    batches = iter(loader)
    next(batches)
    batches.close()
    assert numbers(next(iter(loader))) == list(range(8, 16))


def test_a_closed_loader_keeps_a_loaded_state(labels):
    loader = labels(epochs=None)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    next(batches), next(batches)
    loader.load_state_dict(state)
    loader.close()
    assert numbers(next(iter(loader))) == list(range(8, 16))


def test_an_interrupt_at_the_end_of_an_epoch_loses_no_epoch(labels, monkeypatch):
    loader = labels(epochs=2)
    batches = iter(loader)
    seen = [numbers(next(batches)) for _ in range(32)]
    started = type(batches._runs).started

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(batches._runs), "started", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    monkeypatch.setattr(type(batches._runs), "started", started)
    seen += [numbers(batch) for batch in batches]
    assert len(seen) == 64 and batches.epoch == 1


def test_big_endian_types_are_refused(shards):
    for dtype in (np.dtype(">i2"), np.dtype(">f4")):
        with pytest.raises(shardstream.ConfigError, match="little-endian"):
            shardstream.Loader(shards, {"x": shardstream.Array("raw", dtype, [4], raw=True)}, 8)
        with pytest.raises(shardstream.ConfigError, match="little-endian"):
            shardstream.Loader(shards, {"x": shardstream.Tokens("raw", 8, "int32", raw=dtype)}, 8)


def test_options_may_be_numpy_numbers_and_arrays(pictures):
    mean = np.array([0.5, 0.5, 0.5])
    image = shardstream.Image(np.int64(16), dtype="float32", normalize=(mean, mean / 2))
    loader = shardstream.Loader(pictures, {"image": image}, np.int64(8), seed=np.uint32(3))
    assert next(iter(loader))["image"].shape == (8, 16, 16, 3)


def test_the_interpreter_ends_while_batches_are_read(shards):
    program = (
        "import shardstream, sys\n"
        "loader = shardstream.Loader(sys.argv[1], {'label': 'cls'}, 8, epochs=None)\n"
        "batches = iter(loader)\n"
        "print(next(batches)['label'].numpy().sum())\n"
    )
    run = subprocess.run([sys.executable, "-c", program, shards], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "28\n", "")
