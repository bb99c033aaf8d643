"""Prints the sorted shards that webdataset finds in a YAML specification, as JSON."""

import contextlib
import io
import json
import os
import sys

os.environ["ALLOW_OBSOLETE"] = "1"

from webdataset.shardlists import MultiShardSample  # noqa: E402

# `MultiShardSample` prints the number of shards of each source.
with contextlib.redirect_stderr(io.StringIO()):
    shards = [shard["url"] for shard in MultiShardSample(sys.argv[1])]
print(json.dumps(sorted(shards)))
