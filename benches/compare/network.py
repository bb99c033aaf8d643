"""Reading shards over a network: this crate, Python's webdataset, the crate `webdataset`, curl and wrk, from
the same nginx, in interleaved rounds.

    pip install webdataset==1.0.2 numpy torch     # torch for the rows with workers only
    apt install nginx-light wrk curl openssl
    python benches/compare/network.py [--rounds 3] [--data DIRECTORY] [--shaped DIRECTORY] [--before COMMIT]

Without `--shaped`, it measures only the loopback. With it, and as root, the server and the readers run in two
network namespaces, `pb` (10.88.0.2) and `pa` (10.88.0.1). `DIRECTORY/up.sh MICROSECONDS MBIT QUEUE_MS`
connects them by a link with this one-way delay and rate (0 for none), and `DIRECTORY/down.sh` removes it. The
rows with TLS use a certificate that the script creates, and that the readers trust through `SSL_CERT_FILE`
and `CURL_CA_BUNDLE`.

CPU time is that of the reader and its children, and peak memory that of the largest process among them. The
output is a table of results and a table of ratios, in Markdown.
"""

import argparse
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Name: shards, samples per shard (of about 98 KB).
SIZES = {"13 MB": (40, 128), "106 MB": (8, 1070)}
# Ports of nginx. A connection to LIMITED or LIMITED_TLS is limited to 50 MB/s.
PLAIN, LIMITED, TLS, LIMITED_TLS = 8601, 8602, 8603, 8604
# Name: one-way delay in microseconds and rate in Mbit/s of the link (`None` for no link), and the port.
LINKS = {
    "loopback": (None, PLAIN),
    "loopback, TLS": (None, TLS),
    "20 ms": ((10_000, 0), PLAIN),
    "20 ms, TLS": ((10_000, 0), TLS),
    "20 ms, 50 MB/s per connection": ((10_000, 0), LIMITED),
    "20 ms, 50 MB/s per connection, TLS": ((10_000, 0), LIMITED_TLS),
    "20 ms, 1 Gbit/s line": ((10_000, 1000), PLAIN),
    "20 ms, 1 Gbit/s line, TLS": ((10_000, 1000), TLS),
}
QUEUE_MS = 200
# Number of shards that the slow readers read, by shard size.
PART = {"13 MB": 12, "106 MB": 4}
WRK_SECONDS = 4

NGINX = """
user root;
worker_processes 2;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000;
  client_body_temp_path {directory}/body;
  ssl_certificate {directory}/cert.pem;
  ssl_certificate_key {directory}/key.pem;
  server {{ listen {plain}; root {root}; }}
  server {{ listen {limited}; root {root}; limit_rate 50m; }}
  server {{ listen {tls} ssl; root {root}; }}
  server {{ listen {limited_tls} ssl; root {root}; limit_rate 50m; }}
}}
"""

# Requests the shards in turn. Each thread starts at a different shard.
WRK = """
local threads = 0
function setup(thread) thread:set("id", threads); threads = threads + 1 end
function init() at = id * {shards} / 2 end
function request()
  local path = string.format("/bucket/{name}", at % {shards})
  at = at + 1
  return wrk.format("GET", path)
end
function done(summary) print(string.format("wrk: %d bytes, %.6f s", summary.bytes, summary.duration / 1e6)) end
"""


# Commands that create a certificate authority, and a certificate signed by it for the server's addresses.
OPENSSL = """
req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=bench
req {key} -keyout key.pem -out request.pem -subj /CN=bench
x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem
"""


def name_of(size, number="%03d"):
    return f"{size.replace(' ', '').lower()}-{number}.tar"


def write_shards(directory):
    """Writes missing shards, with ustar headers and incompressible fields."""
    os.makedirs(f"{directory}/bucket", exist_ok=True)
    for size, (shards, samples) in SIZES.items():
        for shard in range(shards):
            path = Path(f"{directory}/bucket/{name_of(size) % shard}")
            if path.exists():
                continue
            numbers = random.Random(f"{size} {shard}")
            with tarfile.open(f"{path}.part", "w", format=tarfile.USTAR_FORMAT) as archive:
                for sample in range(samples):
                    jpg = numbers.randbytes(numbers.randint(60_000, 136_000))
                    label = numbers.randrange(1000)
                    document = json.dumps({"label": label, "width": 500, "height": 375}).encode()
                    for field, content in {"cls": b"%d" % label, "jpg": jpg, "json": document}.items():
                        member = tarfile.TarInfo(f"{shard:03}{sample:05}.{field}")
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
            os.rename(f"{path}.part", path)


def warm(size):
    """Reads the shards into the page cache, as they may have been evicted."""
    for shard in range(SIZES[size][0]):
        with open(f"{options.data}/bucket/{name_of(size) % shard}", "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def read_with_webdataset(url, workers):
    """The Python reader: prints its counts and the CPU time of its imports. Runs in a process of its own."""
    import webdataset

    if workers:
        import torch  # noqa: F401

    imports = time.process_time()
    start = time.perf_counter()
    samples = size = 0
    dataset = webdataset.WebDataset(url, shardshuffle=False)
    if workers:
        dataset = webdataset.WebLoader(dataset, num_workers=workers, batch_size=None)
    for sample in dataset:
        samples += 1
        size += sum(len(value) for value in sample.values() if isinstance(value, bytes))
    print(f"{samples} samples, {size} bytes, {time.perf_counter() - start} s, {imports} s for imports")


def build(root, *target, environment=None):
    """Builds a program with cargo, and returns its path."""
    command = ["cargo", "build", "--release", "--message-format=json", *target]
    process = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    messages = map(json.loads, process.stdout.splitlines())
    return [path for message in messages if (path := message.get("executable"))][-1]


def throughput(root, environment=None):
    return build(root, "--example", "throughput", "--features", "gcs,http", environment=environment)


def build_version(commit, directory):
    """Builds the example `throughput` of another version, and returns its path."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(f"{directory}/before", filter="data")
    environment = os.environ | {"CARGO_TARGET_DIR": f"{directory}/target"}
    return throughput(f"{directory}/before", environment)


def create_certificate(directory):
    """Creates the certificate of the server."""
    Path(directory, "names").write_text("subjectAltName=IP:127.0.0.1,IP:10.88.0.2\nbasicConstraints=CA:FALSE\n")
    commands = OPENSSL.format(key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes").strip()
    for command in commands.splitlines():
        subprocess.run(["openssl", *command.split()], cwd=directory, check=True, stderr=subprocess.DEVNULL)


class Link:
    """The server, and the link between it and the readers."""

    def __init__(self, directory, shaped):
        self.shaped = shaped
        self.directory = directory
        self.server = []
        if shaped:
            self.up(0, 0)
            self.server = ["ip", "netns", "exec", "pb"]
        create_certificate(directory)
        Path(f"{directory}/nginx.conf").write_text(
            NGINX.format(directory=directory, root=options.data, plain=PLAIN, limited=LIMITED, tls=TLS, limited_tls=LIMITED_TLS)
        )
        self.nginx = subprocess.Popen([*self.server, "nginx", "-c", f"{directory}/nginx.conf", "-p", directory])
        time.sleep(0.5)
        if self.nginx.poll() is not None:
            sys.exit(f"nginx ended: {Path(directory, 'error.log').read_text()}")

    def up(self, delay, rate):
        command = [f"{self.shaped}/up.sh", str(delay), str(rate), str(QUEUE_MS)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def choose(self, name):
        """Sets the link up. Returns the URL of the server, and a prefix for the command of a reader."""
        shape, port = LINKS[name]
        scheme = "https" if port in (TLS, LIMITED_TLS) else "http"
        if shape is None:
            return f"{scheme}://127.0.0.1:{port}", self.server
        self.up(*shape)
        return f"{scheme}://10.88.0.2:{port}", ["ip", "netns", "exec", "pa"]

    def close(self):
        self.nginx.send_signal(signal.SIGQUIT)
        self.nginx.wait()
        if self.shaped:
            subprocess.run([f"{self.shaped}/down.sh"], stdout=subprocess.DEVNULL)


def readers(programs):
    """Returns, by the name of the reader, functions from the URL of a server, a kind of shards and a link to
    a command, or to None if the reader is not measured there."""
    script_path = f"{Path(__file__).resolve()}"

    def pattern(size, count):
        shards = min(count, SIZES[size][0])
        return name_of(size, f"{{000..{shards - 1:03}}}")

    def wrk(server, size, link):
        script = Path(options.temporary, f"{size}.lua")
        script.write_text(WRK.format(shards=SIZES[size][0], name=name_of(size)))
        return ["wrk", "-c16", "-t2", f"-d{WRK_SECONDS}s", "--timeout", "60s", "-s", str(script), server]

    def curl(server, size, link):
        if LINKS[link][0] is not None:
            return None
        numbers = f"[000-{SIZES[size][0] - 1:03}]"
        return ["curl", "-sS", "-o", "/dev/null", "-w", "%{size_download} bytes, %{time_total} s\n"] + [
            f"{server}/bucket/{name_of(size, numbers)}"
        ]

    def python(workers):
        def command(server, size, link):
            url = f"{server}/bucket/{pattern(size, PART[size])}"
            return [options.python, script_path, "--read", url, "--workers", str(workers)]

        return command

    def rival(server, size, link):
        return [programs["rival"], f"{server}/bucket/{pattern(size, PART[size])}"]

    def ours(program, scheme, method, *numbers):
        def command(server, size, link):
            base = "gs://bucket" if scheme == "gs" else f"{server}/bucket"
            # Enough passes that the time to open connections is negligible.
            passes = 3 if link.removesuffix(", TLS") in ("loopback", "20 ms") else 1
            url = f"{base}/{pattern(size, SIZES[size][0])}"
            return [program, method, "::".join([url] * passes), *numbers]

        return command

    commands = {"wrk, 16 connections": wrk, "curl, one after the other": curl}
    for workers in options.workers:
        commands[f"Python webdataset, workers: {workers}"] = python(workers)
    if programs["rival"]:
        commands["crate webdataset"] = rival
    for label in ("before", "now"):
        if program := programs[label]:
            name = "" if label == "now" else f", {label}"
            commands[f"samples, gs://{name}"] = ours(program, "gs", "samples")
            commands[f"samples, http://{name}"] = ours(program, "http", "samples")
            commands[f"loader, 8 streams, shuffle 100, gs://{name}"] = ours(program, "gs", "loader", "8", "1", "100")
    return commands


def measure(command, server):
    """Runs a command. Returns its seconds, bytes, samples, CPU seconds, peak memory in MB and milliseconds to
    the first item. Unknown values are zero."""
    trusted = f"{options.temporary}/ca.pem"
    environment = os.environ | {"STORAGE_EMULATOR_HOST": server}
    environment |= {"SSL_CERT_FILE": trusted, "CURL_CA_BUNDLE": trusted}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = status
    if status != 0:
        print(f"FAILED: {' '.join(command)}: {text}", file=sys.stderr)
        return None
    number = lambda pattern: sum(float(found) for found in re.findall(pattern, text))
    cpu = usage.ru_utime + usage.ru_stime - number(r"([\d.]+) s for imports")
    # The Python reader reports its time without imports.
    seconds = number(r"bytes, ([\d.]+) s") or seconds
    return seconds, number(r"([\d.]+) bytes"), number(r"(\d+) samples,"), cpu, usage.ru_maxrss / 1024, number(r"first after ([\d.]+) ms")


def compare(commands, link):
    """Returns the medians over the rounds, by kind of shards, link and reader."""
    runs = {}
    for number in range(options.rounds):
        for name in options.links:
            server, prefix = link.choose(name)
            for size in options.sizes:
                warm(size)
                for reader, make in commands.items():
                    command = make(server, size, name)
                    if command is None:
                        continue
                    print(f"round {number + 1} of {options.rounds}: {size}, {name}, {reader}", file=sys.stderr)
                    if run := measure([*prefix, *command], server):
                        runs.setdefault((size, name, reader), []).append(run)
    return {key: [statistics.median(column) for column in zip(*values)] for key, values in runs.items()}


def table(results):
    lines = [
        "| shards | link | reader | MB/s | samples/s | CPU s per GB | peak RSS, MB | first item, ms |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for (size, link, reader), (seconds, total, samples, cpu, rss, first) in results.items():
        rate = f"{samples / seconds:,.0f}" if samples else ""
        first = f"{first:.0f}" if first else ""
        row = [size, link, reader, f"{total / seconds / 1e6:,.0f}", rate, f"{cpu / total * 1e9:.2f}", f"{rss:.0f}", first]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def ratios(results):
    """Returns a table of the throughput of this crate's readers, relative to wrk and to the best result of
    webdataset."""
    lines = ["| shards | link | reader | of wrk | × Python webdataset | CPU × curl |", "|---|---|---|--:|--:|--:|"]
    rate = lambda run: run[1] / run[0]
    cost = lambda run: run[3] / run[1]
    for (size, link, reader), run in results.items():
        if not reader.startswith(("samples", "loader")):
            continue
        peers = {name: run for (a, b, name), run in results.items() if (a, b) == (size, link)}
        best = max((rate(run) for name, run in peers.items() if name.startswith("Python")), default=None)
        format_number = lambda value, digits: f"{value:.{digits}f}" if value else ""
        wrk = peers.get("wrk, 16 connections")
        curl = peers.get("curl, one after the other")
        row = [
            size, link, reader, format_number(wrk and rate(run) / rate(wrk), 2), format_number(best and rate(run) / best, 1),
            format_number(curl and cost(run) / cost(curl), 2),
        ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", help="directory of the shards, 1.4 GB (default: a temporary directory)")
    parser.add_argument("--shaped", help="directory of up.sh and down.sh")
    parser.add_argument("--python", default=sys.executable, help="the interpreter with webdataset")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2], help="numbers of workers of Python webdataset")
    parser.add_argument("--links", nargs="*", choices=LINKS, help="default: all that are possible")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--before", help="a version of this crate to compare with")
    parser.add_argument("--before-program", help="its example `throughput`, if it is already built")
    parser.add_argument("--program", help="the example `throughput`, if it is already built")
    parser.add_argument("--rival", help="the program of benches/compare/rival, if it is already built, or `none` to skip it")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    if options.read:
        return read_with_webdataset(options.read, options.workers[0])
    if options.shaped and os.geteuid() != 0:
        sys.exit("--shaped needs root")
    if options.shaped and b"pa" in subprocess.run(["ip", "netns"], stdout=subprocess.PIPE).stdout.split():
        sys.exit("the network namespaces pa and pb already exist: is this script already running?")
    if not options.shaped:
        print("without --shaped, only the loopback is measured", file=sys.stderr)
        options.links = ["loopback", "loopback, TLS"]
    options.links = options.links or list(LINKS)
    for program in ("nginx", "wrk", "curl", "openssl"):
        shutil.which(program) or sys.exit(f"{program} is not installed")
    with tempfile.TemporaryDirectory() as directory:
        options.temporary = directory
        options.data = os.path.abspath(options.data or directory)
        write_shards(options.data)
        before = options.before_program or (options.before and build_version(options.before, directory))
        rival = options.rival or build(HERE / "rival")
        programs = {"now": options.program or throughput(ROOT), "before": before, "rival": rival if rival != "none" else None}
        link = Link(directory, options.shaped)
        try:
            results = compare(readers(programs), link)
        finally:
            link.close()
    print(table(results), ratios(results), sep="\n\n")


if __name__ == "__main__":
    options = arguments()
    main()
