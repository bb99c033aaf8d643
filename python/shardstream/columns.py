"""Columns of a batch: each column reads a field of a sample into one or more tensors.

A field is named by its extension, such as `"jpg"`. Semicolons separate alternatives: `"jpg;png"` reads the
first of these fields that a sample has. Types of numbers are given by name, such as `"float32"`, or as a
type of NumPy, torch or JAX.
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
    """The boxes of a picture, which are cropped, flipped and resized with it.

    The tensor `.boxes`, and `.labels` if there are labels, have the boxes of all samples one after the other;
    `.boxes.offsets` says where the boxes of each sample begin. With `fixed`, the tensors have room for that
    number of boxes per sample instead, and `.boxes.present` says which entries are boxes."""

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
    """The label image of a picture, which is cropped, flipped and resized with it. The tensor is named
    `.mask`, after the name of the column."""

    field: str
    dtype: DType = "uint8"
    fill: int = 0


@dataclass(frozen=True)
class Image(Column):
    """Pictures: JPEG, PNG, WebP or PNM files, decoded, transformed and written into the batch.

    `size` is the size after the `transforms`; a picture of another size is an error. `dtype` is `uint8`
    (values 0 to 255), or `float32`, `bfloat16` or `float16` (values 0 to 1). For the three types of floats,
    `normalize=(mean, std)` subtracts the mean of each channel and divides by its standard deviation. `layout`
    is `hwc` or `chw`. `mode` is `rgb8` or `l8`, or `l16` or `rgb16` for files with 16 bits per channel. The
    random numbers of the transforms depend on the seed, the epoch, the sample and the name of the column;
    `same_as="other"` uses the random numbers of the column `other`."""

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
    """All pictures of a sample, such as `0.jpg` and `1.jpg`: the field of `image` may have a `*`. One tensor
    has the pictures of all samples; `.offsets` says where the pictures of each sample begin."""

    image: Image
    max: int | None = None


@dataclass(frozen=True)
class Scalar(Column):
    """One number per sample, such as a class label or an age. The field is a number as text. With `at`, the
    field is a JSON document, and `at` is the JSON pointer to the number, such as `/person/age`."""

    field: str
    dtype: DType = "int64"
    at: str | None = None


@dataclass(frozen=True)
class Array(Column):
    """An array whose shape and type are the same in every sample. The field is an npy file or a JSON list;
    with `raw`, the bytes of the numbers alone; with `named`, a safetensors file with a tensor of that
    name."""

    field: str
    dtype: DType
    shape: Sequence[int]
    _: dataclasses.KW_ONLY
    raw: bool = False
    named: str | None = None


@dataclass(frozen=True)
class Tokens(Column):
    """Sequences of whole numbers, padded to `length`. The tensor `.lengths` has their lengths; with `mask`,
    `.mask` is true where a number is not padding. The field is an npy file or a JSON list; with `raw`, the
    bytes of numbers of that type; with `named`, a safetensors file with a tensor of that name; with `at`, a
    JSON document with a list at that pointer. A longer sequence is an error; with `truncate`, it is cut."""

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
    """The sequences of a batch, packed into `rows` rows of `length`. `.segments` numbers the sequences of
    each row from 1 (0 is padding), and `.positions` has the position of each number in its sequence. The
    other options are those of `Tokens`. Sequences that do not fit into the rows are an error; with
    `drop_rest`, they are dropped, and `.dropped` has their number."""

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
    """Sequences of any length. One tensor has the numbers of all samples; `.offsets` says where the numbers
    of each sample begin. See `shardstream.pieces`."""

    field: str
    dtype: DType
    _: dataclasses.KW_ONLY
    raw: DType | None = None
    named: str | None = None
    at: str | None = None


@dataclass(frozen=True)
class Text(Column):
    """Text. One tensor has the UTF-8 bytes of all samples; `.offsets` says where the bytes of each sample
    begin. See `shardstream.strings`. With `at`, the field is a JSON document with a text at that pointer."""

    field: str
    at: str | None = None


@dataclass(frozen=True)
class Blob(Column):
    """The bytes of a field, unchanged. One tensor has the bytes of all samples; `.offsets` says where the
    bytes of each sample begin. See `shardstream.pieces`."""

    field: str


@dataclass(frozen=True)
class Key(Column):
    """The keys of the samples, as text."""


@dataclass(frozen=True)
class Shard(Column):
    """The URLs of the samples' shards, as text."""


@dataclass(frozen=True)
class Position(Column):
    """The positions of the samples in their dataset: `int64[samples, 4]`. The four numbers of a sample are
    its epoch, the number of its shard, its number in the shard, and its number among the outputs of a
    stage."""


@dataclass(frozen=True)
class Optional(Column):
    """A column of a field that samples may lack. A sample without the field gets zeros, or the value
    `default`, which `column` reads as if it were the field. `.present` says which samples have the
    field."""

    column: Column
    default: Any = None


@dataclass(frozen=True)
class Stack(Column):
    """Several fields of a sample in one tensor of the shape `[samples, fields, …]`. `column` reads each
    field; `.present` says which fields a sample has. The fields use the same random numbers unless
    `independent` is set."""

    fields: Sequence[str]
    column: Column
    independent: bool = False


#: Fields whose name says which column reads them: labels and texts.
_LABELS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")


def column(name: str, value: Column | str) -> Column:
    """Returns the column that `value` stands for: `"cls"` is short for `Scalar("cls")`, `"txt"` for
    `Text("txt")`."""
    if isinstance(value, Column):
        return value
    if isinstance(value, str) and value in _LABELS:
        return Scalar(value)
    if isinstance(value, str) and value in _TEXTS:
        return Text(value)
    raise ConfigError(
        f"column {name!r}: the name {value!r} does not imply how to read the field: give a column, such as "
        f"Scalar({value!r}) or Blob({value!r})",
        kind="config",
    )
