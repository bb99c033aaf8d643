"""Transforms of pictures, named as in torchvision. Sizes are `(height, width)`, or a number for a square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = int | tuple[int, int]
Filter = Literal["nearest", "bilinear", "bicubic", "lanczos"]
Color = tuple[int, int, int]


class Transform:
    """A transform of a picture."""


@dataclass(frozen=True)
class Resize(Transform):
    """Resizes the picture. With a number, the shorter side gets this many pixels, and the longer one at most
    `max_size`; the ratio is kept. With a pair, the picture gets exactly this size."""

    size: Size
    max_size: int | None = None
    filter: Filter = "bilinear"


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the picture at its centre. A picture smaller than `size` gets black borders."""

    size: Size


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Adds a border of `padding` pixels, and crops the picture at a random position."""

    size: Size
    padding: Size = 0
    pad_if_needed: bool = False
    fill: Color = (0, 0, 0)


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Crops a random part of the picture, with a share `scale` of its area, and resizes it to `size`."""

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: Filter = "bilinear"


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Mirrors the picture left to right with the probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue at random. Each option is a number, as in
    torchvision, or a range of factors (of shifts for `hue`)."""

    brightness: float | tuple[float, float] = 0
    contrast: float | tuple[float, float] = 0
    saturation: float | tuple[float, float] = 0
    hue: float | tuple[float, float] = 0


@dataclass(frozen=True)
class RandomGrayscale(Transform):
    """Removes the colours with the probability `p`."""

    p: float = 0.1


@dataclass(frozen=True)
class RandomErasing(Transform):
    """With the probability `p`, overwrites a random rectangle with a colour, or with `"random"` values."""

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: Color | Literal["random"] = (0, 0, 0)


@dataclass(frozen=True)
class RandAugment(Transform):
    """Applies `num_ops` of fourteen operations, all with the same magnitude."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    filter: Filter = "nearest"
    fill: Color = (0, 0, 0)


@dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """Applies one of fourteen operations with a random magnitude."""

    num_magnitude_bins: int = 31
    filter: Filter = "nearest"
    fill: Color = (0, 0, 0)
