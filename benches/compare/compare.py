"""CPU time per sample and peak memory of several readers of the same local shards, in interleaved rounds.

    pip install webdataset==1.0.2 numpy matplotlib     # matplotlib for --plot only
    python benches/compare/compare.py [--rounds 5] [--data DIRECTORY] [--plot FILE.svg]

It writes the shards with Python's webdataset, builds the Rust readers with cargo, and prints a table in
Markdown.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARDS = 4
# Name: samples per shard, and a function that returns the fields of a sample.
KINDS = {
    "json 1 KB": (10_000, lambda i: {"json": b'{"id": %d, "text": "%s"}' % (i, b"x" * 970)}),
    "png 2 KB + cls": (5_000, lambda i: {"cls": b"%d" % (i % 10), "png": random.randbytes(2_200)}),
    "jpg 100 KB + cls": (500, lambda i: {"cls": b"%d" % (i % 1000), "jpg": random.randbytes(100_000)}),
}
# Name: modification time. A fractional time, which Python's webdataset writes by default, needs a pax header
# before every member.
HEADERS = {"pax": None, "ustar": 1_700_000_000}
# Number of passes of the Rust readers, so that they run long enough to be measured.
PASSES = 10


def read_with_webdataset(pattern):
    """The Python reader: prints its counts and the CPU time of its imports. Runs in a process of its own."""
    import time

    import webdataset

    imports = time.process_time()
    samples = size = 0
    for sample in webdataset.WebDataset(pattern, shardshuffle=False):
        samples += 1
        size += sum(len(value) for value in sample.values() if isinstance(value, bytes))
    print(f"{samples} samples, {size} bytes, {imports} s for imports")


def write_with_webdataset(directory):
    """Writes missing shards. Runs in a process of its own, too, since it leaves a lot of data in memory."""
    import webdataset

    for kind, (count, fields) in KINDS.items():
        for header, mtime in HEADERS.items():
            for shard in range(SHARDS):
                path = Path(shards(directory, kind, header, shard))
                if path.exists():
                    continue
                with webdataset.TarWriter(str(path), encoder=False, mtime=mtime) as writer:
                    for i in range(shard * count, (shard + 1) * count):
                        writer.write({"__key__": f"{i:08}", **fields(i)})


def shards(directory, kind, header, numbers=f"{{0..{SHARDS - 1}}}"):
    """The path of a shard, or the pattern of all shards."""
    return f"{directory}/{re.sub('[^a-z0-9]+', '-', kind.lower())}-{header}-{numbers}.tar"


def build(manifest, *target):
    """Builds a program with cargo, and returns its path."""
    command = ["cargo", "build", "--release", "--message-format=json", "--manifest-path", manifest, *target]
    messages = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [path for message in map(json.loads, messages) if (path := message.get("executable"))][-1]


def readers():
    """Builds the readers, and returns functions from a pattern to a command, by name."""
    throughput = build(HERE.parents[1] / "Cargo.toml", "--example", "throughput")
    rival = build(HERE / "rival" / "Cargo.toml")
    repeated = lambda pattern: "::".join([pattern] * PASSES)
    ours = lambda method, *options: lambda pattern: [throughput, method, repeated(pattern), *options]
    return {
        "Python webdataset": lambda pattern: [sys.executable, __file__, "--read", pattern],
        "crate webdataset": lambda pattern: [rival, repeated(pattern)],
        "samples": ours("samples"),
        "stream": ours("stream"),
        "loader": ours("loader", "2", "1"),
        "loader, shuffle 1000": ours("loader", "2", "1", "1000"),
    }


def measure(command):
    """Runs a command. Returns its CPU time per sample in microseconds, its peak memory in MB (at least the
    peak memory of this script), and its bytes per sample."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    numbers = [float(number) for number in re.findall(r"[\d.]+", process.stdout.read())]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0:
        sys.exit(f"{command} failed")
    samples, size = numbers[:2]
    imports = numbers[2] if "--read" in command else 0
    seconds = usage.ru_utime + usage.ru_stime - imports
    return seconds / samples * 1e6, usage.ru_maxrss / 1024, size / samples


def compare(commands, patterns, rounds):
    """Returns the medians over the rounds, by kind, header and reader."""
    runs = {}
    for number in range(rounds + 1):
        for (kind, header), pattern in patterns.items():
            for reader, command in commands.items():
                print(f"round {number} of {rounds}: {kind}, {header}, {reader}", file=sys.stderr)
                # The first round only warms the page cache.
                runs.setdefault((kind, header, reader), []).append(measure(command(pattern)))
            sizes = {runs[kind, header, reader][-1][2] for reader in commands}
            assert len(sizes) == 1, f"the readers disagree on {kind}: {sizes} bytes per sample"
    return {key: [statistics.median(column) for column in zip(*values[1:])] for key, values in runs.items()}


def table(results):
    lines = [
        "| samples | headers | reader | CPU µs per sample | samples per CPU-second | × Python | peak RSS, MB |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for (kind, header, reader), (cpu, rss, _) in results.items():
        ratio = results[kind, header, "Python webdataset"][0] / cpu
        row = [kind, header, reader, f"{cpu:.2f}", f"{1e6 / cpu:,.0f}", f"{ratio:.1f}", f"{rss:.0f}"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def plot(results, file):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot, ticker

    names = list(dict.fromkeys(reader for _, _, reader in results))
    figure, axes = pyplot.subplots(1, len(KINDS), figsize=(11, 2.6), sharey=True, layout="constrained")
    for axis, kind in zip(axes, KINDS):
        rates = [1e6 / results[kind, "pax", reader][0] for reader in names]
        colors = ["#b0b0b0" if "webdataset" in reader else "#2a6f97" for reader in names]
        bars = axis.barh(names, rates, color=colors)
        axis.bar_label(bars, labels=[f" {rate:,.0f}" for rate in rates], fontsize=8)
        axis.set(xlim=(0, max(rates) * 1.3), title=kind)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(4))
        axis.xaxis.set_major_formatter(ticker.EngFormatter())
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()  # The axes share the inversion.
    figure.supxlabel("samples per CPU-second, pax headers", fontsize=9)
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", help="directory of the shards (default: a temporary directory)")
    parser.add_argument("--plot", help="draw a bar chart into this file")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return read_with_webdataset(options.read)
    if options.write:
        return write_with_webdataset(options.write)
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.data or temporary
        os.makedirs(directory, exist_ok=True)
        subprocess.run([sys.executable, __file__, "--write", directory], check=True)
        patterns = {(kind, header): shards(directory, kind, header) for kind in KINDS for header in HEADERS}
        results = compare(readers(), patterns, options.rounds)
    print(table(results))
    if options.plot:
        plot(results, options.plot)


if __name__ == "__main__":
    main()
