"""Speed from shards to batches of pixels, documents and tokens: this crate and other libraries, in
interleaved rounds.

    apt install g++ pkg-config libopencv-dev libturbojpeg0-dev ffmpeg     # to build FFCV, and for SPDL
    pip install -r benches/compare/pixels-requirements.txt                # 8 GB with torch's dependencies
    pip install ./python                                                  # this crate's Python package
    python benches/compare/pixels.py [--rounds 3] [--data DIRECTORY] [--plot FILE.svg]
    python benches/compare/pixels.py --limits [--data DIRECTORY]          # speed of decoders alone
    python benches/compare/pixels.py --threads 1 2 4 8 16 --seconds 1 --save cores.json --scaling cores.svg
    python benches/compare/pixels.py --load cores.json --scaling cores.svg   # tables and plot of saved results

The tasks, from local shards in the page cache, with 1 and 2 threads:

    imagenet  JPEG of about 500 x 375 and 91 KB, RandomResizedCrop to 224, flip, normalised f32 in planes, batches of 64
    cifar     32 x 32 PNG, padded by 4, RandomCrop to 32, flip, normalised f32 in planes, batches of 128
    json      documents of 1 KB as bytes, batches of 256
    tokens    arrays of 1,024 16-bit tokens, batches of 64
    raw       the files of the first task, not decoded, in batches of 64

Peers that are not installed are skipped. Each peer runs in a process of its own. Its imports, its compilation
and its first epoch (or its first seconds) are not counted. For this crate's programs, the whole run is
counted. CPU time and memory are those of a process and its children, with shared pages counted once. With
`--seconds`, all readers run for that time, instead of a number of passes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pixels_data as data
import pixels_peers as peers

ROOT = Path(__file__).resolve().parents[2]
# Name: function, tasks that it supports.
PEERS = {
    "shardstream from Python": (peers.wheel, ["imagenet", "cifar", "json", "tokens", "raw"]),
    "Python webdataset": (peers.webdataset, ["imagenet", "cifar", "json", "tokens", "raw"]),
    "tf.data": (peers.tf_data, ["imagenet", "cifar", "json", "tokens"]),
    "DALI": (peers.dali, ["imagenet", "cifar", "json", "tokens", "raw"]),
    "FFCV": (peers.ffcv, ["imagenet"]),
    "SPDL": (peers.spdl, ["imagenet", "cifar", "json", "tokens", "raw"]),
    "datago": (peers.datago, ["imagenet", "cifar"]),
}
UNVERIFIED = ", unverified"
# Name: additional arguments of cargo. An unverified variant uses the program of the verified variant.
OURS = {"shardstream": [], "shardstream, turbojpeg": ["--features", "turbojpeg"]}
OURS |= {f"{name}{UNVERIFIED}": arguments for name, arguments in OURS.items()}
# Number of passes over the shards: even the fastest reader takes seconds for all passes. A peer stops earlier
# if it has run for SECONDS.
PASSES = {"imagenet": 4, "cifar": 4, "json": 20, "tokens": 40, "raw": 100}
SECONDS = 10
WARMUP_SECONDS = 3


def children(pid="self"):
    """The descendants of a process, except servers, which are not counted as parts of a peer."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            if int(child) not in peers.SERVERS:
                yield child
                yield from children(child)


def cpu_seconds():
    """CPU seconds of this process and its running children."""
    seconds = time.process_time()
    for child in children():
        user, system = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        seconds += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return seconds


def peak_megabytes():
    """Current memory of this process and its children, with shared pages counted once, plus, for each
    process, the difference between its peak and its current memory."""
    field = lambda pid, file, name: int(Path(f"/proc/{pid}/{file}").read_text().split(f"\n{name}:")[1].split()[0])
    kilobytes = 0
    for pid in ["self", *children()]:
        excess = field(pid, "status", "VmHWM") - field(pid, "status", "VmRSS")
        kilobytes += field(pid, "smaps_rollup", "Pss") + excess
    return kilobytes / 1024


def check(batch, task):
    """Asserts that a batch has the shape, type and range of values that the task requires."""
    if task in peers.BYTES:
        assert len(batch) == peers.BATCH[task], f"{len(batch)} pieces"
        return
    import numpy

    array = numpy.asarray(batch)
    assert array.shape == peers.SHAPE[task], f"{array.shape}"
    if task == "tokens":
        assert array.dtype == numpy.uint16 and 1000 < array.max() < data.VOCABULARY, f"{array.dtype} to {array.max()}"
    else:
        mean, deviation = array.mean(), array.std()
        assert array.dtype == numpy.float32 and abs(mean) < 1 and 0.5 < deviation < 1.5, f"{array.dtype}, {mean} ± {deviation}"


def run_peer(name, task, directory, threads, passes, seconds=SECONDS, warmup=WARMUP_SECONDS):
    """Runs a peer in this process, and prints its counts."""
    function, _ = PEERS[name]
    batches = function(task, directory, threads)
    try:
        check(next(batches), task)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    epoch = -(-data.samples(task) // peers.BATCH[task])
    until = time.perf_counter() + warmup
    for _ in range(epoch):
        next(batches)
        if time.perf_counter() > until:
            break
    cpu, wall = cpu_seconds(), time.perf_counter()
    for count in range(1, passes * epoch + 1):
        batch = next(batches)
        if time.perf_counter() > wall + seconds:
            break
    wall, cpu, rss = time.perf_counter() - wall, cpu_seconds() - cpu, peak_megabytes()
    check(batch, task)
    result = {"samples": count * peers.BATCH[task], "wall_s": round(wall, 3), "cpu_s": round(cpu, 3), "rss_mb": round(rss)}
    print(json.dumps(result), flush=True)
    batches.close()
    os._exit(0)  # Some peers do not end their threads.


def build(variant):
    """Builds a variant of the example `pixels` in a target directory of its own, and returns its path."""
    directory = ROOT / "target" / ("pixels-" + variant.replace(", ", "-"))
    command = ["cargo", "build", "--release", "--message-format=json", "--example", "pixels", "--target-dir", str(directory)]
    process = subprocess.run([*command, *OURS[variant]], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [path for message in map(json.loads, process.stdout.splitlines()) if (path := message.get("executable"))][-1]


def readers():
    """Returns, by the name of the reader, functions from a task and a number of threads to a command, or to a
    false value if the reader does not support the task."""

    def ours(variant):
        verified = variant.removesuffix(UNVERIFIED)
        program = programs.get(verified) or build(verified)
        until = lambda task: ["--seconds", str(options.seconds)] if options.seconds else ["--passes", str(PASSES[task])]
        command = lambda task, threads: [program, task, data.pattern(options.data, task), "--threads", str(threads), *until(task)]
        if variant == verified:
            return command
        return lambda task, threads: task == "imagenet" and [*command(task, threads), "--unverified"]

    def peer(name, tasks):
        return lambda task, threads: task in tasks and [
            options.python, __file__, "--peer", name, "--task", task, "--threads", str(threads), "--data", options.data,
            *(["--seconds", str(options.seconds)] if options.seconds else []),
        ]

    programs = dict(argument.split("=", 1) for argument in options.program)
    commands = {variant: ours(variant) for variant in options.variants}
    return commands | {name: peer(name, PEERS[name][1]) for name in options.peers}


def measure(command, reader):
    """Runs a command. Returns its samples, wall seconds, CPU seconds and peak memory in MB, or None if the
    reader is not installed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines = process.stdout.read().splitlines()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0 or not lines:
        sys.exit(f"{command} failed")
    result = json.loads(lines[-1])
    if "missing" in result:
        return None
    if reader in OURS and not options.seconds:
        result["cpu_s"] = usage.ru_utime + usage.ru_stime
    return result["samples"], result["wall_s"], result["cpu_s"], result["rss_mb"]


def warm(task):
    """Reads the files of a task into the page cache."""
    for path in Path(options.data).glob(f"{data.SAME.get(task, task)}*"):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def compare(commands):
    """Returns the medians over the rounds, by task, threads and reader: samples per second, CPU seconds per
    sample, and peak memory in MB; or None for a reader that is not installed."""
    runs = {}
    for number in range(options.rounds):
        for task in options.tasks:
            warm(task)
            for threads in options.threads:
                for reader, make in commands.items():
                    if not (command := make(task, threads)) or runs.get((task, threads, reader), []) is None:
                        continue
                    print(f"round {number + 1} of {options.rounds}: {task}, threads: {threads}, {reader}", file=sys.stderr)
                    run = measure(command, reader)
                    if run is None:
                        runs[task, threads, reader] = None
                        continue
                    samples, wall, cpu, rss = run
                    runs.setdefault((task, threads, reader), []).append((samples / wall, cpu / samples, rss))
    return {key: run and [statistics.median(column) for column in zip(*run)] for key, run in runs.items()}


def table(results):
    lines = [
        "| task | threads | reader | samples per CPU-second | CPU s per 1,000 | samples/s | peak RSS, MB | × best peer |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for (task, threads, reader), result in results.items():
        if result is None:
            lines.append(f"| {task} | {threads} | {reader} | not installed | | | | |")
            continue
        others = [run[1] for (a, b, name), run in results.items() if (a, b) == (task, threads) and name in PEERS and run]
        rate, cpu, rss = result
        ratio = f"{min(others) / cpu:.2f}" if others else ""
        row = [task, str(threads), reader, f"{1 / cpu:,.0f}", f"{cpu * 1000:.4g}", f"{rate:,.0f}", f"{rss:,.0f}", ratio]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def scaling_table(results):
    """Returns a table of samples per second by number of threads, and of the samples per CPU-second with the
    most threads relative to one thread."""
    threads = sorted({count for _, count, _ in results})
    lines = [
        "| task | reader | " + " | ".join(f"{count} threads" for count in threads) + " | per CPU-second, most threads relative to one |",
        "|---|---|" + "--:|" * (len(threads) + 1),
    ]
    for task, reader in dict.fromkeys((task, reader) for task, _, reader in results):
        runs = {count: run for count in threads if (run := results.get((task, count, reader)))}
        if runs:
            rates = [f"{runs[count][0]:,.0f}" if count in runs else "" for count in threads]
            share = runs[min(runs)][1] / runs[max(runs)][1]
            lines.append("| " + " | ".join([task, reader, *rates, f"{share:.2f}"]) + " |")
    return "\n".join(lines)


def pyplot():
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    return pyplot


def plot_scaling(results, file):
    """Plots samples per second by number of threads, and the line of proportional scaling."""
    from matplotlib import ticker

    tasks = list(dict.fromkeys(task for task, _, _ in results))
    figure, axes = pyplot().subplots(1, len(tasks), figsize=(3.2 * len(tasks), 3.2), layout="constrained", squeeze=False)
    readers = list(dict.fromkeys(reader for _, _, reader in results))
    labelled = {}
    for axis, task in zip(axes[0], tasks):
        for number, reader in enumerate(readers):
            points = sorted((count, run[0]) for (a, count, b), run in results.items() if (a, b) == (task, reader) and run)
            if not points:
                continue
            color, style = ("#2a6f97", "o-") if reader == "shardstream" else (f"C{number}", "s--")
            labelled[reader], = axis.plot(*zip(*points), style, color=color, markersize=4)
            if reader == "shardstream":
                (first, rate), last = points[0], points[-1][0]
                labelled["in proportion"], = axis.plot([first, last], [rate, rate * last / first], ":", color="#b0b0b0")
        axis.set(title=task, ylim=0, xticks=sorted({count for a, count, _ in results if a == task}), xlabel="threads")
        axis.yaxis.set_major_formatter(ticker.EngFormatter())
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("samples per second")
    figure.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(file)


def plot(results, file):
    from matplotlib import ticker

    threads = options.threads[0]
    count = len(options.tasks)
    figure, axes = pyplot().subplots(1, count, figsize=(3.2 * count, 2.6), layout="constrained", squeeze=False)
    for axis, task in zip(axes[0], options.tasks):
        rates = {name: 1 / run[1] for (a, b, name), run in results.items() if (a, b) == (task, threads) and run}
        bars = axis.barh(list(rates), list(rates.values()), color=["#2a6f97" if name in OURS else "#b0b0b0" for name in rates])
        axis.bar_label(bars, labels=[f" {rate:,.0f}" for rate in rates.values()], fontsize=8)
        axis.set(xlim=(0, max(rates.values()) * 1.35), title=task)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(3))
        axis.xaxis.set_major_formatter(ticker.EngFormatter())
        axis.spines[["top", "right"]].set_visible(False)
        axis.invert_yaxis()
    figure.supxlabel(f"samples per CPU-second, threads: {threads}", fontsize=9)
    figure.savefig(file)


def limits():
    """Prints the speed of decoders alone on one core, in images per CPU-second."""
    import io

    contents = [sample["jpg"] for sample in data.read(options.data, "imagenet")]
    print(f"{len(contents):,} pictures of {statistics.mean(map(len, contents)) / 1000:.1f} KB", end="\n\n")

    def simplejpeg():
        import simplejpeg

        return simplejpeg.decode_jpeg

    def pillow():
        from PIL import Image

        return lambda content: Image.open(io.BytesIO(content)).load()

    def opencv():
        import cv2
        import numpy

        cv2.setNumThreads(1)
        return lambda content: cv2.imdecode(numpy.frombuffer(content, numpy.uint8), cv2.IMREAD_COLOR)

    print("| full decode of JPEG, one core | images per CPU-second |\n|---|--:|")
    for name, make in {"libjpeg-turbo (simplejpeg)": simplejpeg, "Pillow": pillow, "OpenCV": opencv}.items():
        try:
            decode = make()
        except ImportError:
            print(f"| {name} | not installed |")
            continue
        rates = []
        for _ in range(options.rounds):
            start = time.process_time()
            for content in contents:
                decode(content)
            rates.append(len(contents) / (time.process_time() - start))
        print(f"| {name} | {statistics.median(rates):,.0f} |")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", help="directory of the shards, 2 GB (default: a temporary directory)")
    parser.add_argument("--plot", help="plot the results of the first number of threads into this file")
    parser.add_argument("--scaling", metavar="FILE.svg", help="plot the rates by the number of threads into this file")
    parser.add_argument("--seconds", type=float, help="run each reader for this time, instead of a number of passes")
    parser.add_argument("--save", metavar="FILE.json", help="write the results, for --load")
    parser.add_argument("--load", metavar="FILE.json", help="print saved results instead of measuring")
    parser.add_argument("--limits", action="store_true", help="measure decoders alone")
    parser.add_argument("--tasks", nargs="*", choices=data.SHARDS, default=list(data.SHARDS))
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--variants", nargs="*", choices=OURS, default=list(OURS), help="variants of this crate (default: all)")
    parser.add_argument("--program", action="append", default=[], metavar="VARIANT=PATH", help="a variant that is already built")
    parser.add_argument("--python", default=sys.executable, help="the interpreter with the peers")
    parser.add_argument("--write", metavar="DIRECTORY", help="write the shards and end")
    parser.add_argument("--peer", choices=PEERS, help="run one peer on one task and end")
    parser.add_argument("--task", choices=data.SHARDS, default="imagenet", help="for --peer")
    parser.add_argument("--passes", type=int, help="for --peer")
    return parser.parse_args()


def main():
    if options.write:
        return data.write(options.write)
    if options.peer:
        passes = options.passes or (sys.maxsize if options.seconds else PASSES[options.task])
        seconds, warmup = options.seconds or SECONDS, min(WARMUP_SECONDS, options.seconds or WARMUP_SECONDS)
        return run_peer(options.peer, options.task, options.data, options.threads[0], passes, seconds, warmup)
    if options.load:
        return show({tuple(key): run for key, run in json.loads(Path(options.load).read_text())})
    with tempfile.TemporaryDirectory() as temporary:
        options.data = os.path.abspath(options.data or temporary)
        # The writer runs in a process of its own, since it leaves a lot of data in memory.
        subprocess.run([options.python, __file__, "--write", options.data], check=True)
        if options.limits:
            return limits()
        results = compare(readers())
    if options.save:
        Path(options.save).write_text(json.dumps([[key, run] for key, run in results.items()]))
    show(results)


def show(results):
    print(table(results))
    if len(options.threads) > 2 or options.scaling:
        print(f"\n{scaling_table(results)}")
    if options.plot:
        plot(results, options.plot)
    if options.scaling:
        plot_scaling(results, options.scaling)


if __name__ == "__main__":
    options = arguments()
    main()
