"""What is done to pictures, named as in torchvision. Sizes are `(height, width)`, or a number for a
square."""

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
    """Resizes the shorter side to a number of pixels, or to a size whatever the ratio of the picture."""

    size: Size
    max_size: int | None = None
    filter: Filter = "bilinear"


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the picture at its centre. A smaller picture gets black borders."""

    size: Size


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Crops the picture at a random place, after adding a border of `padding` pixels."""

    size: Size
    padding: Size = 0
    pad_if_needed: bool = False
    fill: Color = (0, 0, 0)


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Crops a random part of the picture and resizes it."""

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: Filter = "bilinear"


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Flips the picture with the probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue, each by a random factor; a number, or a range of
    factors."""

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
    """Overwrites a random rectangle with a colour, or with `"random"` values, with the probability `p`."""

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: Color | Literal["random"] = (0, 0, 0)


@dataclass(frozen=True)
class RandAugment(Transform):
    """Applies `num_ops` of fourteen operations, all with one magnitude."""

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
