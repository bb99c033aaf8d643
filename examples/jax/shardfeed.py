"""Batches that a jax_feed process puts into shared memory, as read-only NumPy arrays.

When may a slab be written again? When nothing can read it any more, and that is what Python's reference counts say. All
arrays of a batch are views of one array over the slab, made anew for each batch; whoever still reads the memory holds a
reference to it. So does JAX: where it takes memory as it is (aligned memory, on CPU devices) as long as its own arrays
live or a step that reads them runs; where it copies, until the transfer is done. It has to: otherwise no temporary NumPy
array could ever be given to it. The slab is handed back when the last of these references goes, which is no step too
early on any backend, and waits for no device.
"""

import gc
import json
import mmap
import os
import select
import subprocess
import time
import weakref

import ml_dtypes  # noqa: F401  NumPy gets bfloat16 from it.
import numpy as np


class Feed:
    """An iterator over batches: dictionaries of arrays, with `valid` and `state` of the last one beside them."""

    def __init__(self, command, patience=300.0):
        """Starts `command`. `patience`: seconds without a single slab back before it is an error."""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.patience = patience
        self.lines = b""
        self.report = self.state = self.valid = None
        self.slabs, self.out = [], set()  # All slabs; those that something reads.
        slabs = self._answer()["slabs"]
        self.slabs = [self._map(file, slabs["size"]) for file in slabs["files"]]
        self._say("mapped")

    def __iter__(self):
        return self

    def __next__(self):
        if self.report:
            raise StopIteration
        self._say("next")
        answer = self._answer()
        if "end" in answer:
            self.report = answer["end"]["report"]
            self.close()
            raise StopIteration
        batch = answer["batch"]
        slab, self.valid, self.state = batch["slab"], batch["valid"], batch["state"]
        root = np.frombuffer(self.slabs[slab], np.uint8)
        self.out.add(slab)
        # `root` is the base of every view, also of a view of a view: it goes when the last of them goes.
        weakref.finalize(root, self._hand_back, slab).atexit = False
        return {tensor["name"]: _view(root, tensor) for tensor in batch["tensors"]}

    def close(self):
        """Ends the process. Batches stay what they are."""
        if not self.process.stdin.closed:
            self._say("stop")
            self.process.stdin.close()
        self.process.wait()

    def _map(self, file, size):
        with open(file, "rb") as slab:
            return mmap.mmap(slab.fileno(), size, prot=mmap.PROT_READ)

    def _hand_back(self, slab):
        self.out.discard(slab)
        if not self.process.stdin.closed:
            self._say({"free": slab})

    def _say(self, request):
        # One write without a buffer: finalizers come in anywhere, also in the middle of another call of this.
        try:
            os.write(self.process.stdin.fileno(), json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            pass  # The answer that does not come says it better.

    def _answer(self):
        """The next line. While it waits, JAX must let go of what it no longer reads."""
        since = time.monotonic()
        while b"\n" not in self.lines:
            if select.select([self.process.stdout], [], [], 0.02)[0]:
                read = os.read(self.process.stdout.fileno(), 1 << 16)
                if not read:
                    code = self.process.wait()
                    raise RuntimeError(f"jax_feed ended with status {code} in the middle of the data")
                self.lines += read
                continue
            # References that its threads dropped are kept until then.
            gc.collect(0)
            if not self.slabs or len(self.out) < len(self.slabs):
                since = time.monotonic()
            elif time.monotonic() - since > self.patience:
                raise RuntimeError(
                    f"all {len(self.out)} slabs are still read after {self.patience:.0f} s: keep copies of batches, "
                    "not the batches, or give jax_feed more --slabs"
                )
        line, self.lines = self.lines.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            self.process.wait()
            raise RuntimeError(f"jax_feed: {answer['error']}")
        return answer


def _view(root, tensor):
    dtype, shape, offset = np.dtype(tensor["dtype"]), tensor["shape"], tensor["offset"]
    size = int(np.prod(shape)) * dtype.itemsize
    return root[offset : offset + size].view(dtype).reshape(shape)
