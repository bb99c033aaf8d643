"""Signals, forks and kills."""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import write_shards

import shardstream


def python(program, *arguments, **options):
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


WAITS = """
import shardstream, signal, sys
# A shell makes the children of a background process ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
small = shardstream.Image(8, transforms=[shardstream.Resize((8, 8))], mode="l8")
columns = {"image": small, "key": shardstream.Key()}
batches = iter(shardstream.Loader(sys.argv[1], columns, 10, threads=1))
try:
    print("waits", flush=True)
    next(batches)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(shardstream.strings(next(batches), "key")[0])
"""


@pytest.fixture
def large_pictures(tmp_path):
    """Shards of large pictures: a batch takes seconds."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (4000, 4000)).save(file, "PNG")
    return write_shards(tmp_path, ({"png": file.getvalue()} for _ in range(20)), 20)


def test_ctrl_c_ends_a_wait_and_loses_no_batch(large_pictures):
    waiting = python(WAITS, large_pictures)
    assert waiting.stdout.readline() == "waits\n"
    waiting.send_signal(signal.SIGINT)
    assert waiting.communicate() == ("interrupted\n000000\n", "")


def child(loader, shards, results):
    try:
        loader = loader or shardstream.Loader(shards, {"label": "cls"}, 8)
        results.put(sum(len(batch["label"]) for batch in loader))
    except Exception as error:
        results.put((type(error).__name__, str(error)))


def in_child(method, loader, shards):
    context = multiprocessing.get_context(method)
    results = context.Queue()
    process = context.Process(target=child, args=(loader, shards, results))
    process.start()
    result = results.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    return result


def test_a_loader_in_a_forked_child_raises_an_error(labels, shards):
    loader = labels()
    next(iter(loader))
    for given in (loader, None):
        kind, message = in_child("fork", given, shards)
        assert kind == "ForkedError" and "spawn" in message
    assert sum(len(batch["label"]) for batch in loader) == 256, "the parent continues"


def test_a_spawned_child_has_a_loader_of_its_own(labels, shards):
    loader = labels()
    next(iter(loader))
    assert in_child("spawn", None, shards) == 256
    assert in_child("spawn", loader, shards) == 256


FORKS_FIRST = """
import os, shardstream, sys
if os.fork() == 0:
    loader = shardstream.Loader(sys.argv[1], {"label": "cls"}, 8)
    print(sum(len(batch["label"]) for batch in loader), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_child_that_was_forked_before_the_first_loader_can_read(shards):
    forked = python(FORKS_FIRST, shards)
    out, error = forked.communicate(timeout=60)
    assert (out, error) == ("256\n", "")


TRAINS = """
import json, os, sys
import shardstream

shards, log, checkpoint, steps = sys.argv[1:5]
loader = shardstream.Loader(shards, {"label": "cls"}, 8, shuffle=40, epochs=None)
weight, step = 0.0, 0
if os.path.exists(checkpoint):
    with open(checkpoint) as file:
        weight, step, state = json.load(file)
    loader.load_state_dict(state)
with open(log, "a") as losses:
    for batch in loader:
        weight = 0.9 * weight + float((batch["label"].numpy() * range(8)).sum())
        step += 1
        print(step, weight, file=losses, flush=True)
        if step % 7 == 0:
            with open(checkpoint + ".partial", "w") as file:
                json.dump([weight, step, loader.state_dict()], file)
            os.replace(file.name, checkpoint)
        if step == int(steps):
            break
"""


def test_a_killed_training_has_the_same_losses_after_it_resumes(tmp_path, shards):
    def losses(name):
        with open(tmp_path / name) as file:
            return dict(line.split() for line in file if line.endswith("\n"))

    def start(name):
        return python(TRAINS, shards, str(tmp_path / name), str(tmp_path / f"{name}.json"), "200")

    assert start("whole").wait(120) == 0
    for kill_at in (3, 40, 80, 120):
        training = start("killed")
        while not (tmp_path / "killed").exists() or str(kill_at) not in losses("killed"):
            assert training.poll() is None, training.stderr.read()
            time.sleep(0.005)
        os.kill(training.pid, signal.SIGKILL)
        training.wait()
    assert start("killed").wait(120) == 0
    assert losses("killed") == losses("whole") and len(losses("whole")) == 200


CLOSES_FORKED = """
import logging, os, shardstream, sys, time
logging.basicConfig(format="%(message)s", level=logging.DEBUG)
batches = iter(shardstream.Loader(sys.argv[1], {"label": "cls"}, 8, threads=1))
next(batches)
# Meanwhile the loader reads shards in advance. Its log events are queued until the next call of the loader.
time.sleep(0.5)
if os.fork() == 0:
    batches.close()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
list(batches)
"""


def test_a_forked_child_can_close_an_iterator_and_does_not_log_its_parents_events(shards):
    out, error = python(CLOSES_FORKED, shards).communicate(timeout=60)
    read = [line for line in error.splitlines() if line.startswith("a shard is being read")]
    assert (out, sorted(read)) == ("0\n", sorted(set(read))) and len(read) == 8


CLOSES_WAITING = """
import shardstream, sys, threading, time
small = shardstream.Image(8, transforms=[shardstream.Resize((8, 8))], mode="l8")
batches = iter(shardstream.Loader(sys.argv[1], {"image": small}, 20, threads=1))

def wait():
    print("waits", flush=True)
    try:
        next(batches)
    except shardstream.Error as error:
        print(error.kind, flush=True)

thread = threading.Thread(target=wait)
thread.start()
time.sleep(0.3)
batches.close()
thread.join()
"""


def test_closing_ends_the_wait_of_another_thread(large_pictures):
    out, error = python(CLOSES_WAITING, large_pictures).communicate(timeout=120)
    assert (out, error) == ("waits\nclosed\n", "")
