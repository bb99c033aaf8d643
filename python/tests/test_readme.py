"""The examples of the README run as they are shown."""

import io
import re
import subprocess
import sys
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


def test_jax(data):
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


def test_torch(data):
    pytest.importorskip("torch", reason="needs torch")
    run(example("Train in PyTorch"), data)
    assert (data / "checkpoint.pt").exists()
