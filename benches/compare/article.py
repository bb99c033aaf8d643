"""The three configurations of the article, and its sweep over parameters: the trainer of examples/resnet with
the same samples

    A  as single files on the local disk, in random order
    B  as shards on the local disk
    C  as shards on a server with the API of Google Cloud Storage: nginx, over the loopback and over shaped links

in interleaved rounds.

    pip install pillow matplotlib
    apt install nginx-light
    python benches/compare/article.py configurations [--shaped DIRECTORY] [--rounds 3] [--data DIRECTORY]
    python benches/compare/article.py sweep [--shaped DIRECTORY] [--plot FILE.svg]

`--shaped` is as in network.py. Steps are those of a dry run, which waits for the duration of a step and
computes nothing (0 ms: as fast as the data arrives), or real steps of ResNet-8 on the CPU. As root, A and B
are also measured with a cold page cache. Rates are those of the second epoch, including its start, or of the
only epoch if steps have a duration or the page cache is cold. A long epoch reads the same shards several
times. Memory is the peak of the process, and CPU time is that of the whole run.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

import network

ROOT = network.ROOT
PROGRAM = ROOT / "target/release/resnet"
ARTIFACTS = ROOT / "examples/resnet/artifacts"
NO_LINK = "local"
# Name: samples, samples per shard, classes, artifact, images per step of that artifact, milliseconds per
# step. 84 ms for 1,024 images is the speed of one host of the article's v3-32 (48,718 samples/s on four
# hosts). 80 ms for 32 images are 400 images/s, which two cores can still decode.
TASKS = {
    "cifar": (40_960, 2_000, 10, "resnet50-bf16-x8", 1024, 84),
    "imagenet": (3_200, 128, 1000, "resnet50-224", 32, 80),
}
VALIDATION = 256
MODES = ["as fast", "step", "ResNet-8"]


def picture(task, numbers):
    """An encoded image of coarse noise, of a realistic size: 2.2 KB (PNG) or about 100 KB (JPEG)."""
    from PIL import Image

    blob = BytesIO()
    if task == "cifar":
        coarse = Image.frombytes("RGB", (11, 11), numbers.randbytes(363)).resize((32, 32), Image.BICUBIC)
        coarse.quantize(128).convert("RGB").save(blob, "PNG")
        return "png", blob.getvalue()
    coarse = Image.frombytes("RGB", (190, 143), numbers.randbytes(190 * 143 * 3)).resize((500, 375), Image.BICUBIC)
    coarse.save(blob, "JPEG", quality=90)
    return "jpg", blob.getvalue()


def write(data):
    """Writes missing data: the same files as shards in the bucket, and as one directory per class."""
    for task, (count, per_shard, classes, *_) in TASKS.items():
        if Path(data, task).exists():
            continue
        partial, bucket = Path(data, f"{task}.part"), Path(data, "bucket")
        bucket.mkdir(parents=True, exist_ok=True)
        numbers = random.Random(task)
        # Drawing a picture for each file would take an hour. Repeated pictures take as long to decode.
        pictures = [picture(task, numbers) for _ in range(min(count, 2_000))]
        for part, samples in {"train": count, "val": VALIDATION}.items():
            files = [(f"{number:07}", number % classes, *pictures[number % len(pictures)]) for number in range(samples)]
            numbers.shuffle(files)
            for key, label, extension, content in files:
                path = partial / part / f"{label:04}" / f"{key}.{extension}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            sizes = [per_shard] if part == "val" else SWEPT[task]["per shard"]
            for size in sizes:
                write_shards(bucket, f"{task}-{part}-{size}", files, size)
        partial.rename(Path(data, task))


def write_shards(bucket, name, files, per_shard):
    for number, first in enumerate(range(0, len(files), per_shard)):
        with tarfile.open(bucket / f"{name}-{number:04}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for key, label, extension, content in files[first : first + per_shard]:
                for field, value in {"cls": b"%d" % label, extension: content}.items():
                    member = tarfile.TarInfo(f"{key}.{field}")
                    member.size = len(value)
                    archive.addfile(member, BytesIO(value))


# How many times a long epoch reads the shards. An epoch of the article takes minutes; in an epoch of a
# few seconds, the start would take a large share of the time.
LONG = {"cifar": 8, "imagenet": 4}


def pattern(base, task, part, per_shard):
    count = VALIDATION if part == "val" else TASKS[task][0]
    last = -(-count // per_shard) - 1
    return f"{base}/{task}-{part}-{per_shard}-{{0000..{last:04}}}.tar"


# Values of the sweep, by task. While one parameter varies, the other parameters have their first values.
SWEPT = {
    "cifar": {"per shard": [2_000, 100, 500, 10_000], "batch": [1024, 128, 256], "workers": [2, 1, 4]},
    "imagenet": {"per shard": [128, 16, 640], "batch": [32, 128, 256], "workers": [2, 1, 4]},
}


def sharded(base, task, per_shard=None, times=1):
    per_shard = per_shard or TASKS[task][1]
    train = "::".join([pattern(base, task, "train", per_shard)] * times)
    return ["--shards", train, "--val-shards", pattern(base, task, "val", TASKS[task][1])]


def folder(data, task):
    return ["--folder", f"{data}/{task}/train", "--val-folder", f"{data}/{task}/val"]


def program_of(task, batch, directory):
    """Writes the task's artifact with another batch size, for dry runs only, and returns its name or path."""
    name, own = TASKS[task][3:5]
    manifest = json.loads((ARTIFACTS / f"{name}.json").read_text())
    if batch == own:
        return name
    manifest["batch"], manifest["devices"] = batch, 1
    path = Path(directory, f"{name}-{batch}")
    for ending in ("init", "step", "eval"):
        shutil.copy(ARTIFACTS / f"{name}.{ending}.mlirbc", f"{path}.{ending}.mlirbc")
    Path(f"{path}.json").write_text(json.dumps(manifest))
    return str(path)


def drop_caches():
    """Drops the page cache, so that files are read from the disk. Returns False if this process may not do
    that."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


def measure(arguments, prefix=(), host=None, epochs=2):
    """Runs the trainer. Returns the samples per second of the last epoch, the seconds to the first batch, the
    data readiness, the CPU seconds per 1000 samples, and the peak memory in MB."""
    with tempfile.NamedTemporaryFile(suffix=".json") as summary:
        command = [*prefix, str(PROGRAM), *arguments, "--summary", summary.name, "--epochs", str(epochs), "--log-steps", "0"]
        command += ["--work-dir", options.temporary]
        environment = os.environ | ({"STORAGE_EMULATOR_HOST": f"http://{host}"} if host else {})
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            sys.exit(f"FAILED: {' '.join(command)}\n{errors.decode()}")
        report = json.load(open(summary.name))
    seconds = lambda duration: duration["secs"] + duration["nanos"] / 1e9
    results = report["epochs"]
    samples = sum(epoch["samples"] for epoch in results)
    last = results[-1]
    ready = last["readiness"]
    cpu = (usage.ru_utime + usage.ru_stime) / samples * 1000
    return last["samples"] / seconds(last["time"]), seconds(results[0]["first_batch"]), ready, cpu, usage.ru_maxrss / 1024


def medians(runs):
    return {key: [statistics.median(column) for column in zip(*values)] for key, values in runs.items()}


def sources(task, timed):
    """The configurations: name, arguments, link to the server or None, and whether the page cache is cold."""
    bucket = f"{options.data}/bucket"
    result = [
        ("A: single files", folder(options.data, task), None, False),
        ("A: single files, cold", folder(options.data, task), None, True),
        ("B: shards, local", sharded(bucket, task), None, False),
        ("B: shards, local, cold", sharded(bucket, task), None, True),
    ]
    times = LONG[task] if timed else 1
    if timed:
        result.append(("B: shards, local, long epoch", sharded(bucket, task, times=times), None, False))
    for name in options.links:
        label = f"C: shards, server, {name}" + (", long epoch" if timed else "")
        result.append((label, sharded("gs://bucket", task, times=times), name, False))
    return result


def warm(task):
    """Reads the files and shards into the page cache."""
    for path in [*Path(options.data, task).rglob("*.*"), *Path(options.data, "bucket").glob(f"{task}-*")]:
        path.read_bytes()


def configurations(link):
    runs = {}
    for round_number in range(options.rounds):
        for task in options.tasks:
            step = TASKS[task][5]
            modes = {"as fast as data comes": ["--dry-run"], f"step of {step} ms": [f"--dry-run={step}"]}
            modes = {mode: ["--artifact", TASKS[task][3], *arguments] for mode, arguments in modes.items()}
            if task == "cifar":
                modes["ResNet-8 on the CPU"] = ["--artifact", "resnet8", "--steps", "40"]
            for mode, arguments in modes.items():
                if not any(mode.startswith(selected) for selected in options.modes):
                    continue
                timed = mode.startswith("step")
                warm(task)
                for name, source, link_name, cold in sources(task, timed):
                    host, prefix = link.choose(link_name) if link_name else (None, [])
                    if cold and (mode.startswith("ResNet") or not drop_caches()):
                        continue
                    run = measure([*source, *arguments], prefix, host, epochs=1 if cold or timed else 2)
                    if cold:
                        warm(task)
                    runs.setdefault((task, mode, name), []).append(run)
                    print(f"round {round_number + 1}: {task}, {mode}, {name}: {run[0]:,.0f}/s", file=sys.stderr)
    return medians(runs)


def share(part, whole):
    return f"{part / whole:.3f}" if whole == whole else ""


def show(results):
    lines = [
        "| samples | steps | data from | samples/s | of A | of B | data ready | first batch, s | CPU s per 1000 | peak RSS, MB |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for (task, mode, label), (rate, first, ready, cpu, rss) in results.items():
        kind = next((kind for kind in (", cold", ", long epoch") if label.endswith(kind)), "")
        rate_of = lambda name: (results.get((task, mode, name + kind)) or [float("nan")])[0]
        a, b = rate_of("A: single files"), rate_of("B: shards, local")
        row = [task, mode, label, f"{rate:,.0f}", share(rate, a), share(rate, b), f"{100 * ready:.1f} %"]
        lines.append("| " + " | ".join([*row, f"{first:.2f}", f"{cpu:.2f}", f"{rss:,.0f}"]) + " |")
    return "\n".join(lines)


def sweep(link):
    runs = {}
    for round_number in range(options.rounds):
        for task in options.tasks:
            swept = SWEPT[task]
            base = {name: values[0] for name, values in swept.items()}
            points = {tuple({**base, name: value}.items()) for name, values in swept.items() for value in values}
            for name in [NO_LINK, *options.links]:
                for point in sorted(points):
                    point = dict(point)
                    host, prefix = (None, []) if name == NO_LINK else link.choose(name)
                    base_url = "gs://bucket" if host else f"{options.data}/bucket"
                    arguments = ["--artifact", program_of(task, point["batch"], options.temporary), "--dry-run"]
                    arguments += ["--workers", str(point["workers"]), *sharded(base_url, task, point["per shard"])]
                    run = measure(arguments, prefix, host)
                    # Data readiness is measured with the step duration of a real device.
                    step = TASKS[task][5] * point["batch"] / TASKS[task][4]
                    timed = measure([f"--dry-run={step}" if a == "--dry-run" else a for a in arguments], prefix, host)
                    runs.setdefault((task, name, *point.values()), []).append((*run[:2], timed[2], *run[3:]))
                    print(f"round {round_number + 1}: {task}, {name}, {point}: {run[0]:,.0f}/s", file=sys.stderr)
    return medians(runs)


def show_sweep(results):
    lines = [
        "| samples | from | per shard | shards | batch | workers | samples/s | data ready at a realistic step | first batch, s "
        "| CPU s per 1000 | peak RSS, MB |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for (task, name, per_shard, batch, workers), (rate, first, ready, cpu, rss) in sorted(results.items()):
        shards = -(-TASKS[task][0] // per_shard)
        row = [task, name, f"{per_shard:,}", f"{shards:,}", f"{batch:,}", f"{workers}", f"{rate:,.0f}", f"{100 * ready:.1f} %"]
        lines.append("| " + " | ".join([*row, f"{first:.2f}", f"{cpu:.2f}", f"{rss:,.0f}"]) + " |")
    return "\n".join(lines)


def plot(results, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "shardstream"
    from matplotlib import pyplot

    axes_of = ["per shard", "batch", "workers"]
    tasks = [task for task in TASKS if any(key[0] == task for key in results)]
    figure, axes = pyplot.subplots(len(tasks), 3, figsize=(11, 3.2 * len(tasks)), squeeze=False)
    for row, task in enumerate(tasks):
        base = [values[0] for values in SWEPT[task].values()]
        for column, axis in enumerate(axes_of):
            for name in [NO_LINK, *options.links]:
                points = []
                for key, run in results.items():
                    others = [key[2 + index] == base[index] for index in range(3) if index != column]
                    if key[:2] == (task, name) and all(others):
                        points.append((key[2 + column], run[0]))
                axes[row][column].plot(*zip(*sorted(points)), marker="o", label=name)
            axes[row][column].set(xlabel=axis, ylabel="samples/s" if column == 0 else None, title=task, xscale="log", ylim=(0, None))
            axes[row][column].set_xticks(sorted(SWEPT[task][axis]), [f"{value:,}" for value in sorted(SWEPT[task][axis])])
            axes[row][column].minorticks_off()
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=["configurations", "sweep"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", help="directory of the samples, 1.5 GB (default: a temporary directory)")
    parser.add_argument("--shaped", help="directory of up.sh and down.sh, see network.py")
    parser.add_argument("--links", nargs="*", choices=network.LINKS, help="default: all that are possible")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES, help="modes of `configurations` (default: all)")
    parser.add_argument("--plot", help="plot the sweep into this file")
    return parser.parse_args()


def main():
    if not options.shaped:
        options.links = ["loopback"]
    options.links = list(network.LINKS) if options.links is None else options.links
    shutil.which("nginx") or sys.exit("nginx is not installed")
    build = ["cargo", "build", "--release", "-p", "resnet", "--features", "gcs"]
    subprocess.run(build, cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as directory:
        options.temporary = directory
        options.data = os.path.abspath(options.data or directory)
        write(options.data)
        # nginx may run as another user, who must be able to read the directory.
        os.chmod(directory, 0o755)
        network.options = options
        link = network.Link(directory, options.shaped)
        try:
            results = configurations(link) if options.experiment == "configurations" else sweep(link)
        finally:
            link.close()
    print(show(results) if options.experiment == "configurations" else show_sweep(results))
    if options.plot and options.experiment == "sweep":
        plot(results, options.plot)


if __name__ == "__main__":
    options = arguments()
    main()
