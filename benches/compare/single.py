"""Single samples of local shards: shardstream by number and by key beside `wids` and LitData by number, in
interleaved rounds.

    pip install wids==0.1.11 numpy litdata==0.2.76     # litdata is optional; it needs torch
    python benches/compare/single.py [--rounds 9] [--shards 16] [--samples 1000] [--size 20000] [--count 1000]

The first sample includes what is opened before it: the index here; in `wids` the headers of the sample's shard.
Neither `wids` nor LitData has a look-up by key. LitData reads its own format, which is written first. Run it on an
idle machine; all shards are in the page cache.
"""

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build():
    """Builds the program and the benchmark together, so that the library is built once. Returns both
    paths."""
    command = "cargo build --release -p shardstream -p shardstream-cli --bin shardstream --bench single"
    command = [*command.split(), "--message-format=json"]
    process = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [message for message in map(json.loads, process.stdout.splitlines()) if message.get("executable")]
    executables = {message["target"]["name"]: message["executable"] for message in messages}
    return executables["shardstream"], executables["single"]


def write_shards(directory, shards, samples, size):
    for shard in range(shards):
        with tarfile.open(f"{directory}/{shard:04}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for sample in range(samples):
                for field, content in [("cls", b"7"), ("bin", os.urandom(size))]:
                    member = tarfile.TarInfo(f"{shard * samples + sample:08}.{field}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def read_wids(directory, count):
    """Prints the microseconds of the first sample and of each random sample. Runs in a process of its own."""
    # `wids` imports torch only for its samplers.
    try:
        import torch  # noqa: F401
    except ImportError:
        for name in ["torch", "torch.distributed", "torch.utils", "torch.utils.data"]:
            sys.modules[name] = types.ModuleType(name)
        sys.modules["torch"].distributed = sys.modules["torch.distributed"]
        sys.modules["torch.utils.data"].Dataset = typing.Generic
        sys.modules["torch.utils.data"].Sampler = object
    import wids

    index = f"{directory}/index.json"
    start = time.perf_counter()
    dataset = wids.ShardListDataset(index, keep=True, lru_size=200, transformations=[])
    generator = random.Random(0)
    numbers = [generator.randrange(len(dataset)) for _ in range(count)]
    dataset[numbers[0]][".bin"].read()
    first = time.perf_counter() - start
    for number in range(0, len(dataset), len(dataset) // 64):
        dataset[number]  # Reads the headers of every shard once.
    start = time.perf_counter()
    for number in numbers:
        dataset[number][".bin"].read()
    each = (time.perf_counter() - start) / count
    print(f"wids by number\t{first * 1e6:.0f}\t{each * 1e6:.1f}")


def litdata_sample(size):
    return {"cls": b"7", "bin": os.urandom(size)}


def write_litdata(directory, shards, samples, size):
    """Writes chunks of as many samples as a shard has. Returns whether LitData is installed."""
    try:
        import litdata
    except ImportError:
        return False
    litdata.optimize(
        fn=litdata_sample, inputs=[size] * (shards * samples), output_dir=directory, chunk_size=samples, num_workers=1
    )
    return True


def read_litdata(directory, count):
    """Prints the microseconds of the first sample and of each random sample. Runs in a process of its own."""
    import litdata

    start = time.perf_counter()
    dataset = litdata.StreamingDataset(directory)
    drawn = random.Random(0)
    numbers = [drawn.randrange(len(dataset)) for _ in range(count)]
    dataset[numbers[0]]
    first = time.perf_counter() - start
    for number in range(0, len(dataset), len(dataset) // 64):
        dataset[number]  # every chunk is opened once
    start = time.perf_counter()
    for number in numbers:
        dataset[number]
    each = (time.perf_counter() - start) / count
    print(f"LitData by number\t{first * 1e6:.0f}\t{each * 1e6:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in [("rounds", 9), ("shards", 16), ("samples", 1000), ("size", 20_000), ("count", 1000)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--wids", help=argparse.SUPPRESS)
    parser.add_argument("--litdata", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.wids:
        read_wids(options.wids, options.count)
        return
    if options.litdata:
        read_litdata(options.litdata, options.count)
        return
    program, bench = build()
    with tempfile.TemporaryDirectory() as directory:
        write_shards(directory, options.shards, options.samples, options.size)
        index = f"{directory}/index.json"
        subprocess.run([program, "index", "build", directory, "--to", index, "--keys"], check=True)
        print(f"key index: {os.path.getsize(index + '.shkeys') / options.shards / options.samples:.1f} B per key")
        commands = [
            [bench, directory, str(options.count)],
            [sys.executable, __file__, "--wids", directory, "--count", str(options.count)],
        ]
        if write_litdata(f"{directory}/litdata", options.shards, options.samples, options.size):
            commands.append([sys.executable, __file__, "--litdata", f"{directory}/litdata", "--count", str(options.count)])
        times = {}
        for _ in range(options.rounds):
            for command in commands:
                lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                for line in lines.splitlines():
                    # LitData also prints its progress.
                    if line.count("\t") != 2:
                        continue
                    name, first, each = line.split("\t")
                    times.setdefault(name, []).append((float(first), float(each)))
        print("| way | first sample, µs | each of many, µs |\n|---|--:|--:|")
        for name, rounds in times.items():
            first, each = (statistics.median(values) for values in zip(*rounds))
            print(f"| {name} | {first:.0f} | {each:.1f} |")


if __name__ == "__main__":
    main()
