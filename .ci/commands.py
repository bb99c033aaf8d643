#!/usr/bin/env python3
"""Checks and runs the commands of the documentation.

Commands are the ```sh blocks and the inline code that starts with a program's name, of README.md, docs/*.md and the
READMEs below crates/ and examples/, and the commands in the first comment of examples/*.rs. Each must match exactly one
rule of RULES, so that a new command in a page fails until somebody says here how it is tested, and each rule must match
a command.

    .ci/commands.py --check     the rules alone: a second, builds nothing
    .ci/commands.py             runs what can run here, as .ci/run does after everything is built

Commands run as they are written, in the repository or in the page's directory, with data prepared under the names
that they use. These names must be free, and are removed afterwards. The tutorial runs in an empty directory, and what
its commands print is compared with the page; SHARDSTREAM_BLESS=1 writes it into the page.
"""

import difflib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections import Counter
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/llms.txt", "crates/*/README.md", "examples/**/README.md", "python/README.md"]
PROGRAMS = r"cargo|python3?|pip|npm|apt|gcloud|tensorboard|on_all|make_\w+_shards|(?:\./|target/|venv/)\S+"
SECONDS = 300


class Run:
    """Runs here as it is written; `expect` is in what it prints."""

    def __init__(self, pattern, expect="", needs=()):
        self.pattern, self.expect, self.needs = pattern, expect, needs


class Ci:
    """.ci/run runs it, or what amounts to the same, by a line that matches `line`."""

    def __init__(self, pattern, line):
        self.pattern, self.line = pattern, line


class Test:
    """A test takes it from the page: `path` names the test's file."""

    def __init__(self, pattern, path):
        self.pattern, self.path = pattern, path


class Not:
    """Is not run, for a reason."""

    def __init__(self, pattern, reason):
        self.pattern, self.reason = pattern, reason


PARSED = "examples/resnet/src/args/mod.rs"
WRITTEN = "examples/make_shards/tests/tools/commands.rs"
CREATED = "crates/cli/tests/cli/writing/commands.rs"
VENV = r'\$cache/jax/bin/pip" install .*'

RULES = [
    # The library and its examples.
    Ci(r"cargo test$", r'eval "\$test_command"'),
    Ci(r"cargo doc --open$", r"cargo doc --workspace"),
    Ci(r"apt install cmake nasm$", r"apt-get install .*cmake nasm"),
    Ci(r"cargo fmt --all --check$", r"^cargo fmt --all --check$"),
    Ci(r"cargo clippy --workspace --all-targets --all-features -- -D warnings$", r"cargo clippy --workspace --all-targets"),
    Not(r"\.ci/run$", "it is what runs this"),
    Ci(r"cargo test -p shardstream-cli$", r"--test cli"),
    Run(r"cargo tree --workspace ", "shardstream-image"),
    Not(r"cargo install shardstream-cli$", "the crate is not published; tests run the program"),
    Not(r"cargo install --path crates/cli$", "it changes the user's programs; tests run the program"),
    Not(r"cargo publish --workspace( --dry-run)?$", "a release; it builds each crate anew"),
    Not(r"cargo publish --manifest-path crates/burn/Cargo\.toml$", "a release; it needs the library on crates.io"),
    Not(r"cargo add shardstream --features \w+$", "the crate is not published; that it has the feature is checked"),
    Run(r"cargo run --example index_shards$", "5 shards with 5000 samples"),
    Run(r"cargo run --example index_shards -- 'data/", "10 shards with 640 samples", ["data"]),
    Run(r"cargo run --example read_shards -- 'data/", "640 samples", ["data"]),
    Run(r"cargo run --example own_format$", "28 texts after a restore"),
    Run(r"cargo run -p shardstream-parquet --example pack_texts$", "with a restore after 3 batches"),
    Run(r"cargo run --example async_stream -- 'data/", "640 samples", ["data"]),
    Run(r"cargo run --example write_shards -- 'out/", "out/train-000002.tar: 500 samples", ["out"]),
    Not(r"cargo run --features gcs --example \w+ -- ", "a bucket"),
    Not(r"cargo run --release --example (throughput|pixels) ", "measures for minutes; cargo test builds it"),
    # The trainer.
    Ci(r"cargo run --release -p resnet$", r"^cargo run --release -p resnet -- --epochs 1 --steps"),
    Run(r"cargo run --release -p resnet -- --shards 'DIR/", "best validation accuracy", ["DIR"]),
    Test(r"cargo run --release -p resnet --features gcs -- ", PARSED),
    Test(r"(for try in .*)?\./resnet ", PARSED),
    Test(r'on_all "nohup ./resnet ', PARSED),
    Not(r"cargo test -p resnet --test trainer tpu -- --include-ignored$", "libtpu, and minutes; the README's test command runs it without"),
    Not(r"cargo install --locked --git \S+ (resnet|make_shards|shardstream-cli)( |$)", "the address is the reader's; CI builds these programs"),
    Not(r"cargo build --release -p resnet --features gcs$", "minutes; CI builds it without --release"),
    Not(r"pip install libtpu$", "600 MB, for a machine that compiles for TPUs"),
    Not(r"python3 -m (pip download .* libtpu==|zipfile -e libtpu-)|export TPU_LIBRARY_PATH=", "600 MB, for a machine that compiles for TPUs"),
    Not(r"cargo run --release -p resnet -- --artifact mine/r50 \.\.\.$", "leaves open what it trains on"),
    Run(r"venv/bin/python export_resnet.py ", needs=["venv", "mine"]),
    Ci(r"python3 -m venv venv && venv/bin/pip install -r requirements.txt$", VENV + "export/requirements.txt"),
    Ci(r"SHARDSTREAM_TEST_JAX=\S+ cargo test", r"^export SHARDSTREAM_TEST_JAX="),
    Not(r"tensorboard --logdir", "a server that stays; a test reads the curves with tensorboard's reader"),
    # The small trainer.
    Run(r"cargo run --release -p train_pjrt$", "saved target/train_pjrt/checkpoint-"),
    Run(r"cargo run --release -p train_pjrt -- 1000 DIR$", "saved DIR/checkpoint-001000.tar", ["DIR"]),
    # The Python package.
    Not(r"pip install \./python$", "a release build; CI builds and tests the wheel without optimisation"),
    Not(r"pip install maturin ", "CI has them"),
    # The programs that make shards.
    Not(r"cargo build --release -p make_shards --features gcs$", "minutes; CI builds it without --release"),
    Test(r"(target/release/)?make_cifar_shards ", WRITTEN),
    Test(r"(target/release/)?shardstream create ", CREATED),
    # The cloud.
    Run(r"(export )?(\w+=[^$(]+ ?)+$"),
    Run(r'(TRAIN|VAL|INDEX|VAL_INDEX)="gs://\$BUCKET/'),
    Not(r"(\w+=\$\(|on_all\(\) \{ )?gcloud ", "a cloud"),
    Not(r"on_all '", "a TPU VM"),
    Not(r"sudo apt-get update ", "sets up a TPU VM"),
]


def commands(text):
    """The commands of a shell block: lines, joined where one goes on, without comments."""
    found, lines = [], iter(text.splitlines())
    for line in lines:
        heredoc = re.search(r"<<'?(\w+)'?$", line)
        if heredoc:
            for more in lines:
                line += "\n" + more
                if more == heredoc[1]:
                    break
        else:
            while line.endswith("\\") or not closed(line):
                line = line.removesuffix("\\") + ("\n" if not line.endswith("\\") else "") + next(lines)
            line = re.sub(r"\s+#\s.*$", "", line) if "\n" not in line else line
        if line.strip() and not line.startswith("#"):
            found.append(line.strip())
    return found


def closed(line):
    """Whether all quotes are closed."""
    try:
        shlex.split(line, comments=True)
        return True
    except ValueError:
        return False


def documented():
    """All commands as (page, command), and the shell blocks as (page, text)."""
    found, blocks = [], []
    for page in sorted({page for pattern in PAGES for page in ROOT.glob(pattern)}):
        if any(part in ("venv", "target") for part in page.parts):
            continue
        text = page.read_text()
        for language, block in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.M | re.S):
            # Not ```console: crates/cli/tests/cli/page.rs runs those blocks and compares the output.
            if language in ("sh", "bash", "shell"):
                blocks.append((page, block))
                found += [(page, command) for command in commands(block)]
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        for code in re.findall(r"`([^`]+)`", prose):
            code = " ".join(code.split())
            if re.match(rf"(?:\w+=\S+ )*(?:{PROGRAMS}) ", code) and "…" not in code:
                found.append((page, code))
    for page in sorted((ROOT / "examples").glob("*.rs")):
        found += [(page, line) for line in re.findall(r"^//! (cargo .*)$", page.read_text(), re.M)]
    return found, blocks


def check():
    """What is wrong with the commands or the rules; the commands that run, with their rules."""
    found, blocks = documented()
    wrong, runs, used = [], [], Counter()
    for page, command in found:
        rules = [rule for rule in RULES if re.match(rule.pattern, command)]
        place = f"{page.relative_to(ROOT)}: {command}"
        if len(rules) != 1:
            wrong.append(f"{place}\n    matches {len(rules)} rules of .ci/commands.py")
            continue
        used[rules[0]] += 1
        wrong += [f"{place}\n    {problem}" for problem in cargo_names(command)]
        if isinstance(rules[0], Run):
            runs.append((page, command, rules[0]))
    ci = (ROOT / ".ci/run").read_text()
    for rule in RULES:
        if not used[rule]:
            wrong.append(f"no command matches the rule {rule.pattern}")
        if isinstance(rule, Ci) and not re.search(rule.line, ci, re.M):
            wrong.append(f"no line of .ci/run matches {rule.line}, which stands for {rule.pattern}")
        if isinstance(rule, Test) and not (ROOT / rule.path).exists():
            wrong.append(f"there is no {rule.path}, which tests {rule.pattern}")
    for page, block in blocks:
        shell = subprocess.run(["bash", "-n"], input=block.replace("…", "x"), text=True, capture_output=True)
        if shell.returncode != 0:
            wrong.append(f"{page.relative_to(ROOT)}: a block is no shell script: {shell.stderr.strip()}")
    return wrong, runs, len(found)


def cargo_names(command):
    """Packages, features and examples that cargo is asked for and does not know."""
    words = shlex.split(re.split(r" -- | && ", command)[0], comments=True)
    if "cargo" not in words:
        return []
    after = lambda *names: [words[at + 1] for at, word in enumerate(words[:-1]) if word in names]
    if words[words.index("cargo") + 1] == "add":
        package = {package["name"]: package for package in packages()}["shardstream"]
        missing = [("a feature", name) for name in after("--features") if name not in package["features"]]
        return [f"shardstream has no {name}, {what} that it adds" for what, name in missing]
    name = (after("-p", "--package") or ["shardstream"])[0]
    package = {package["name"]: package for package in packages()}.get(name)
    if package is None:
        return [f"there is no package {name}"]
    targets = {target["name"] for target in package["targets"]}
    missing = [feature for feature in after("--features") if feature not in package["features"]]
    missing += [target for target in after("--example", "--test", "--bin") if target not in targets]
    return [f"{name} has no {what}" for what in missing]


def packages(known=[]):
    """The packages of the workspace."""
    if not known:
        metadata = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
        known += json.loads(subprocess.run(metadata, cwd=ROOT, check=True, capture_output=True).stdout)["packages"]
    return known


def png(number):
    """A picture of 32x32 pixels of one colour."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([number * 25 % 256, number * 7 % 256, 90]) * 32) * 32
    header = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def shards(directory, name, count, digits, samples=64):
    """Shards of pictures of ten classes, with a text each."""
    directory.mkdir(exist_ok=True)
    for shard in range(count):
        with tarfile.open(directory / f"{name}-{shard:0{digits}}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for sample in range(shard * samples, (shard + 1) * samples):
                label = sample % 10
                fields = {"cls": b"%d" % label, "png": png(label), "txt": b"picture %d" % sample}
                for field, content in fields.items():
                    member = tarfile.TarInfo(f"{sample:06}.{field}")
                    member.size = len(content)
                    tar.addfile(member, BytesIO(content))


def prepare(where, need):
    """Puts what a command needs at `where`/`need`, which must be free."""
    place = where / need
    if place.exists() or place.is_symlink():
        raise SystemExit(f"{place} is in the way of the commands of the documentation")
    if need == "DIR":
        shards(place, "train", 10, 3)
        shards(place, "val", 2, 3)
    elif need == "data":
        shards(place, "train", 10, 6)
    elif need == "venv":
        place.symlink_to(ROOT / ".ci/cache/jax", target_is_directory=True)
    return place


def run(page, command, rule):
    """Runs a command; what is wrong, or nothing."""
    where = page.parent if page.parent.name == "export" else ROOT
    places = []
    try:
        places = [prepare(where, need) for need in rule.needs]
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        if done.returncode != 0 or rule.expect not in done.stdout:
            return f"status {done.returncode}, and this where {rule.expect!r} should be:\n{done.stdout[-4000:]}"
        return ""
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS} s"
    finally:
        for place in places:
            if place.is_symlink():
                place.unlink()
            else:
                shutil.rmtree(place, ignore_errors=True)


def tutorial(name="docs/first-hour.md"):
    """Writes the programs of a page into an empty directory, and runs its commands; what differs, or nothing."""
    lines, written = iter((ROOT / name).read_text().splitlines()), []
    env = {"CARGO_TARGET_DIR": str(ROOT / "target"), **os.environ, "SHARDSTREAM": str(ROOT)}
    env["PATH"] = f"{ROOT / 'target/debug'}:{env['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        for line in lines:
            written.append(line)
            if line.startswith("```rust"):
                block = list(iter(lambda: next(lines), "```"))
                program = where / block[0].removeprefix("// ")
                program.parent.mkdir(exist_ok=True)
                program.write_text("\n".join(block) + "\n")
                written += [*block, "```"]
            elif line == "```console":
                for command in iter(lambda: next(lines), "```"):
                    if not command.startswith("$ "):
                        continue
                    written.append(command)
                    if command.startswith("$ cd "):
                        where /= command[5:]
                        # Pins the dependency versions that are tested and already built.
                        shutil.copy(ROOT / "Cargo.lock", where)
                        continue
                    shell = ["bash", "-c", command[2:]]
                    # Three times SECONDS, because the first command builds the library in release mode.
                    done = subprocess.run(shell, cwd=where, env=env, text=True, capture_output=True, timeout=3 * SECONDS)
                    written += (done.stdout + done.stderr).splitlines()
                written.append("```")
    text = "\n".join(written) + "\n"
    if os.environ.get("SHARDSTREAM_BLESS") == "1":
        (ROOT / name).write_text(text)
    page = (ROOT / name).read_text().splitlines(True)
    return "".join(difflib.unified_diff(page, text.splitlines(True), name, "now"))


def main():
    wrong, runs, count = check()
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{count} commands of the documentation, of which {len(runs)} run here", flush=True)
    if sys.argv[1:] == ["--check"]:
        return
    only = re.compile(sys.argv[1] if sys.argv[1:] else "")
    for page, command, rule in runs:
        if not only.search(command):
            continue
        begin = time.monotonic()
        problem = run(page, command, rule)
        shown = command.splitlines()[0]
        print(f"{time.monotonic() - begin:6.1f} s  {page.relative_to(ROOT)}: {shown}", flush=True)
        if problem:
            raise SystemExit(problem)
    if only.search("docs/first-hour.md"):
        begin = time.monotonic()
        problem = tutorial()
        print(f"{time.monotonic() - begin:6.1f} s  docs/first-hour.md", flush=True)
        if problem:
            raise SystemExit(problem)


if __name__ == "__main__":
    main()
