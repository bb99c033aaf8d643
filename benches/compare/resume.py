"""Report on stopping and resuming: the tables of `benches/resume.rs`, a plot of the first table, and CPU
time per sample compared with an earlier version of the crate, in interleaved rounds.

    pip install matplotlib     # for --plot only
    python benches/compare/resume.py [--before COMMIT] [--rounds 9] [--plot FILE.svg]
"""

import argparse
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARDS = 4
# Name: samples per shard, bytes per sample.
KINDS = {"1 KB": (10_000, 1_000), "100 KB": (500, 100_000)}
# Number of passes over the shards.
PASSES = {"1 KB": 20, "100 KB": 10}
READERS = {
    "`samples`": ["samples"],
    "`loader`, 2 streams, 1 thread": ["loader", "2", "1"],
    "the same, shuffle 1000": ["loader", "2", "1", "1000"],
    "`loader`, 4 streams, 2 threads, shuffle 1000": ["loader", "4", "2", "1000"],
}


def build(root, *target, environment=None):
    """Builds a program with cargo, and returns its path."""
    command = ["cargo", "build", "--release", "--message-format=json", *target]
    process = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    messages = map(json.loads, process.stdout.splitlines())
    return [path for message in messages if (path := message.get("executable"))][-1]


def build_version(commit, directory):
    """Builds the example `throughput` of another version, and returns its path."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(f"{directory}/before", filter="data")
    environment = os.environ | {"CARGO_TARGET_DIR": f"{directory}/target"}
    return build(f"{directory}/before", "--example", "throughput", environment=environment)


def write_shards(directory):
    """Writes the shards, and returns for each kind a pattern that names them once for each pass."""
    patterns = {}
    for kind, (count, size) in KINDS.items():
        for shard in range(SHARDS):
            with tarfile.open(f"{directory}/{size}-{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
                for sample in range(count):
                    member = tarfile.TarInfo(f"{shard * count + sample:08}.bin")
                    member.size = size
                    archive.addfile(member, io.BytesIO(b"x" * size))
        patterns[kind] = "::".join([f"{directory}/{size}-{{0..{SHARDS - 1}}}.tar"] * PASSES[kind])
    return patterns


def measure(command):
    """Runs a command, and returns its CPU time per sample in microseconds."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples = int(re.match(r"\d+", process.stdout.read())[0])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0:
        sys.exit(f"{command} failed")
    return (usage.ru_utime + usage.ru_stime) / samples * 1e6


def compare(before, after, rounds, directory):
    """Returns a table of medians over the rounds, and of ratios with their interquartile ranges."""
    patterns = write_shards(directory)
    lines = ["| samples | reader | before, CPU µs | after, CPU µs | ratio | half of the rounds |", "|---|---|--:|--:|--:|--:|"]
    for kind, pattern in patterns.items():
        for reader, (method, *numbers) in READERS.items():
            pairs = []
            for number in range(rounds + 1):
                print(f"round {number} of {rounds}: {kind}, {reader}", file=sys.stderr)
                # The programs take turns at being first. The first round only warms the page cache.
                programs = [before, after][:: 1 if number % 2 else -1]
                costs = {program: measure([program, method, pattern, *numbers]) for program in programs}
                pairs.append((costs[before], costs[after]))
            pairs = pairs[1:]
            old, new = (statistics.median(column) for column in zip(*pairs))
            ratios = [second / first for first, second in pairs]
            low, median, high = statistics.quantiles(ratios, n=4)
            lines.append(f"| {kind} | {reader} | {old:.2f} | {new:.2f} | {median:.3f} | {low:.3f} – {high:.3f} |")
    return "\n".join(lines)


def plot(tables, file):
    """Plots the bytes received up to the first batch, from the first tables of `benches/resume.rs`."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    colors = {"restore, index": "#2a6f97", "restore, no index": "#7fb2d1", "from the start, skipping": "#b0b0b0"}
    sections = re.findall(r"^### Samples of ([^:]+): [^\n]*?([\d.]+) GB\n\n(.*?)(?:\n\n|\Z)", tables, re.M | re.S)
    figure, axes = pyplot.subplots(1, len(sections), figsize=(11, 3), layout="constrained")
    for axis, (name, _, table) in zip(axes, sections):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
        rows = [row for row in rows if row[1] in colors]
        labels = [f"{row[0]}: {row[1]}" for row in rows]
        shares = [float(row[3].rstrip(" %")) for row in rows]
        bars = axis.barh(labels, shares, color=[colors[row[1]] for row in rows])
        axis.bar_label(bars, labels=[f" {row[2]} MB, {row[5]} s" for row in rows], fontsize=8)
        axis.set(xlim=(0, 140), title=f"samples of {name}")
        axis.set_xticks(range(0, 101, 20))
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("per cent of the epoch's bytes that are received up to the first batch", fontsize=9)
    figure.savefig(file, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="4f283d4", help="the version to compare with")
    parser.add_argument("--before-program", help="its example `throughput`, if it is already built")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--plot", help="draw a bar chart into this file")
    options = parser.parse_args()
    tables = subprocess.run([build(ROOT, "--bench", "resume"), "--bench"], check=True, stdout=subprocess.PIPE, text=True)
    print(tables.stdout)
    if options.plot:
        plot(tables.stdout, options.plot)
    after = build(ROOT, "--example", "throughput")
    with tempfile.TemporaryDirectory() as directory:
        before = options.before_program or build_version(options.before, directory)
        print(f"\n### CPU time per sample, {options.before} and now\n")
        print(compare(before, after, options.rounds, directory))


if __name__ == "__main__":
    main()
