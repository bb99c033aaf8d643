"""Writes torchvision's results for given parameters: `results.json` here, and `magnitudes.json` of the image crate.

Run it with the release of torchvision that the files name. Pixels are rows of hexadecimal numbers.
"""

import json
from pathlib import Path

import numpy as np
import torch
import torchvision
from torchvision.transforms import v2
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F

HERE = Path(__file__).parent
IMAGE = HERE.parents[2] / "crates/image/tests/data"


def magnitudes():
    cases = []
    for transform in (v2.RandAugment, v2.TrivialAugmentWide):
        for bins, width, height in [(31, 224, 160), (31, 13, 11), (10, 32, 331), (2, 7, 5)]:
            ops = []
            for name, (of, signed) in transform._AUGMENTATION_SPACE.items():
                numbers = of(bins, height, width)
                numbers = None if numbers is None else [float(number) for number in numbers]
                ops.append({"name": name, "signed": signed, "magnitudes": numbers})
            case = {"transform": transform.__name__, "bins": bins, "width": width, "height": height}
            cases.append({**case, "ops": ops})
    return cases


def picture(kind, channels, width, height):
    rng = np.random.default_rng(7)
    if kind == "noise":
        return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    planes = [40 + x * 11, 200 - y * 9, 100 + 40 * np.sin(x / 3) * np.cos(y / 2)]
    return np.stack(planes[:channels], axis=2).astype(np.uint8)


NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
FILTERS = {"Nearest": NEAREST, "Bilinear": BILINEAR}


def operations():
    """Yields (name, parameters, the function to call with an image)."""
    for factor in [0.0, 0.1, 0.5, 0.73, 1.0, 1.27, 1.9, 2.0]:
        for name in ["brightness", "contrast", "saturation", "sharpness"]:
            yield f"adjust_{name}", [factor], lambda p, f=getattr(F, f"adjust_{name}"), x=factor: f(p, x)
    for turns in [-0.5, -0.21, -0.05, 0.0, 0.1, 1 / 3, 0.5]:
        yield "adjust_hue", [turns], lambda p, x=turns: F.adjust_hue(p, x)
    for bits in range(9):
        yield "posterize", [bits], lambda p, x=bits: F.posterize(p, x)
    for threshold in [0.0, 0.5, 127.0, 178.5, 204.00000304, 255.0]:
        yield "solarize", [threshold], lambda p, x=threshold: F.solarize(p, x)
    for name in ["invert", "autocontrast", "equalize"]:
        yield name, [], getattr(F, name)
    yield "rgb_to_grayscale", [], lambda p: F.rgb_to_grayscale(p, p.shape[0])
    for label, mode in FILTERS.items():
        for degrees in [-135.0, -90.0, -30.0, -9.0, 4.5, 17.0, 180.0]:
            yield "rotate", [degrees, label], lambda p, x=degrees, m=mode: F.rotate(p, x, interpolation=m)
    # Only nearest: with a fill colour, torchvision's bilinear interpolation weighs the border pixels twice.
    yield "rotate", [20.0, "Nearest", [10, 200, 90]], lambda p: F.rotate(p, 20.0, fill=[10, 200, 90][: p.shape[0]])
    for label, mode in FILTERS.items():
        for op in ["ShearX", "ShearY", "TranslateX", "TranslateY"]:
            for magnitude in [-0.73, 0.09, 0.3] if "Shear" in op else [-4.9, 3.0, 32.0]:
                augment = v2.RandAugment(interpolation=mode)
                yield op, [magnitude, label], lambda p, a=augment, o=op, x=magnitude, m=mode: (
                    a._apply_image_or_video_transform(p, o, x, m, a._fill)
                )
    for size in [(5, 7), (8, 6), (11, 13), (12, 5), (16, 18), (30, 3)]:
        yield "CenterCrop", size, lambda p, s=size: F.center_crop(p, list(s))


def results():
    hexed = lambda array: array.astype(np.uint8).tobytes().hex()
    pictures, cases = [], []
    for kind, channels, width, height in [("noise", 3, 13, 11), ("smooth", 3, 12, 10), ("noise", 1, 13, 11)]:
        pixels = picture(kind, channels, width, height)
        at = len(pictures)
        pictures.append({"channels": channels, "width": width, "height": height, "pixels": hexed(pixels)})
        tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        for name, parameters, apply in operations():
            if channels == 1 and len(parameters) == 3:
                continue  # one number there, three here
            out = apply(tensor).permute(1, 2, 0).numpy()
            size = [out.shape[1], out.shape[0]]
            cases.append([at, name, parameters, size, hexed(out)])
    return {"torchvision": torchvision.__version__, "pictures": pictures, "cases": cases}


def write(path, value):
    text = json.dumps(value) if isinstance(value, dict) else ",\n".join(map(json.dumps, value)).join(["[", "]"])
    path.write_text(text.replace("]], [", "]],\n[").replace('"], [', '"],\n[') + "\n")


write(IMAGE / "magnitudes.json", magnitudes())
write(HERE / "results.json", results())
