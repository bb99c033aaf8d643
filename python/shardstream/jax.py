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
    all steps: another one of the same loader begins after what this one has transferred.
    """

    def __init__(self, loader: Loader | Batches, sharding: jax.sharding.Sharding, depth: int = 2) -> None:
        self._batches, self._sharding, self._depth = iter(loader), sharding, depth
        self._state = self._batches.get_state()
        self._ahead: deque[tuple[dict[str, jax.Array], bytes]] = deque()

    def __next__(self) -> dict[str, jax.Array]:
        while len(self._ahead) <= self._depth:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._ahead.append((global_batch(batch, self._sharding), self._batches.get_state()))
        if not self._ahead:
            self._state = self._batches.get_state()
            raise StopIteration
        arrays, self._state = self._ahead.popleft()
        return arrays

    def get_state(self) -> bytes:
        """The position after the last batch that was returned."""
        return self._state

    def set_state(self, state: Any) -> None:
        """Continues after a state with the next batch."""
        self._batches.set_state(state)
        self._ahead.clear()
        self._state = self._batches.get_state()

    def state_dict(self) -> dict[str, Any]:
        """As `get_state`, as torchdata has it."""
        return {"shardstream": self._state.decode()}

    def load_state_dict(self, state: Any) -> None:
        """As `set_state`."""
        self.set_state(state)
