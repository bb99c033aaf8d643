"""Batches for JAX: arrays over all devices of a job, ahead of the step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from ._core import Tensor
from .loader import Batches, Loader


def global_batch(batch: Mapping[str, Tensor], sharding: jax.sharding.Sharding) -> dict[str, jax.Array]:
    """The batch of all processes, of which `batch` is this one's part. Its tensors must have a fixed
    shape: those of ragged columns differ between processes."""
    make: Any = jax.make_array_from_process_local_data
    return {name: make(sharding, tensor.numpy()) for name, tensor in batch.items()}


class DeviceBatches(Iterator[dict[str, jax.Array]]):
    """The batches of a loader on the devices of a job, transferred up to `depth` steps ahead.

    Its state is that of the last batch which it has returned, whatever was transferred ahead. Use one for
    all steps: another one of the same loader begins after what this one has transferred. A failure is raised
    after the batches before it; a batch that could not be transferred is tried again.
    """

    def __init__(self, loader: Loader | Batches, sharding: jax.sharding.Sharding, depth: int = 2) -> None:
        self._batches, self._sharding, self._depth = iter(loader), sharding, depth
        self._begin()

    def _begin(self) -> None:
        self._state = self._batches.get_state()
        self._ahead: deque[tuple[dict[str, jax.Array], bytes]] = deque()
        # A batch that is not transferred yet, and what is raised after the batches ahead.
        self._taken: Mapping[str, Tensor] | None = None
        self._failure: Exception | None = None

    def __iter__(self) -> DeviceBatches:
        # After an outage, which an exception has reported.
        if not self._ahead and self._failure is None and self._batches._end() == "failed":
            self.set_state(self._state)
        return self

    def __next__(self) -> dict[str, jax.Array]:
        while self._failure is None and len(self._ahead) <= self._depth:
            try:
                if self._taken is None:
                    self._taken = next(self._batches)
                arrays = global_batch(self._taken, self._sharding)
                self._ahead.append((arrays, self._batches.get_state()))
                self._taken = None
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
        """The position after the last batch that was returned."""
        return self._state

    def set_state(self, state: Any) -> None:
        """Continues after a state with the next batch."""
        self._batches.set_state(state)
        self._begin()

    def state_dict(self) -> dict[str, Any]:
        """As `get_state`, as torchdata has it."""
        return {"shardstream": self._state.decode()}

    def load_state_dict(self, state: Any) -> None:
        """As `set_state`."""
        self.set_state(state)
