"""Writes tests/data/codec: files made by numpy and Pillow, with the values that these libraries read from
them.

Run it from the root of the repository with numpy 2 and Pillow 13. Next to each image is `NAME.npy`: per pixel, the
eight numbers L, R G B and R G B A that Pillow converts it to.
"""

import io
from pathlib import Path

import numpy as np
from PIL import Image

DATA = Path("tests/data/codec")
RNG = np.random.default_rng(20240229)


def npy():
    out = DATA / "npy"
    out.mkdir(parents=True, exist_ok=True)

    def save(name, array, **kwargs):
        np.save(out / f"{name}.npy", array, **kwargs)

    numbers = np.array([[0, 1, 2], [3, 100, 5]])
    for code in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?"]:
        save(f"plain-{np.dtype(code).name}", numbers.astype(code))
    save("plain-scalar", np.array(1.5))
    save("plain-one-axis", np.arange(1234567, dtype="u1")[:7])
    save("plain-empty", np.zeros((0, 3), "f4"))
    save("plain-many-axes", np.arange(2, dtype="i2").reshape((1,) * 31 + (2,)))
    # Pairs of files with the same content; the second is as this crate would write it.
    cube = RNG.normal(size=(2, 3, 4)).astype("f4")
    pairs = {
        "fortran": (np.asfortranarray(cube), cube),
        "big-endian": (cube.astype(">f4"), cube),
        "big-endian-fortran": (np.asfortranarray(numbers.astype(">i8")), numbers.astype("<i8")),
        "big-endian-half": (numbers.astype(">f2"), numbers.astype("<f2")),
    }
    for name, (first, second) in pairs.items():
        save(f"pair-{name}", first)
        save(f"pair-{name}.same", second)
    for version in [(2, 0), (3, 0)]:
        with open(out / f"pair-version{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, cube, version=version)
        save(f"pair-version{version[0]}.same", cube)
    save("pickle-objects", np.array([{}, None], dtype=object), allow_pickle=True)
    save("other-complex", numbers.astype("c8"))
    save("other-text", np.array(["a", "bc"]))
    save("other-bytes", np.array([b"a", b"bc"]))
    save("other-dates", np.array(["2024-02-29"], dtype="M8[D]"))
    save("other-structure", np.zeros(2, dtype=[("a", "<i2"), ("b", "<f4")]))

    arrays = {"a": numbers.astype("u1"), "b.c": cube}
    np.savez(DATA / "stored.npz", **arrays)
    np.savez_compressed(DATA / "compressed.npz", **arrays)


def writers(out):
    """Two functions: one writes Pillow's pixels of an image to the folder `out`, the other also writes the image."""
    out.mkdir(parents=True, exist_ok=True)

    def expect(name, image):
        planes = [np.asarray(image.convert(mode)) for mode in ("L", "RGB", "RGBA")]
        planes[0] = planes[0][:, :, None]
        np.save(out / f"{name}.npy", np.concatenate(planes, axis=2))

    def save(name, image, **kwargs):
        image.save(out / name, **kwargs)
        expect(name, Image.open(out / name))

    return expect, save


def formats():
    """Writes images in the formats of the feature `image-formats`."""
    _, save = writers(DATA / "formats")
    rng = np.random.default_rng(38)
    rgb, rgba = (Image.fromarray(rng.integers(0, 256, (5, 7, n), dtype=np.uint8)) for n in (3, 4))
    gray, palette = rgb.convert("L"), rgb.quantize(7)
    for name, image in {"rgb": rgb, "gray": gray, "palette": palette, "bilevel": gray.convert("1")}.items():
        save(f"{name}.bmp", image)
    save("palette.gif", palette)
    save("gray.gif", gray)
    save("transparent.gif", palette, transparency=2)
    save("animated.gif", palette, save_all=True, append_images=[rgb.rotate(180).quantize(5)])
    for name, image in {"rgb": rgb, "gray": gray, "rgba": rgba, "bilevel": gray.convert("1")}.items():
        for compression in ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]:
            save(f"{name}-{compression}.tiff", image, compression=compression)
    save("pages.tif", rgb, save_all=True, append_images=[gray])
    save("rgb.qoi", rgb)
    save("rgba.qoi", rgba)


def images():
    out = DATA / "images"
    expect, save = writers(out)

    def noise(*channels):
        return Image.fromarray(RNG.integers(0, 256, (5, 7, *channels), dtype=np.uint8))

    rgb, gray, la, rgba = noise(3), noise(), noise(2), noise(4)
    save("rgb.png", rgb)
    save("gray.png", gray)
    save("la.png", la)
    save("rgba.png", rgba)
    save("bilevel.png", gray.convert("1"))
    save("palette.png", rgb.quantize(7))
    save("palette-transparent.png", rgb.quantize(7), transparency=bytes([0, 100, 255, 7]))
    save("rgb-transparent.png", rgb, transparency=rgb.getpixel((0, 0)))
    save("animated.png", rgb, save_all=True, append_images=[noise(3)])
    save("lossless.webp", rgb, lossless=True)
    save("lossless-rgba.webp", rgba, lossless=True, exact=True)
    save("animated.webp", rgb, save_all=True, append_images=[noise(3)], lossless=True)
    save("rgb.ppm", rgb)
    save("gray.pgm", gray)
    save("bilevel.pbm", gray.convert("1"))
    for name, text in {
        "plain.ppm": "P3\n# a comment\n2 1\n255\n0 1 2 253 254 255\n",
        "plain.pgm": "P2 3 1 100 0 50 100\n",
        "plain.pbm": "P1\n3 2\n1 0 1\n010\n",
    }.items():
        (out / name).write_text(text)
        expect(name, Image.open(io.BytesIO(text.encode())))
    (out / "maximum.pgm").write_bytes(b"P5 3 1 100 " + bytes([0, 33, 100]))
    expect("maximum.pgm", Image.open(out / "maximum.pgm"))

    # Pillow clips 16-bit grey values to 8 bits; this crate scales and rounds them.
    deep = RNG.integers(0, 65536, (5, 7), dtype=np.uint16)
    deep[0, :3] = [0, 128, 65535]
    scaled = Image.fromarray(np.round(deep / 257).astype(np.uint8))
    Image.fromarray(deep).save(out / "gray16.png")
    expect("gray16.png", scaled)
    (out / "gray16.pgm").write_bytes(b"P5 7 5 65535\n" + deep.astype(">u2").tobytes())
    expect("gray16.pgm", scaled)

    # Decoders of lossy formats differ a little, so the picture is smooth. Its size is not a multiple of 16.
    y, x = np.mgrid[0:37, 0:53]
    smooth = np.stack([x * 4, y * 6, 128 + 100 * np.sin(x / 9) * np.cos(y / 7)], axis=2)
    smooth = Image.fromarray(smooth.astype(np.uint8))
    save("lossy.webp", smooth, quality=80)
    save("444.jpg", smooth, quality=90, subsampling=0)
    save("420.jpg", smooth, quality=75)
    save("progressive.jpg", smooth, quality=85, progressive=True)
    save("gray.jpg", smooth.convert("L"), quality=85)
    save("cmyk.jpg", smooth.convert("CMYK"), quality=90)
    save("restart.jpg", smooth, quality=85, restart_marker_rows=1)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees; neither side applies it
    save("turned.jpg", smooth, quality=85, exif=exif)


if __name__ == "__main__":
    npy()
    images()
    formats()
