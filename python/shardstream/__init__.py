"""Streams WebDataset tar shards into PyTorch, JAX and NumPy.

A `Loader` reads, shuffles, decodes and batches shards on threads of its own, outside of the interpreter. Its batches are
dictionaries of tensors in memory that NumPy, torch and JAX share without a copy.
"""

from . import errors
from ._core import Tensor, __version__
from .batches import numpy_batch, pieces, strings
from .columns import (
    Array,
    Blob,
    Boxes,
    Column,
    Image,
    Key,
    Mask,
    Optional,
    PackedTokens,
    Position,
    Ragged,
    RaggedImages,
    Scalar,
    Shard,
    Stack,
    Text,
    Tokens,
)
from .errors import (
    ConfigError,
    DamageError,
    DecodeError,
    Error,
    ForkedError,
    NotFoundError,
    StateError,
    StoreError,
    TooManySkippedError,
)
from .loader import Batches, Cache, Index, Loader, Report, Skip, merge_states
from .transforms import (
    CenterCrop,
    ColorJitter,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Transform,
    TrivialAugmentWide,
)

__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]
