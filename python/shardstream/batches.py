"""Functions that turn the tensors of a batch into NumPy arrays, bytes and strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._core import Tensor

if TYPE_CHECKING:
    import numpy


def numpy_batch(batch: Mapping[str, Tensor]) -> dict[str, numpy.ndarray[Any, Any]]:
    """The tensors of a batch as NumPy arrays that share their memory."""
    return {name: tensor.numpy() for name, tensor in batch.items()}


def pieces(batch: Mapping[str, Tensor], name: str) -> list[memoryview]:
    """The bytes or numbers of each sample, of a column whose samples have any length: `Blob`, `Text` or
    `Ragged`. Each view shares the memory of the batch."""
    whole, offsets = memoryview(batch[name]), memoryview(batch[f"{name}.offsets"]).tolist()
    return [whole[begin:end] for begin, end in zip(offsets, offsets[1:])]


def strings(batch: Mapping[str, Tensor], name: str) -> list[str]:
    """The text of each sample, of a column `Text`, `Key` or `Shard`."""
    return [str(piece, "utf-8") for piece in pieces(batch, name)]
