"""Batches that a jax_feed process puts into shared memory, as read-only NumPy arrays.

A slab may be written again when nothing can read it any more, which Python's reference counts tell. All arrays
of a batch are views of one array over the slab, created for this batch, and everything that reads the memory
holds a reference to it. So does JAX: where it uses memory without a copy (aligned memory, on CPU devices), as
long as its own arrays live or a step that reads them runs; where it copies, until the transfer is done. It must,
since otherwise it could not accept temporary NumPy arrays. The slab is returned when the last of these references
is dropped, which is not too early on any backend, and waits for no device.
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
    """An iterator over batches, which are dictionaries of arrays. Has `valid` and `state` of the last batch."""

    def __init__(self, command, patience=300.0):
        """Starts `command`. It is an error if no slab is returned for `patience` seconds."""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.patience = patience
        self.lines = b""
        self.report = self.state = self.valid = None
        self.slabs, self.out = [], set()  # All slabs; the numbers of those in use.
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
        # `root` is the base of every view, also of a view of a view, so it lives as long as any of them.
        weakref.finalize(root, self._hand_back, slab).atexit = False
        return {tensor["name"]: _view(root, tensor) for tensor in batch["tensors"]}

    def close(self):
        """Ends the process. Batches stay valid."""
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
        # One unbuffered write, since finalizers may run anywhere, also during another call of this function.
        try:
            os.write(self.process.stdin.fileno(), json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            pass  # The missing response leads to a better error.

    def _answer(self):
        """Reads the next message. Makes JAX release unused arrays while it waits."""
        since = time.monotonic()
        while b"\n" not in self.lines:
            if select.select([self.process.stdout], [], [], 0.02)[0]:
                read = os.read(self.process.stdout.fileno(), 1 << 16)
                if not read:
                    code = self.process.wait()
                    raise RuntimeError(f"jax_feed ended with status {code} in the middle of the data")
                self.lines += read
                continue
            # References that JAX's threads dropped are kept until a collection.
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
