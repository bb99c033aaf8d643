"""Reads a shard with webdataset and writes it again, as plainly as webdataset can."""

import json
import sys

import webdataset as wds

source, target = sys.argv[1:]
with open(target, "wb") as file, wds.TarWriter(file, mtime=0, encoder=False) as writer:
    for sample in wds.DataPipeline(wds.SimpleShardList([source]), wds.tarfile_to_samples()):
        writer.write(sample)
json.dump(None, sys.stdout)
