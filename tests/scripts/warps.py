"""Prints torchvision's results for images and random parameters: `warps.py SEED COUNT`.

`tests/data/transforms/warps.json` is the output of `warps.py 1 2`. The calls, on tensors, exist in torchvision 0.14 and
all later releases.
"""

import json
import sys

import torch
import torchvision
from torchvision.transforms import functional as F
from torchvision.transforms import transforms as T
from torchvision.transforms.functional import InterpolationMode

SEED, COUNT = int(sys.argv[1]), int(sys.argv[2])
MODES = {"Nearest": InterpolationMode.NEAREST, "Bilinear": InterpolationMode.BILINEAR}
torch.manual_seed(SEED)


def uniform(low, high):
    return float(torch.empty(1, dtype=torch.float64).uniform_(low, high))


def below(most):
    return int(torch.randint(0, most + 1, ()))


def cases(width, height):
    """Yields (name, parameters, the function to call with an image)."""
    yield "vflip", [], F.vflip
    for label, mode in MODES.items():
        shear = [uniform(-20, 20), uniform(-20, 20)]
        angle, scale = uniform(-180, 180), uniform(0.5, 2)
        yield "affine", [angle, scale, *shear, label], lambda p: F.affine(p, angle, [0, 0], scale, shear, mode)
        start, end = T.RandomPerspective.get_params(width, height, uniform(0, 1))
        yield "perspective", [start, end, label], lambda p: F.perspective(p, start, end, interpolation=mode)
        yield "expand", [angle, label], lambda p: F.rotate(p, angle, interpolation=mode, expand=True)
    kernel, sigma = [2 * below(3) + 1, 2 * below(3) + 1], uniform(0.1, 3)
    yield "gaussian_blur", [*kernel, sigma], lambda p: F.gaussian_blur(p, kernel, [sigma, sigma])
    for mode in ["constant", "edge", "reflect", "symmetric"]:
        sides = [below(7) for _ in range(4)]
        yield "pad", [sides, mode], lambda p: F.pad(p, sides, padding_mode=mode)
    size = [1 + below(height - 1), 1 + below(width - 1)]
    for at in range(5):
        yield "five_crop", [*size, at], lambda p: F.five_crop(p, size)[at]
    for vertical in [False, True]:
        at = below(9)
        yield "ten_crop", [*size, vertical, at], lambda p: F.ten_crop(p, size, vertical)[at]


def hexed(tensor):
    return tensor.permute(1, 2, 0).contiguous().numpy().tobytes().hex()


pictures, results = [], []
for channels, width, height in [(3, 12, 9), (1, 8, 10)]:
    # A smooth image: if a position between two pixels is rounded differently, the value is nearly the same.
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    planes = [40 + x * 11, 200 - y * 9, 100 + 40 * torch.sin(x / 3) * torch.cos(y / 2)]
    picture = torch.stack([plane.to(torch.uint8) for plane in planes[:channels]])
    at = len(pictures)
    pictures.append({"channels": channels, "width": width, "height": height, "pixels": hexed(picture)})
    for _ in range(COUNT):
        for name, parameters, apply in cases(width, height):
            out = apply(picture)
            results.append([at, name, parameters, [out.shape[2], out.shape[1]], hexed(out)])
print(f'{{"torchvision": "{torchvision.__version__}", "pictures": {json.dumps(pictures)}, "cases": [')
print(",\n".join(map(json.dumps, results)) + "]}")
