"""Shards for the tests, written with Python's module `tarfile`."""

import io
import json
import struct
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

PER_SHARD = 32


def write_shards(directory, samples, per_shard=PER_SHARD):
    """Writes shards of samples, each a dictionary of fields by extension, and returns the shards' pattern."""
    samples = list(samples)
    count = -(-len(samples) // per_shard)
    for shard in range(count):
        with tarfile.open(directory / f"train-{shard:06}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number, fields in enumerate(samples[shard * per_shard : (shard + 1) * per_shard]):
                for extension, data in fields.items():
                    member = tarfile.TarInfo(f"{shard * per_shard + number:06}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return f"{directory}/train-{{000000..{count - 1:06}}}.tar"


def labelled(number):
    """A sample with one field of each type."""
    return {
        "bin": bytes([number % 251] * (1 + number % 5)),
        "cls": str(number).encode(),
        "json": json.dumps({"age": number / 2, "tokens": list(range(number % 7))}).encode(),
        "raw": struct.pack("<4f", *[number + part for part in range(4)]),
        "txt": f"text {number} é".encode(),
    }


@pytest.fixture
def shards(tmp_path):
    """256 samples in 8 shards."""
    return write_shards(tmp_path, map(labelled, range(256)))


@pytest.fixture
def labels(shards):
    """A function that makes a loader of labels with the given options."""
    import shardstream

    def make(**options):
        options = {"batch": 8, "columns": {"label": "cls"}, **options}
        return shardstream.Loader(shards, **options)

    return make


def picture(number):
    """A picture whose class says which half of it is bright."""
    import numpy as np
    from PIL import Image

    rng, label = np.random.default_rng(number), number % 4
    pixels = rng.integers(0, 120, (16, 16, 3), np.uint8)
    part = [np.s_[:8], np.s_[8:], np.s_[:, :8], np.s_[:, 8:]][label]
    pixels[part] += 100
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"png": file.getvalue(), "cls": str(label).encode()}


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("pictures"), map(picture, range(512)), 64)


def numbers(batch, name="label"):
    return batch[name].numpy().tolist()
