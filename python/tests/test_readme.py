"""The examples of the README run as they are shown."""

import io
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import write_shards


def example(heading):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    return re.search(rf"^## {heading}\n\n```python\n(.*?)^```", readme, re.M | re.S)[1]


def run(program, directory):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def data(tmp_path):
    from PIL import Image

    def picture(number):
        file = io.BytesIO()
        Image.fromarray(np.full((40, 48, 3), 25 * (number % 10), np.uint8)).save(file, "JPEG")
        return {"jpg": file.getvalue(), "cls": str(number % 10).encode()}

    (tmp_path / "data").mkdir()
    write_shards(tmp_path / "data", map(picture, range(256)))
    return tmp_path


def test_the_jax_example_trains_and_resumes(data):
    pytest.importorskip("jax")
    program = example("Train in JAX")
    assert len([line for line in program.splitlines() if line]) <= 45
    half = run(program.replace("201", "101"), data)
    rest = run(program, data)
    assert [line.split()[1] for line in (half + rest).splitlines() if line.startswith("step")] == [
        "50",
        "100",
        "150",
        "200",
    ]
    assert not (data / "partial.npz").exists()
    (data / "checkpoint.npz").unlink()
    whole = run(program, data)
    steps = [line for line in whole.splitlines() if line.startswith("step")]
    assert steps == [line for line in (half + rest).splitlines() if line.startswith("step")]


PROCESS = """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("127.0.0.1:{port}", num_processes=2, process_id={rank})
"""


def test_the_jax_example_runs_in_two_processes(data):
    pytest.importorskip("jax")
    program = example("Train in JAX")

    def losses(program):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        programs = (PROCESS.format(port=port, rank=rank) + program for rank in range(2))
        with ThreadPoolExecutor() as pool:
            printed = list(pool.map(lambda program: run(program, data), programs))
        steps = [[line for line in lines.splitlines() if line.startswith("step")] for lines in printed]
        assert steps[0] == steps[1], "both print the loss of the global batch"
        return steps[0]

    half = losses(program.replace("201", "101"))
    assert (data / "checkpoint-1-100.json").exists()
    rest = losses(program)
    (data / "checkpoint.npz").unlink()
    assert half + rest == losses(program)
    assert len(half + rest) == 4


def test_the_torch_example_trains(data):
    pytest.importorskip("torch", reason="needs torch")
    run(example("Train in PyTorch"), data)
    assert (data / "checkpoint.pt").exists()
