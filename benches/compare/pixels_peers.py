"""Pipelines of other libraries for pixels.py, each as fast as we could make it by its documentation.

Each is an endless iterator of batches: of normalised float images in three planes, of the bytes of documents,
or of rows of tokens. Some do less work than the task requires, to their advantage: tf.data shrinks without
antialiasing, FFCV reads images that were encoded again, and returns interleaved channels with the shape of
planes, SPDL and DALI return views of documents, and datago has neither random crops, flips nor padding: it
shrinks the whole image and crops its centre.
"""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pixels_data as data

BATCH = {"imagenet": 64, "cifar": 128, "json": 256, "tokens": 64, "raw": 64}
# Tasks whose batches are lists of bytes.
BYTES = ("json", "raw")
SHAPE = {"imagenet": (64, 3, 224, 224), "cifar": (128, 3, 32, 32), "json": (256,), "raw": (64,), "tokens": (64, data.TOKENS)}
MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
# The same normalisation, for pixels from 0 to 255.
SHIFT, FACTOR = [255 * mean for mean in MEAN], [1 / (255 * std) for std in STD]
# Ids of processes whose CPU time and memory are not counted as the peer's.
SERVERS = set()


def webdataset(task, directory, threads):
    """Python's webdataset with torchvision's v2 transforms, and with worker processes if `threads` is above
    1."""
    import torch
    import webdataset
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    crop = v2.RandomResizedCrop(224, AREA, RATIO, antialias=True) if task == "imagenet" else v2.RandomCrop(32, padding=4)
    change = v2.Compose([crop, v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    pixels = lambda content: change(decode_image(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.RGB))
    samples = webdataset.WebDataset(data.shards(directory, task), shardshuffle=False).repeat()
    if task in BYTES:
        batches = samples.to_tuple(data.FIELD[task]).batched(BATCH[task], collation_fn=lambda rows: [content for content, in rows])
    elif task == "tokens":
        batches = samples.decode().to_tuple("npy").batched(BATCH[task], partial=False)
    else:
        batches = samples.to_tuple(data.FIELD[task], "cls").map_tuple(pixels, int).batched(BATCH[task], partial=False)
    loader = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=threads if threads > 1 else 0)
    for batch in loader:
        yield batch if task in BYTES else batch[0]


def wheel(task, directory, threads):
    """This crate's Python package, in python/."""
    import shardstream as ss

    crop = ss.RandomResizedCrop(224, AREA, RATIO) if task == "imagenet" else ss.RandomCrop(32, padding=4)
    column = {
        "json": lambda: ss.Blob("json"),
        "raw": lambda: ss.Blob("jpg"),
        "tokens": lambda: ss.Tokens("npy", data.TOKENS, "uint16"),
    }.get(task, lambda: ss.Image(
        SHAPE[task][-1], data.FIELD[task], transforms=[crop, ss.RandomHorizontalFlip()], layout="chw", dtype="float32",
        normalize=(MEAN, STD),
    ))
    columns = {"x": column()} | ({"label": "cls"} if task in ("imagenet", "cifar") else {})
    loader = ss.Loader(data.pattern(directory, task), columns, BATCH[task], epochs=None, threads=threads, rank=0, world=1)
    for batch in loader:
        yield ss.pieces(batch, "x") if task in BYTES else batch["x"].numpy()


def tf_data(task, directory, threads):
    """tf.data, from one TFRecord file. It decodes only the crop of a JPEG."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    fields = {"content": tf.io.FixedLenFeature([], tf.string), "cls": tf.io.FixedLenFeature([], tf.string)}
    shift, factor = tf.constant(SHIFT), tf.constant(FACTOR)

    def finish(image):
        image = (tf.cast(tf.image.random_flip_left_right(image), tf.float32) - shift) * factor
        return tf.transpose(image, (2, 0, 1))

    def imagenet(record):
        sample = tf.io.parse_single_example(record, fields)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(sample["content"]), tf.zeros((1, 0, 4)), area_range=AREA, aspect_ratio_range=RATIO,
            min_object_covered=0.0, max_attempts=10, use_image_if_no_bounding_boxes=True,
        )
        crop = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.resize(tf.io.decode_and_crop_jpeg(sample["content"], crop, channels=3), (224, 224))
        return finish(image), tf.strings.to_number(sample["cls"], tf.int32)

    def cifar(record):
        sample = tf.io.parse_single_example(record, fields)
        image = tf.ensure_shape(tf.io.decode_png(sample["content"], channels=3), (32, 32, 3))
        image = tf.image.random_crop(tf.pad(image, [[4, 4], [4, 4], [0, 0]]), (32, 32, 3))
        return finish(image), tf.strings.to_number(sample["cls"], tf.int32)

    rows = lambda records: (tf.io.decode_raw(tf.io.parse_example(records, fields)["content"], tf.uint16), 0)
    texts = lambda records: (tf.io.parse_example(records, fields)["content"], 0)
    records = tf.data.TFRecordDataset(f"{directory}/{task}.tfrecord").repeat()
    if task in ("imagenet", "cifar"):
        records = records.map(imagenet if task == "imagenet" else cifar, num_parallel_calls=threads, deterministic=False)
    batches = records.batch(BATCH[task], drop_remainder=True)
    if task in ("json", "tokens"):
        batches = batches.map(texts if task == "json" else rows, num_parallel_calls=threads)
    dataset_options = tf.data.Options()
    dataset_options.threading.private_threadpool_size = threads
    dataset_options.threading.max_intra_op_parallelism = 1
    for batch, _ in batches.prefetch(2).with_options(dataset_options):
        yield batch


def dali(task, directory, threads):
    """NVIDIA DALI on the CPU, from the shards, which it maps into memory."""
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH[task], num_threads=threads, device_id=None)
    def pipeline():
        fields = [data.FIELD[task]] + ["cls"] * (task in ("imagenet", "cifar"))
        outputs = fn.readers.webdataset(paths=data.shards(directory, task), ext=fields, name="shards")
        content = outputs[0] if len(fields) > 1 else outputs
        if task in BYTES:
            return content
        if task == "tokens":
            # The array follows its 128-byte header.
            return fn.reinterpret(fn.slice(content, 128, 2 * data.TOKENS, axes=[0]), dtype=types.UINT16)
        if task == "imagenet":
            image = fn.decoders.image_random_crop(content, random_area=AREA, random_aspect_ratio=RATIO)
            image = fn.resize(image, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
        else:
            image = fn.decoders.image(content)
            corner = fn.random.uniform(range=(-4, 5), shape=2)
            corner = fn.cast(corner + 4.0, dtype=types.INT32) - 4
            image = fn.slice(image, corner, (32, 32), axes=(0, 1), out_of_bounds_policy="pad")
        mirror = fn.random.coin_flip()
        scale = {"mean": SHIFT, "std": [1 / factor for factor in FACTOR]}
        return fn.crop_mirror_normalize(image, mirror=mirror, output_layout="CHW", dtype=types.FLOAT, **scale), outputs[1]

    built = pipeline()
    built.build()
    while True:
        batch = built.run()[0]
        yield batch if task in BYTES else batch.as_tensor()


def ffcv(task, directory, threads):
    """FFCV, from its own file format. It crops while it decodes, and compiles its transforms in the first
    epoch."""
    import numpy
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    mean, std = numpy.array(SHIFT), 1 / numpy.array(FACTOR)
    loader = Loader(
        f"{directory}/{task}.beton", batch_size=BATCH[task], num_workers=threads, order=OrderOption.SEQUENTIAL, os_cache=True,
        drop_last=True, pipelines={
            "image": [
                RandomResizedCropRGBImageDecoder((224, 224), AREA, RATIO), RandomHorizontalFlip(),
                NormalizeImage(mean, std, numpy.float32), ToTensor(), ToTorchImage(),
            ],
            "label": [IntDecoder(), ToTensor()],
        },
    )
    while True:
        for image, _ in loader:
            yield image


def spdl(task, directory, threads):
    """SPDL, which reads the shards with a parser in C and the pictures with FFmpeg."""
    import random

    import numpy
    import spdl.io
    import torch
    from spdl.pipeline import PipelineBuilder

    torch.set_num_threads(1)
    shift, factor = (torch.tensor(values).view(3, 1, 1) for values in (SHIFT, FACTOR))
    ending = f".{data.FIELD[task]}"

    def contents():
        for path in itertools.cycle(data.shards(directory, task)):
            for name, content in spdl.io.iter_tarfile(Path(path).read_bytes()):
                if name.endswith(ending):
                    yield content

    def groups():
        iterator = contents()
        while True:
            yield list(itertools.islice(iterator, BATCH[task]))

    if task in BYTES:
        yield from groups()
    if task == "tokens":
        for group in groups():
            yield numpy.stack([numpy.frombuffer(content, numpy.uint16, offset=128) for content in group])

    def window(width, height):
        for _ in range(10):
            area, ratio = random.uniform(*AREA) * width * height, math.exp(random.uniform(*map(math.log, RATIO)))
            crop_width, crop_height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if 0 < crop_width <= width and 0 < crop_height <= height:
                return f"{crop_width}:{crop_height}:{random.randint(0, width - crop_width)}:{random.randint(0, height - crop_height)}"
        side = min(width, height)
        return f"{side}:{side}:{(width - side) // 2}:{(height - side) // 2}"

    # FFmpeg does not have to guess the format if it is given.
    demuxing = spdl.io.demux_config(format={"imagenet": "jpeg_pipe", "cifar": "png_pipe"}[task])

    def decode(content):
        packets = spdl.io.demux_image(content, demux_config=demuxing)
        if task == "cifar":
            return spdl.io.decode_packets(packets, filter_desc=None)  # A filter graph costs more than such a small image.
        crop = window(packets.codec.width, packets.codec.height)
        flip = random.choice(["", "hflip,"])
        return spdl.io.decode_packets(packets, filter_desc=f"crop={crop},scale=224:224:flags=bilinear,{flip}format=rgb24")

    def batch(group):
        images = spdl.io.to_torch(spdl.io.convert_frames(list(map(decode, group))))
        if task == "cifar":
            padded = torch.nn.functional.pad(images, (0, 0, 4, 4, 4, 4))
            crops = ((row, random.randint(0, 8), random.randint(0, 8)) for row in range(len(group)))
            images = torch.stack([padded[row, top : top + 32, left : left + 32] for row, top, left in crops])
            images = torch.where(torch.rand(len(group), 1, 1, 1) < 0.5, images.flip(2), images)
        planes = images.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return planes.sub_(shift).mul_(factor)

    # One task per batch: a task per image would cost more than decoding a small image.
    builder = PipelineBuilder().add_source(groups()).pipe(batch, concurrency=threads, output_order="completion")
    built = builder.add_sink(2).build(num_threads=threads)
    with built.auto_stop():
        yield from built


def datago(task, directory, threads):
    """datago, which reads the shards over HTTP. NumPy does the rest."""
    os.environ["DATAGO_MAX_TASKS"] = str(threads)
    import json

    import numpy
    from datago import DatagoClient

    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", directory],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    SERVERS.add(server.pid)
    port = server.stdout.readline().split("port ")[1].split()[0]
    side = SHAPE[task][2]
    url = data.pattern(f"http://127.0.0.1:{port}", task)
    source = {"url": url, "reference_image_type": data.FIELD[task], "concurrent_downloads": 2}
    change = {
        "crop_and_resize": True, "default_image_size": side, "downsampling_ratio": side,
        "min_aspect_ratio": 1.0, "max_aspect_ratio": 1.0,
    }
    configuration = {
        "source_type": "webdataset", "source_config": source, "image_config": change, "limit": data.samples(task),
        "prefetch_buffer_size": 64, "samples_buffer_size": 64,
    }
    shift, factor = (numpy.array(values, numpy.float32) for values in (SHIFT, FACTOR))
    try:
        client = DatagoClient(json.dumps(configuration))
        while True:
            client.start()
            samples = iter(client.get_sample, None)
            while len(batch := list(itertools.islice(samples, BATCH[task]))) == BATCH[task]:
                images = numpy.stack([sample.image.to_numpy_array() for sample in batch])
                pixels = numpy.empty((len(batch), 3, side, side), numpy.float32)
                numpy.subtract(images.transpose(0, 3, 1, 2), shift[:, None, None], out=pixels)
                yield numpy.multiply(pixels, factor[:, None, None], out=pixels)
    finally:
        server.kill()
        server.wait()
