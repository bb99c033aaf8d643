"""Converts binary batches to pickled batches: pickle_batches.py BINARY_FOLDER NEW_FOLDER PROTOCOL."""

import pathlib
import pickle
import sys

import numpy

binary, folder, protocol = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
folder.mkdir()
for path in binary.glob("*.bin"):
    records = numpy.frombuffer(path.read_bytes(), numpy.uint8).reshape(-1, 3073)
    batch = {
        "batch_label": path.stem,
        "labels": [int(label) for label in records[:, 0]],
        "data": numpy.ascontiguousarray(records[:, 1:]),
        "filenames": [f"image_{number}.png" for number in range(len(records))],
    }
    (folder / path.stem).write_bytes(pickle.dumps(batch, protocol=protocol))
