"""Prints what webdataset reads from each shard: [[[key, [[field, hex], ...]], ...], ...]."""

import json
import sys

import webdataset as wds


def samples(path):
    for sample in wds.DataPipeline(wds.SimpleShardList([path]), wds.tarfile_to_samples()):
        fields = [[name, value.hex()] for name, value in sample.items() if not name.startswith("__")]
        yield [sample["__key__"], fields]


json.dump([list(samples(path)) for path in sys.argv[1:]], sys.stdout)
