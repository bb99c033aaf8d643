"""Transforms of pictures, named as in torchvision. Sizes are `(height, width)`, or a number for a square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Size = int | tuple[int, int]
Filter = Literal["nearest", "bilinear", "bicubic", "lanczos"]
Color = tuple[int, int, int]
PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]


class Transform:
    """A transform of a picture."""


@dataclass(frozen=True)
class Resize(Transform):
    """Resizes the picture. With a number, the shorter side gets this number of pixels, and the longer side at
    most `max_size`; the ratio is kept. With a pair, the picture gets exactly this size."""

    size: Size
    max_size: int | None = None
    filter: Filter = "bilinear"


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the picture at its centre. A picture smaller than `size` gets black borders."""

    size: Size


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Adds a border of `padding` pixels, and crops the picture at a random position. The border has the
    colour `fill`, or repeats or mirrors the picture (`padding_mode`)."""

    size: Size
    padding: Size = 0
    pad_if_needed: bool = False
    fill: Color = (0, 0, 0)
    padding_mode: PaddingMode = "constant"


@dataclass(frozen=True)
class Pad(Transform):
    """Adds a border of `padding` pixels: a number for all sides, `(top and bottom, left and right)`, or
    `(left, top, right, bottom)`. The border has the colour `fill`, or repeats or mirrors the picture
    (`padding_mode`)."""

    padding: Size | tuple[int, int, int, int]
    fill: Color = (0, 0, 0)
    padding_mode: PaddingMode = "constant"


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
class RandomVerticalFlip(Transform):
    """Turns the picture upside down with the probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomApply(Transform):
    """Applies all of `transforms` with the probability `p`, and otherwise none of them."""

    transforms: Sequence[Transform]
    p: float = 0.5


@dataclass(frozen=True)
class RandomRotation(Transform):
    """Rotates the picture counter-clockwise about its centre. The angle is random in `degrees`: a range, or a
    number for the range from `-degrees` to `degrees`. With `expand`, the picture grows so that all of it
    stays visible; its size then depends on the angle."""

    degrees: float | tuple[float, float]
    expand: bool = False
    filter: Literal["nearest", "bilinear"] = "nearest"
    fill: Color = (0, 0, 0)


@dataclass(frozen=True)
class RandomAffine(Transform):
    """Rotates, moves, scales and shears the picture at random about its centre. `degrees` is a range of
    clockwise angles, or a number for the range from `-degrees` to `degrees`; `translate` has the largest
    shares of the width and the height; `scale` is a range of factors. `shear` is a number or range of degrees
    along the rows, or `(from, to, from, to)` along the rows and the columns."""

    degrees: float | tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: float | tuple[float, float] | tuple[float, float, float, float] | None = None
    filter: Literal["nearest", "bilinear"] = "nearest"
    fill: Color = (0, 0, 0)


@dataclass(frozen=True)
class RandomPerspective(Transform):
    """Draws the picture in a random perspective with the probability `p`. Corners move inwards by up to
    `distortion_scale` times half of the side."""

    distortion_scale: float = 0.5
    p: float = 0.5
    filter: Literal["nearest", "bilinear"] = "bilinear"
    fill: Color = (0, 0, 0)


@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blurs the picture by a kernel of this size, which must be odd. `sigma` is the standard deviation in
    pixels: a number, or a range from which a random number is drawn."""

    kernel_size: Size
    sigma: float | tuple[float, float] = (0.1, 2.0)


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
class AutoAugment(Transform):
    """Applies one of 25 pairs of operations that were learned on a dataset."""

    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"
    filter: Literal["nearest", "bilinear"] = "nearest"
    fill: Color = (0, 0, 0)


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
