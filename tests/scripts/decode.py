"""Prints what webdataset decodes from a shard: [[key, {field: value, ...}], ...].

Numbers, text and JSON are printed as they are; arrays and images as their type, shape and bytes. Fields are left out if
they stay bytes, if they are not plain values, or if correct decoders may decode them differently (JPEG).
"""

import json
import sys

import numpy as np
import webdataset as wds

FIELDS = "cls index txt json npy npz png ppm txt.gz json.gz".split()


def shown(value):
    if isinstance(value, dict):
        return {name: shown(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "bytes": value.tobytes().hex()}
    return value


samples = wds.DataPipeline(
    wds.SimpleShardList([sys.argv[1]]), wds.tarfile_to_samples(), wds.decode("rgb8", only=FIELDS)
)
json.dump(
    [[s["__key__"], {field: shown(s[field]) for field in FIELDS if field in s}] for s in samples], sys.stdout
)
