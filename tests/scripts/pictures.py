"""Writes various images, and Pillow's results for them, into a folder.

Prints a list of cases: the image file, the mode, the steps, and the file with the resulting pixels.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

OUT = Path(sys.argv[1])
RNG = np.random.default_rng(20240301)
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
cases = []


def photo(width, height):
    """Gradients, edges and a little noise, as in photographs."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [x * 255 / width, y * 255 / height, 128 + 100 * np.sin(x / 19) * np.cos(y / 17)]
    picture = np.stack(planes, axis=2)
    picture[height // 3 : height // 2, width // 4 : width // 2] = [230, 40, 60]
    picture[(x - width * 0.7) ** 2 + (y - height * 0.6) ** 2 < (height / 6) ** 2] = [20, 60, 200]
    picture += RNG.normal(0, 4, picture.shape)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))


def apply(picture, step):
    name, *numbers = step
    if name == "crop":
        x, y, width, height = numbers
        return picture.crop((x, y, x + width, y + height))
    if name == "resize":
        width, height, kind = numbers
        return picture.resize((width, height), FILTERS[kind])
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def case(name, mode, steps, picture):
    for step in steps:
        picture = apply(picture, step)
    wanted = f"{len(cases)}.raw"
    (OUT / wanted).write_bytes(np.asarray(picture).tobytes())
    size = list(picture.size)
    cases.append({"file": name, "mode": mode, "steps": steps, "size": size, "wanted": wanted})


def sequences(width, height):
    """The transforms that loaders apply to images of this size."""
    part = [width // 5, height // 7, width // 2, height * 3 // 5]
    yield []
    yield [["flip"]]
    yield [["crop", *part]]
    yield [["crop", *part], ["flip"]]
    yield [["crop", 0, 0, width, max(1, height // 3)]]
    yield [["crop", width - 1, height - 1, 1, 1]]
    yield [["flip"], ["crop", *part], ["crop", 1, 2, part[2] // 2, part[3] // 2], ["flip"]]
    for kind in FILTERS:
        yield [["crop", *part], ["resize", 24, 20, kind]]
    yield [["crop", *part], ["flip"], ["resize", 2 * part[2], part[3] + 5, "bicubic"]]
    yield [["resize", 40, 40, "bilinear"], ["crop", 4, 4, 32, 32]]
    yield [["resize", 40, 36, "lanczos"], ["flip"], ["crop", 1, 3, 30, 20]]
    yield [["crop", *part], ["resize", 32, 30, "bilinear"], ["resize", 16, 16, "bilinear"]]


def every(name, picture):
    """All sequences of transforms for a file in colour, and one sequence in grey."""
    for steps in sequences(*picture.size):
        case(name, "rgb8", steps, picture.convert("RGB"))
    steps = [["crop", 3, 2, picture.width // 2, picture.height // 2], ["resize", 17, 13, "bilinear"]]
    case(name, "l8", steps, picture.convert("L"))


def save(name, picture, **kwargs):
    picture.save(OUT / name, **kwargs)
    with Image.open(OUT / name) as opened:
        opened.load()
        every(name, opened)


large, odd = photo(397, 301), photo(97, 61)
save("rgb.png", odd)
save("grey.png", odd.convert("L"))
save("alpha.png", odd.convert("RGBA"))
save("grey-alpha.png", odd.convert("LA"))
save("palette.png", odd.quantize(100))
save("bilevel.png", odd.convert("1"))
save("lossless.webp", odd, lossless=True)
save("rgb.ppm", odd)
# The formats of the feature `image-formats`.
for kind in ["bmp", "gif", "tiff", "qoi"]:
    save(f"formats.{kind}", odd)
# Pillow clips 16-bit grey values to 8 bits; this crate scales and rounds them.
deep = RNG.integers(0, 65536, (61, 97), dtype=np.uint16)
Image.fromarray(deep).save(OUT / "deep.png")
every("deep.png", Image.fromarray(np.round(deep / 257).astype(np.uint8)))

for subsampling in ["4:4:4", "4:2:2", "4:2:0"]:
    for progressive in [False, True]:
        name = f"{subsampling.replace(':', '')}{'-progressive' if progressive else ''}.jpg"
        save(name, large, quality=90, subsampling=subsampling, progressive=progressive)
save("optimized.jpg", large, quality=75, optimize=True)
save("restart-rows.jpg", large, quality=85, restart_marker_rows=1)
save("restart-blocks.jpg", large, quality=85, restart_marker_blocks=5)
save("restart-progressive.jpg", large, quality=85, restart_marker_rows=2, progressive=True)
save("grey.jpg", large.convert("L"), quality=85)
save("cmyk.jpg", large.convert("CMYK"), quality=90)
save("rgb.jpg", large, quality=90, keep_rgb=True)
save("odd.jpg", odd, quality=90)
save("wide.jpg", photo(401, 24), quality=90)
save("high.jpg", photo(24, 401), quality=90)
# For images with one or two columns, libjpeg upsamples colours in another way than for wider images.
for width in range(1, 5):
    for height in [1, 2, 3, 5, 17, 40]:
        for subsampling in ["4:2:2", "4:2:0"]:
            for progressive in [False, True]:
                name = f"tiny-{len(cases)}.jpg"
                tiny = Image.fromarray(RNG.integers(0, 256, (height, width, 3), dtype=np.uint8))
                tiny.save(OUT / name, quality=90, subsampling=subsampling, progressive=progressive)
                with Image.open(OUT / name) as opened:
                    case(name, "rgb8", [], opened.convert("RGB"))
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(f"exif-{orientation}.jpg", odd, quality=90, exif=exif)

print(json.dumps(cases))
