"""What is in a batch, for NumPy and for Python itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._core import Tensor

if TYPE_CHECKING:
    import numpy


def numpy_batch(batch: Mapping[str, Tensor]) -> dict[str, numpy.ndarray[Any, Any]]:
    """The batch as NumPy arrays that share its memory."""
    return {name: tensor.numpy() for name, tensor in batch.items()}


def pieces(batch: Mapping[str, Tensor], name: str) -> list[memoryview]:
    """The bytes or numbers of each sample in a tensor of samples of any length: of `Blob`, `Text` or
    `Ragged`."""
    whole, offsets = memoryview(batch[name]), memoryview(batch[f"{name}.offsets"]).tolist()
    return [whole[begin:end] for begin, end in zip(offsets, offsets[1:])]


def strings(batch: Mapping[str, Tensor], name: str) -> list[str]:
    """The text of each sample: of `Text`, `Key` or `Shard`."""
    return [str(piece, "utf-8") for piece in pieces(batch, name)]
