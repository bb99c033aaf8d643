"""Trains with JAX itself, without the exported programs. `tests/trainer/jax.rs` compares the Rust trainer
with it.

    python train_jax.py REQUEST.json

The request has `model`, `batch` (images per device), `devices`, `seed`, `hyper` (for each step: learning
rate, weight decay, label smoothing, momentum), and two files: `images` (u8, N x 32 x 32 x 3 for each step)
and `labels` (i32, N for each step). The output is a JSON list of `[loss, correct]`, one for each step.
"""

import json
import sys

import numpy as np
from export_resnet import Config, programs


def main():
    with open(sys.argv[1]) as file:
        request = json.load(file)
    cfg = Config(request["model"], batch=request["batch"], devices=request["devices"])
    images = np.fromfile(request["images"], np.uint8).reshape(-1, cfg.batch * cfg.devices, cfg.size, cfg.size, 3)
    labels = np.fromfile(request["labels"], "<i4").reshape(images.shape[:2])
    functions = {name: function for name, (function, _) in programs(cfg)[1].items()}
    state = functions["init"](np.int32(request["seed"]))
    steps = []
    for x, y, hyper in zip(images, labels, request["hyper"], strict=True):
        state, loss, correct = functions["step"](state, x, y, np.array(hyper, np.float32))
        steps.append([float(loss), int(correct)])
    print(json.dumps(steps))


if __name__ == "__main__":
    main()
