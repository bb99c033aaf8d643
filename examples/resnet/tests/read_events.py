"""Prints, as JSON, the content of a directory of event files as TensorBoard reads it."""

import json
import os
import sys
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

directory = sys.argv[1]
accumulator = EventAccumulator(directory, size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
tags = accumulator.Tags()
scalars = {tag: [[e.step, e.value] for e in accumulator.Scalars(tag)] for tag in tags["scalars"]}
texts = {
    tag: [[e.step, e.tensor_proto.string_val[0].decode()] for e in accumulator.Tensors(tag)]
    for tag in tags["tensors"]
}
plugins = {tag: accumulator.SummaryMetadata(tag).plugin_data.plugin_name for tag in tags["tensors"]}
events = []
versions = []
for name in sorted(os.listdir(directory)):
    loaded = list(LegacyEventFileLoader(os.path.join(directory, name)).Load())
    versions.append(loaded[0].file_version)
    events += loaded
times = [e.wall_time for e in events]
print(
    json.dumps(
        {
            "scalars": scalars,
            "texts": texts,
            "plugins": plugins,
            "versions": versions,
            "events": len(events),
            "now": all(abs(time.time() - t) < 3600 for t in times),
        }
    )
)
