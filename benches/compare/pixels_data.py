"""Writes the data for pixels.py: shards of Python's webdataset (with a pax header before every member), and
copies of the same samples in the formats of readers that do not read shards."""

import hashlib
import io
import math
import os
import random
from pathlib import Path

# Task: shards, and samples per shard.
SHARDS = {"imagenet": (16, 128), "cifar": (50, 1_000), "json": (20, 10_000), "tokens": (8, 5_000), "raw": (16, 128)}
# Tasks that read the shards of another task.
SAME = {"raw": "imagenet"}
# The field that each task reads.
FIELD = {"imagenet": "jpg", "cifar": "png", "json": "json", "tokens": "npy", "raw": "jpg"}
TOKENS = 1024
VOCABULARY = 50_000
# Maximum factor by which a photograph is enlarged. A photograph that is enlarged more would have less detail
# per pixel, and would therefore be faster to decode.
ENLARGED = 1.1


def pattern(directory, task):
    """The brace pattern of all shards of a task."""
    return f"{directory}/{SAME.get(task, task)}-{{00..{SHARDS[task][0] - 1:02}}}.tar"


def shards(directory, task):
    return [f"{directory}/{SAME.get(task, task)}-{number:02}.tar" for number in range(SHARDS[task][0])]


def samples(task):
    """Number of samples in all shards of a task."""
    return math.prod(SHARDS[task])


def write(directory):
    """Writes missing files."""
    os.makedirs(directory, exist_ok=True)
    for task, fields in {"imagenet": imagenet, "cifar": cifar, "json": documents, "tokens": tokens}.items():
        for number, path in enumerate(shards(directory, task)):
            write_file(path, write_shard, lambda: fields(random.Random(f"{task} {number}"), SHARDS[task][1]), number * SHARDS[task][1])
    for task in SHARDS.keys() - SAME.keys():
        write_file(f"{directory}/{task}.tfrecord", write_records, directory, task)
    write_file(f"{directory}/imagenet.beton", write_beton, directory)


def write_file(path, writer, *arguments):
    """Writes a missing file atomically. Skips it if a Python package is missing."""
    if Path(path).exists():
        return
    try:
        writer(f"{path}.part", *arguments)
    except ImportError as error:
        return print(f"{path} is skipped: {error}")
    os.rename(f"{path}.part", path)


def write_shard(path, fields, first):
    import webdataset

    with open(path, "wb") as file, webdataset.TarWriter(file) as writer:
        for number, sample in enumerate(fields(), first):
            writer.write({"__key__": f"{number:08}", **sample})


def photographs():
    """The photographs that come with scikit-image and scikit-learn."""
    from PIL import Image
    from skimage import data
    from sklearn.datasets import load_sample_images

    left, right, _ = data.stereo_motorcycle()
    arrays = [data.astronaut(), data.coffee(), data.chelsea(), data.rocket(), data.hubble_deep_field(), left, right]
    return [Image.fromarray(array) for array in [*arrays, *load_sample_images().images]]


def window(photograph, numbers, width, height, scales):
    """Returns a random part of a photograph, with a random scale from the range (or a larger scale
    if the photograph is too small) and with jittered colours."""
    from PIL import Image, ImageEnhance

    scale = max(numbers.uniform(*scales), width / photograph.width, height / photograph.height)
    across, down = min(width / scale, photograph.width), min(height / scale, photograph.height)
    left, top = numbers.uniform(0, photograph.width - across), numbers.uniform(0, photograph.height - down)
    image = photograph.resize((width, height), Image.Resampling.LANCZOS, box=(left, top, left + across, top + down))
    if numbers.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = kind(image).enhance(numbers.uniform(0.8, 1.2))
    return image


def finish(image, numbers):
    """Adds sharpening and sensor noise, which a downscaled photograph lacks and photographs on the web
    have."""
    import numpy
    from PIL import Image, ImageEnhance

    array = numpy.asarray(ImageEnhance.Sharpness(image).enhance(numbers.uniform(1, 3)))
    noise = numpy.random.default_rng(numbers.randrange(2**32)).normal(0, numbers.uniform(0, 10), (*array.shape[:2], 1))
    return Image.fromarray((array + noise).clip(0, 255).astype(numpy.uint8))


def imagenet(numbers, count):
    """Samples with a JPEG of about 500 x 375 pixels and 91 KB."""
    choices = photographs()
    while count:
        width, height = round(numbers.gauss(500, 25)), round(numbers.gauss(375, 25))
        if numbers.random() < 0.2:
            width, height = height, width
        photograph = numbers.choice(choices)
        if max(width / photograph.width, height / photograph.height) > ENLARGED:
            continue
        count -= 1
        file = io.BytesIO()
        image = finish(window(photograph, numbers, width, height, (0.6, 1)), numbers)
        image.save(file, "JPEG", quality=numbers.randint(90, 95), subsampling="4:2:0")
        label = numbers.randrange(1000)
        document = {"label": label, "width": width, "height": height}
        yield {"jpg": file.getvalue(), "cls": label, "json": document}


def cifar(numbers, count):
    """Samples with a PNG of 32 x 32 pixels and about 2 KB."""
    choices = photographs()
    for _ in range(count):
        file = io.BytesIO()
        window(numbers.choice(choices), numbers, 32, 32, (0.12, 0.5)).save(file, "PNG")
        yield {"png": file.getvalue(), "cls": numbers.randrange(10)}


def documents(numbers, count):
    """Samples with a JSON document of about 1 KB, such as a crawler of pictures and captions writes."""
    from pydoc_data.topics import topics

    words = sorted({word for text in topics.values() for word in text.split() if word.isalpha()})
    for _ in range(count):
        caption = " ".join(numbers.choices(words, k=numbers.randint(60, 110)))
        yield {
            "json": {
                "url": f"https://images.example.org/{numbers.choice(words)}/{numbers.randrange(10**9)}.jpg",
                "caption": caption,
                "title": " ".join(numbers.choices(words, k=6)),
                "width": numbers.randint(256, 4096),
                "height": numbers.randint(256, 4096),
                "similarity": numbers.random(),
                "aesthetic": round(numbers.uniform(3, 9), 4),
                "language": numbers.choice(["en", "de", "fr", "zh", None]),
                "nsfw": numbers.random() < 0.01,
                "tags": numbers.choices(words, k=5),
                "box": [round(numbers.random(), 5) for _ in range(4)],
                "sha256": hashlib.sha256(caption.encode()).hexdigest(),
            }
        }


def tokens(numbers, count):
    """Samples with an array of 16-bit tokens. Small tokens are more frequent, as in a vocabulary sorted by
    frequency."""
    import numpy

    generator = numpy.random.default_rng(numbers.randrange(2**32))
    for _ in range(count):
        yield {"npy": (VOCABULARY ** generator.random(TOKENS) - 1).astype(numpy.uint16)}


def read(directory, task):
    """Reads the samples of a task's shards."""
    import webdataset

    return webdataset.WebDataset(shards(directory, task), shardshuffle=False)


def write_records(path, directory, task):
    """Writes a copy for tf.data: the bytes of the field, and the class. Tokens lack the npy header."""
    import tensorflow

    feature = lambda content: tensorflow.train.Feature(bytes_list=tensorflow.train.BytesList(value=[content]))
    with tensorflow.io.TFRecordWriter(path) as writer:
        for sample in read(directory, task):
            content = sample[FIELD[task]]
            if task == "tokens":
                content = content[-2 * TOKENS :]
            fields = {"content": feature(content), "cls": feature(sample.get("cls", b""))}
            writer.write(tensorflow.train.Example(features=tensorflow.train.Features(feature=fields)).SerializeToString())


def write_beton(path, directory):
    """Writes a copy for FFCV, which encodes the images again. The quality is the mean quality of the
    originals."""
    import numpy
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    decoded = [(numpy.asarray(Image.open(io.BytesIO(sample["jpg"]))), int(sample["cls"])) for sample in read(directory, "imagenet")]
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=92), "label": IntField()}
    DatasetWriter(path, fields, num_workers=1).from_indexed_dataset(decoded)
