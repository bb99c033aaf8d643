"""Reads a dataset through its index with `wids`, and makes `widsindex` index the same shards.

Usage: index_wids.py INDEX OUTPUT SHARD...
Prints [[key, [[field, hex], ...]], ...].
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import types
import typing

# `wids` imports torch only for its samplers.
for name in ["torch", "torch.distributed", "torch.utils", "torch.utils.data"]:
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch"].distributed = sys.modules["torch.distributed"]
sys.modules["torch.utils.data"].Dataset = typing.Generic
sys.modules["torch.utils.data"].Sampler = object

import wids  # noqa: E402
import wids.wids_index  # noqa: E402

index, output, *shards = sys.argv[1:]


def content(sample):
    fields = [[name.lstrip("."), value.read().hex()] for name, value in sample.items() if not name.startswith("__")]
    return [sample["__key__"], fields]


quiet = io.StringIO()
with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), tempfile.TemporaryDirectory() as cache:
    dataset = wids.ShardListDataset(index, transformations=[], cache_dir=cache)
    samples = [content(dataset[number]) for number in range(len(dataset))]
    options = argparse.Namespace(output=output, name="theirs", base=None, info=None, files=shards)
    wids.wids_index.main_create(options)
json.dump(samples, sys.stdout)
