"""Batches for JAX: arrays over all devices of a job, transferred before the step needs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from ._core import Tensor
from .loader import Batches, Loader


def global_batch(batch: Mapping[str, Tensor], sharding: jax.sharding.Sharding) -> dict[str, jax.Array]:
    """Returns the arrays of the global batch, of which `batch` is this process's part. The tensors must have
    a fixed shape: a ragged tensor has another shape in each process."""
    make: Any = jax.make_array_from_process_local_data
    return {name: make(sharding, tensor.numpy()) for name, tensor in batch.items()}


class DeviceBatches(Iterator[dict[str, jax.Array]]):
    """The batches of a loader on the devices of a job, transferred up to `depth` steps ahead.

    Its state is the state after the last batch that it has returned; batches that are only transferred do
    not count. Use one iterator for all steps: a second iterator of the same loader begins after the
    batches that the first iterator has transferred. If a batch fails, the batches before the failed batch are
    returned before the exception is raised. If a transfer fails, the next call transfers the same batch again.
    """

    def __init__(self, loader: Loader | Batches, sharding: jax.sharding.Sharding, depth: int = 2) -> None:
        self._batches, self._sharding, self._depth = iter(loader), sharding, depth
        self._begin()

    def _begin(self) -> None:
        self._state = self._batches.get_state()
        self._ahead: deque[tuple[dict[str, jax.Array], bytes]] = deque()
        #: The loader's next batch, if its transfer has failed.
        self._untransferred: Mapping[str, Tensor] | None = None
        #: Raised after the batches in `_ahead` are returned.
        self._failure: Exception | None = None

    def __iter__(self) -> DeviceBatches:
        # If the previous iteration raised a failure, this one continues after the last batch.
        if not self._ahead and self._failure is None and self._batches._end() == "failed":
            self.set_state(self._state)
        return self

    def __next__(self) -> dict[str, jax.Array]:
        while self._failure is None and len(self._ahead) <= self._depth:
            try:
                if self._untransferred is None:
                    self._untransferred = next(self._batches)
                arrays = global_batch(self._untransferred, self._sharding)
                self._ahead.append((arrays, self._batches.get_state()))
                self._untransferred = None
            except Exception as error:
                self._failure = error
        if not self._ahead:
            failure, self._failure = self._failure, None
            if isinstance(failure, StopIteration):
                self._state = self._batches.get_state()
            assert failure is not None
            raise failure
        arrays, self._state = self._ahead.popleft()
        return arrays

    def get_state(self) -> bytes:
        """The state after the last batch that was returned."""
        return self._state

    def set_state(self, state: Any) -> None:
        """Restores a state: the next batch is the first batch after the state."""
        self._batches.set_state(state)
        self._begin()

    def state_dict(self) -> dict[str, Any]:
        """The same as `get_state`, in the form of torchdata."""
        return {"shardstream": self._state.decode()}

    def load_state_dict(self, state: Any) -> None:
        """The same as `set_state`, under torchdata's name."""
        self.set_state(state)
