"""Prints Pillow's results for the cases of a request: the size and the pixels of each, or null if Pillow has no such
function.

For images that are not tensors, torchvision makes the same calls of Pillow.
"""

import json
import sys

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

ENHANCE = {
    "adjust_brightness": ImageEnhance.Brightness,
    "adjust_contrast": ImageEnhance.Contrast,
    "adjust_saturation": ImageEnhance.Color,
    "adjust_sharpness": ImageEnhance.Sharpness,
}
FILTERS = {
    "Nearest": Image.Resampling.NEAREST,
    "Bilinear": Image.Resampling.BILINEAR,
    "Bicubic": Image.Resampling.BICUBIC,
    "Lanczos": Image.Resampling.LANCZOS,
}


def hue(image, turns):
    if image.mode == "L":
        return image
    h, s, v = image.convert("HSV").split()
    h = np.array(h) + np.int32(turns * 255).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(h), s, v)).convert("RGB")


def linear_light(image, size):
    """Pillow's LANCZOS in linear light (sRGB), with values clipped to the range of light after each direction."""
    encoded = np.asarray(image, np.float64).reshape(image.height, image.width, -1) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    channels = []
    for channel in np.moveaxis(linear, 2, 0):
        for step in ((size[0], image.height), size):
            light = Image.fromarray(channel.astype(np.float32)).resize(step, Image.Resampling.LANCZOS)
            channel = np.clip(np.asarray(light, np.float64), 0, 1)
        channels.append(channel)
    linear = np.stack(channels, 2)
    encoded = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    pixels = np.rint(encoded * 255).astype(np.uint8)
    return Image.fromarray(pixels[:, :, 0] if image.mode == "L" else pixels)


def apply(image, name, parameters):
    if name == "Shrink":
        return linear_light(image, tuple(parameters))
    if name in ENHANCE:
        return ENHANCE[name](image).enhance(parameters[0])
    if name == "adjust_hue":
        return hue(image, parameters[0])
    if name == "posterize":
        return ImageOps.posterize(image, parameters[0]) if parameters[0] > 0 else None
    if name == "solarize":
        # torchvision rounds the threshold to float32 when it compares a tensor with it.
        return ImageOps.solarize(image, float(np.float32(parameters[0])))
    if name in ("invert", "autocontrast", "equalize"):
        return getattr(ImageOps, name)(image)
    if name == "rgb_to_grayscale":
        return image.convert("L").convert(image.mode)
    if name == "Resize":
        x, y, width, height, to_width, to_height, filter = parameters
        part = image.crop((x, y, x + width, y + height))
        return part.resize((to_width, to_height), FILTERS[filter])
    if name == "crop":
        x, y, width, height = parameters
        return image.crop((x, y, x + width, y + height))
    # Interpolating filters: at the border of an image, Pillow's values differ from those of torchvision's
    # tensors.
    if "Nearest" not in parameters or len(parameters) > 2:
        return None
    amount = parameters[0]
    matrix = {
        "rotate": None,
        "ShearX": (1, amount, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, amount, 1, 0),
        "TranslateX": (1, 0, -int(amount), 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, -int(amount)),
    }[name]
    if matrix is None:
        return image.rotate(amount, Image.Resampling.NEAREST)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def picture(it):
    mode = {1: "L", 3: "RGB"}[it["channels"]]
    return Image.frombytes(mode, (it["width"], it["height"]), bytes.fromhex(it["pixels"]))


request = json.load(open(sys.argv[1]))
pictures = [picture(it) for it in request["pictures"]]
results = []
for at, name, parameters in request["cases"]:
    image = apply(pictures[at].copy(), name, parameters)
    results.append(image and [list(image.size), image.tobytes().hex()])
print(json.dumps(results))
