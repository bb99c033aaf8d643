"""Batches for PyTorch: an iterable dataset for `torch.utils.data.DataLoader(dataset, batch_size=None)`,
Lightning and torch-tpu."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from ._core import Tensor
from .errors import ConfigError
from .loader import Batches, Loader, Report


def torch_batch(batch: Mapping[str, Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a batch as torch tensors that share their memory."""
    return {name: torch.from_dlpack(tensor) for name, tensor in batch.items()}


class StreamDataset(IterableDataset[dict[str, torch.Tensor]]):
    """The batches of a `Loader` as a dataset: `StreamDataset(urls, columns=…, batch=…)`, with the loader's
    options, or `StreamDataset(loader)`.

    Use it with `DataLoader(dataset, batch_size=None, num_workers=0)`: the loader has threads of its own and
    returns batches. `state_dict` returns the state after the last batch that the `DataLoader` has returned.
    Trainers that fetch one batch in advance, such as Lightning and accelerate, still train on the batch
    before that one.
    """

    def __init__(self, loader: Any, *args: Any, **options: Any) -> None:
        self.loader = loader if isinstance(loader, Loader) else Loader(loader, *args, **options)

    def __iter__(self) -> TorchBatches:
        if get_worker_info() is not None:
            raise ConfigError(
                "a StreamDataset in a worker process: use DataLoader(dataset, batch_size=None, "
                "num_workers=0), since the loader has threads of its own",
                kind="config",
            )
        return TorchBatches(iter(self.loader))

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """See `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)

    def report(self) -> Report | None:
        """See `Loader.report`."""
        return self.loader.report()


class TorchBatches(Iterator[dict[str, torch.Tensor]]):
    """The iterator over a loader's batches as torch tensors, and its state."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __next__(self) -> dict[str, torch.Tensor]:
        return torch_batch(next(self.batches))

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch that was returned."""
        return self.batches.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Restores a state: the next batch is the first batch after the state."""
        self.batches.load_state_dict(state)
