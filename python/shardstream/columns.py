"""The tensors of a batch: each column reads a field of a sample into one or more of them.

A field is named by its extension, such as `"jpg"`; of alternatives that are separated by semicolons,
`"jpg;png"`, the first one that a sample has is read. Types of numbers are names, or types of NumPy, torch
or JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .errors import ConfigError
from .transforms import Size, Transform

DType = Any


class Column:
    """A column of a batch."""


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """The boxes of a picture, which are cropped, flipped and resized with it: tensors with the suffixes
    `.boxes` and, if there are labels, `.labels`, for all samples one after the other, and
    `.boxes.offsets`, where those of each begin. `fixed` makes tensors of a fixed shape instead, and
    `.boxes.present`."""

    field: str
    raw: DType | None = None
    named: str | None = None
    at: str | None = None
    format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    relative: bool = False
    labels: str | None = None
    labels_at: str | None = None
    min_visible: float = 0.0
    min_size: float = 0.0
    fixed: int | None = None
    truncate: bool = False


@dataclass(frozen=True, kw_only=True)
class Mask:
    """The label image of a picture, which is cropped, flipped and resized with it: a tensor with the
    suffix `.mask`."""

    field: str
    dtype: DType = "uint8"
    fill: int = 0


@dataclass(frozen=True)
class Image(Column):
    """Pictures: JPEG, PNG, WebP or PNM files, decoded, transformed and written into the batch.

    `size` is that after the `transforms`; a picture of another size is an error. `dtype` is `uint8`, 0 to
    255, or `float32`, `bfloat16` or `float16`, 0 to 1, of which `normalize=(mean, std)` subtracts the mean
    of each channel and divides by its deviation. `layout` is `hwc` or `chw`. `mode` is `rgb8` or `l8`, or
    `l16` or `rgb16` for files of 16 bits. Random numbers depend on the seed, the epoch, the sample and the
    name of the column; `same_as` takes those of another column."""

    size: Size
    field: str = "jpg;jpeg;png;webp"
    _: dataclasses.KW_ONLY
    transforms: Sequence[Transform] = ()
    layout: Literal["hwc", "chw"] = "hwc"
    dtype: DType = "uint8"
    normalize: tuple[Sequence[float], Sequence[float]] | None = None
    mode: Literal["rgb8", "l8", "l16", "rgb16"] = "rgb8"
    apply_orientation: bool = False
    reducing_gap: float = 2.0
    verify: bool = True
    max_size: int = 512 << 20
    boxes: Boxes | None = None
    mask: Mask | None = None
    same_as: str | None = None


@dataclass(frozen=True)
class RaggedImages(Column):
    """All pictures of a sample, such as `0.jpg`, `1.jpg`: the field of `image` may have a `*`. A tensor of
    all pictures, and `.offsets`, where those of each sample begin."""

    image: Image
    max: int | None = None


@dataclass(frozen=True)
class Scalar(Column):
    """One number for each sample: a class label, an age. The field is text with a number in it, or with
    `at` a JSON document and the pointer to the number, such as `/person/age`."""

    field: str
    dtype: DType = "int64"
    at: str | None = None


@dataclass(frozen=True)
class Array(Column):
    """An array of one shape and type: an npy file, a JSON list, with `raw` bytes and nothing else, or with
    `named` a tensor of a safetensors file."""

    field: str
    dtype: DType
    shape: Sequence[int]
    _: dataclasses.KW_ONLY
    raw: bool = False
    named: str | None = None


@dataclass(frozen=True)
class Tokens(Column):
    """Sequences of whole numbers, padded to `length`, and their `.lengths`; with `mask`, also `.mask`,
    which is true where a number is not padding. The field is an npy file or a JSON list; with `raw` bytes
    of that type; with `named` a tensor of a safetensors file; with `at` a list in a JSON document. A
    longer sequence is an error, or is truncated."""

    field: str
    length: int
    dtype: DType = "int32"
    _: dataclasses.KW_ONLY
    raw: DType | None = None
    named: str | None = None
    at: str | None = None
    pad: int = 0
    mask: bool = False
    truncate: bool = False


@dataclass(frozen=True)
class PackedTokens(Column):
    """The sequences of a batch, packed into `rows` rows of `length`: the numbers, `.segments` (1, 2, … in
    each row, 0 for padding) and `.positions`. The options are those of `Tokens`; `drop_rest` drops
    sequences for which there is no room, and counts them in `.dropped`."""

    field: str
    rows: int
    length: int
    dtype: DType = "int32"
    _: dataclasses.KW_ONLY
    raw: DType | None = None
    named: str | None = None
    at: str | None = None
    pad: int = 0
    truncate: bool = False
    drop_rest: bool = False


@dataclass(frozen=True)
class Ragged(Column):
    """Sequences of any length: the numbers of all samples, and `.offsets`, where those of each begin."""

    field: str
    dtype: DType
    _: dataclasses.KW_ONLY
    raw: DType | None = None
    named: str | None = None
    at: str | None = None


@dataclass(frozen=True)
class Text(Column):
    """Text as UTF-8 bytes of all samples, and `.offsets`: see `shardstream.strings`. With `at`, a text of
    a JSON document."""

    field: str
    at: str | None = None


@dataclass(frozen=True)
class Blob(Column):
    """The bytes of a field as they are stored, of all samples, and `.offsets`: see `shardstream.pieces`."""

    field: str


@dataclass(frozen=True)
class Key(Column):
    """The keys of the samples, as text."""


@dataclass(frozen=True)
class Shard(Column):
    """The URLs of the samples' shards, as text."""


@dataclass(frozen=True)
class Position(Column):
    """The positions of the samples in their dataset: epoch, shard and number in the shard."""


@dataclass(frozen=True)
class Optional(Column):
    """A column of a field that samples may lack. They get zeros, or what the column makes of `default`;
    `.present` says which samples have the field."""

    column: Column
    default: Any = None


@dataclass(frozen=True)
class Stack(Column):
    """Several fields of a sample in one tensor, `[samples, fields, …]`, each read as `column` says, and
    `.present`. The fields draw the same random numbers unless they are `independent`."""

    fields: Sequence[str]
    column: Column
    independent: bool = False


#: The fields that are a column by their name alone.
_LABELS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")


def column(name: str, value: Column | str) -> Column:
    """The column of this name: `"cls"` is short for `Scalar("cls")`, `"txt"` for `Text("txt")`."""
    if isinstance(value, Column):
        return value
    if isinstance(value, str) and value in _LABELS:
        return Scalar(value)
    if isinstance(value, str) and value in _TEXTS:
        return Text(value)
    raise ConfigError(
        f"column {name!r}: {value!r} does not say what is in the field: give a column, such as "
        f"Scalar({value!r}) or Blob({value!r})",
        kind="config",
    )
