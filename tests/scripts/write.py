"""Writes various shards into a folder: with webdataset and its options, and with tarfile and its formats."""

import io
import json
import os
import sys
import tarfile

import numpy as np
import webdataset as wds

folder = sys.argv[1]


def plain_samples():
    for i in range(20):
        yield {"__key__": f"train/{i:06d}", "bin": bytes([i]) * (i * 131), "txt": "naïve text", "cls": i % 7}
    yield {"__key__": "d/" * 40 + "k" * 90, "bin": b"a key beyond 100 characters"}
    yield {"__key__": "k" * 300, "bin": b"a key beyond 256 characters", "seg.bin": b""}
    yield {"__key__": "ключ/猫", "bin": b"a key beyond ASCII"}


def encoded_samples():
    rng = np.random.default_rng(0)
    for i in range(5):
        pixels = rng.integers(0, 255, (8, 9, 3), dtype=np.uint8)
        array = rng.normal(size=(3, 4)).astype("f4")
        yield {
            "__key__": f"{i}",
            "cls": i,
            "index": 2 * i,
            "txt": "text",
            "html": "<p>",
            "json": {"a": [i, None]},
            "npy": array,
            "npz": {"x": array, "y": np.arange(i)},
            "ten": [array, np.arange(7)],
            "txt.gz": "compressed text",
            "json.gz": [1, 2, 3],
            "pyd": ("pickled", i),
            "mp": {"x": i},
            "jpg": pixels,
            "png": pixels,
            "ppm": pixels,
            "tiff": pixels,
        }


for name, options in {
    "default.tar": {},
    "mtime.tar": {"mtime": 0},
    "fraction.tar": {"mtime": 1234567890.5},
    "owner.tar": {"mtime": 0, "user": "ü", "group": "g" * 40, "mode": 0o600},
    "plain.tar.gz": {"mtime": 0, "compress": True},
}.items():
    with open(os.path.join(folder, name), "wb") as file, wds.TarWriter(file, **options) as writer:
        for sample in plain_samples():
            writer.write(sample)

with open(os.path.join(folder, "encoded.tar"), "wb") as file, wds.TarWriter(file) as writer:
    for sample in encoded_samples():
        writer.write(sample)

LONG = ["d" * 80 + "/" + "k" * 60, "d" * 155 + "/" + "k" * 92]
LONGER = ["k" * 250, "d/" * 60 + "k" * 200, "k" * 1000]
for name, format, keys in [
    ("ustar.tar", tarfile.USTAR_FORMAT, LONG),
    ("gnu.tar", tarfile.GNU_FORMAT, LONG + LONGER + ["猫"]),
    ("pax.tar", tarfile.PAX_FORMAT, LONG + LONGER + ["猫"]),
    ("records.tar.gz", tarfile.PAX_FORMAT, LONG),
]:
    mode = "w:gz" if name.endswith("gz") else "w"
    with tarfile.open(os.path.join(folder, name), mode, format=format, encoding="utf-8") as archive:
        for number, key in enumerate(["a", "A", "./b", "c.d/e", *keys]):
            for field in ["cls", "JPG", "seg.png"]:
                info = tarfile.TarInfo(f"{key}.{field}")
                info.size = number * 300
                info.mtime = 1.25
                if format == tarfile.PAX_FORMAT:
                    info.pax_headers = {"comment": "=\n 12 x=y\n", "SCHILY.xattr.user.k": "v"}
                archive.addfile(info, io.BytesIO(bytes([number]) * info.size))
            folder_info = tarfile.TarInfo("folder.d")
            folder_info.type = tarfile.DIRTYPE
            archive.addfile(folder_info)

json.dump(None, sys.stdout)
