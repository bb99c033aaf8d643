"""Trains a small network in JAX from tar shards that jax_feed reads: python train.py --help."""

import argparse
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardfeed import Feed

RATE, MOMENTUM = 0.05, 0.9


def init(key):
    """Three convolutions and a linear layer, each a pair of weights and biases."""
    shapes = [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 64), (64, 10)]
    keys = jax.random.split(key, len(shapes))
    weights = [jax.random.normal(k, s) * np.sqrt(2 / np.prod(s[:-1])) for k, s in zip(keys, shapes)]
    return [(w, jnp.zeros(w.shape[-1])) for w in weights]


def forward(params, images):
    x = images.astype(jnp.float32) / 127.5 - 1
    for w, b in params[:-1]:
        x = jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + b)
    w, b = params[-1]
    return x.mean((1, 2)) @ w + b


def loss_fn(params, images, labels):
    logits = forward(params, images)
    loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()
    return loss, (logits.argmax(1) == labels).mean()


@jax.jit
def step(params, momenta, images, labels):
    (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, images, labels)
    momenta = jax.tree.map(lambda m, g: MOMENTUM * m + g, momenta, grads)
    return jax.tree.map(lambda p, m: p - RATE * m, params, momenta), momenta, loss, accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other options are passed to jax_feed.")
    parser.add_argument("--feeder", default="jax_feed", help="the program that reads the shards")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch, on all processes together")
    parser.add_argument("--steps", type=int, default=0, help="number of steps; 0: until the data end")
    parser.add_argument("--log-steps", type=int, default=10, help="steps between lines of the log")
    parser.add_argument("--save", metavar="PATH", help="where the network and the state of the data are saved at the end")
    parser.add_argument("--resume", metavar="PATH", help="resume from what was saved there")
    args, rest = parser.parse_known_args()

    # On a slice of several hosts, call jax.distributed.initialize() first; each process reads its rank's part.
    rank, ranks = jax.process_index(), jax.process_count()
    command = [args.feeder, "--batch", str(args.batch // ranks), "--rank", str(rank), "--ranks", str(ranks), *rest]
    devices = Mesh(np.array(jax.devices()), ("batch",))
    split = NamedSharding(devices, PartitionSpec("batch"))
    whole = NamedSharding(devices, PartitionSpec())

    params = init(jax.random.key(0))
    state = (params, jax.tree.map(jnp.zeros_like, params))
    if args.resume:
        saved = np.load(args.resume + ".npz")
        state = jax.tree.unflatten(jax.tree.structure(state), [saved[name] for name in saved.files])
        command += ["--resume-state", f"{args.resume}.{rank}.json"]
    params, momenta = jax.device_put(state, whole)

    feed, number = Feed(command), 0
    for batch in feed:
        images, labels = (jax.make_array_from_process_local_data(split, batch[n]) for n in ("image", "label"))
        params, momenta, loss, accuracy = step(params, momenta, images, labels)
        number += 1
        if number % args.log_steps == 0:
            print(f"step {number:4}  loss {loss:.7f}  accuracy {accuracy:.3f}", flush=True)
        if number == args.steps:
            break
    feed.close()
    if args.save:
        # The state came with the last batch that was trained on, and ignores what was read ahead.
        # Each file is renamed when it is complete, so that a job that is killed here keeps the earlier one.
        with open(f"{args.save}.{rank}.json.partial", "w") as file:
            json.dump(feed.state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, f"{args.save}.{rank}.json")
        if rank == 0:
            with open(args.save + ".npz.partial", "wb") as file:
                np.savez(file, *jax.tree.leaves((params, momenta)))
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, args.save + ".npz")
    print(f"{number} steps, {feed.report or 'stopped'}")


if __name__ == "__main__":
    main()
