"""The loader, and the batches of its epochs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _core
from .columns import Column, column
from .errors import ConfigError, StateError, StoreError
from .spec import document_of

Batch = dict[str, _core.Tensor]
"""The tensors of a batch by name."""

#: The key of a state in the dictionaries of `state_dict`.
_STATE = "shardstream"


@dataclass(frozen=True)
class Skip:
    """Which failures a loader skips, and how many.

    `failures` are some of `"damage"`, `"decode"`, `"step"`, `"missing_shards"` and `"all"`. It is an error
    if more than `in_a_row` failures (100 unless set) follow each other in a stream, or if a rank skips more
    than `total`. `share=(0.001, 10_000)` allows a share of 0.001 of the samples to fail, and ten failures
    among the first 10,000. With `rest_of_shard`, damage skips the rest of its shard."""

    failures: Sequence[str]
    in_a_row: int | None = None
    total: int | None = None
    share: tuple[float, int] | None = None
    rest_of_shard: bool = False

    def __init__(
        self,
        *failures: str,
        in_a_row: int | None = None,
        total: int | None = None,
        share: tuple[float, int] | None = None,
        rest_of_shard: bool = False,
    ) -> None:
        for name, value in locals().items():
            if name != "self":
                object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Cache:
    """A directory that keeps data read from the network for later epochs and jobs. It holds at most
    `max_bytes` (16 GiB unless set). `prefetch` is the number of bytes that are fetched before they are
    needed."""

    directory: str | os.PathLike[str]
    max_bytes: int | None = None
    prefetch: int | None = None
    revalidate: bool = True
    block_size: int | None = None


@dataclass(frozen=True)
class Index:
    """Where the index of the shards is saved: beside the shards by default, `at` another URL or path, or
    `in_directory`, a local directory. The index is built if it is missing or outdated. If it cannot be
    written beside the shards, `or_in_directory` is used. With an index, the number of steps is known and
    the same on all ranks, and a resume skips the data before its position."""

    at: str | os.PathLike[str] | None = None
    in_directory: str | os.PathLike[str] | None = None
    or_in_directory: str | os.PathLike[str] | None = None
    checksums: bool = False


class Report(dict[str, Any]):
    """What a run has consumed, where its time went and what limits it. `str(report)` is a few lines for a
    log."""

    text: str

    def __init__(self, core: _core.Batches) -> None:
        values, self.text = core.report()
        super().__init__(json.loads(values))

    def __str__(self) -> str:
        return self.text


class Loader:
    """Reads shards and returns batches.

    `urls` is a pattern, such as `"gs://bucket/train-{000000..000146}.tar"` or `"/data/*.tar"`, or a list.
    `columns` names the tensors of a batch and says how each is read. `batch` is the number of samples in a
    batch of this rank.

    `shuffle` is the number of samples in the shuffle buffer of each stream; 0 keeps their order.
    `shuffle_shards` permutes the shards in each epoch; it defaults to true if `shuffle` is set. The order
    depends on the `seed`, the epoch and the number of `streams`, never on threads or on the number of ranks.

    This process reads the part of rank `rank` of `world` ranks. By default, both come from the environment
    of the launcher (torchrun, Slurm, Open MPI, Cloud TPU and others). `last_batch` is `"keep"`, `"drop"`,
    `"pad"` (with a tensor `"mask"` that says which rows are samples) or `"repeat"`.

    An iteration returns the batches of `epochs` epochs. The next iteration begins with the epoch after these
    epochs, even if a loop ended early. With `epochs=None` there is only one iteration, without an end, and
    each `iter` continues it.

    The loader tunes `threads` and `prefetch` (the number of batches made in advance) while it runs, unless
    they are set. `cores` limits the cores that it uses on a host which several ranks share. `cache` is a
    directory or a `Cache`; `index` is `True` or an `Index`; `on_error` is a `Skip`.
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Mapping[str, Column | str],
        batch: int,
        *,
        shuffle: int = 0,
        shuffle_shards: bool | None = None,
        keep_shards: bool = False,
        resample_shards: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        streams: int | None = None,
        last_batch: Literal["keep", "drop", "pad", "repeat"] = "keep",
        uneven_steps: bool = False,
        epochs: int | None = 1,
        threads: int | None = None,
        cores: int | None = None,
        prefetch: int | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        index: bool | Index = False,
        checksums: bool = False,
        on_error: Skip | None = None,
        stall_after: float | None = None,
    ) -> None:
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs={epochs}: give at least 1, or None for no end")
        options = {
            "urls": urls,
            "columns": [(name, column(name, value)) for name, value in columns.items()],
            "batch": batch,
            "shuffle": shuffle,
            "shuffle_shards": shuffle > 0 if shuffle_shards is None else shuffle_shards,
            "keep_shards": keep_shards,
            "resample_shards": resample_shards,
            "seed": seed,
            "rank": rank,
            "world": world,
            "streams": streams,
            "last_batch": last_batch,
            "uneven_steps": uneven_steps,
            "threads": threads,
            "cores": cores,
            "prefetch": prefetch,
            "cache": Cache(cache) if isinstance(cache, (str, os.PathLike)) else cache,
            "index": Index() if index is True else index or None,
            "checksums": checksums,
            "on_error": on_error,
            "stall_after": stall_after,
        }
        self._begin(document_of(options), epochs)

    def _begin(self, options: str, epochs: int | None) -> None:
        self._options, self._epochs = options, epochs
        self._runs = _Runs(_core.Loader(options), epochs)
        self._next_epoch = 0
        self._current: Batches | None = None
        self._resume: str | None = None

    def __reduce__(self) -> Any:
        # A spawned process gets only the options, and neither the threads nor the position.
        return _unpickled, (self._options, self._epochs)

    @property
    def epoch(self) -> int:
        """The epoch of the current iteration's last batch; before the first iteration, the epoch with which
        the first iteration begins."""
        return self._current.epoch if self._current is not None else self._next_epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch with which the next iteration begins, a multiple of `epochs`.

        Trainers call this before each iteration, also after they have loaded a state. If the loaded state,
        or the position at which an outage ended the iteration, is in that iteration, the next iteration
        still continues there. With `epochs=None`, the next iteration
        always continues the previous one."""
        if self._epochs is not None and epoch % self._epochs != 0:
            raise ConfigError(
                f"set_epoch({epoch}) with epochs={self._epochs}: iterations begin at epochs that are "
                f"multiples of {self._epochs}",
                kind="config",
            )
        resume = self._resume_state()
        if resume is not None and self._epochs is not None:
            at, _, end = _core.inspect_state(resume)
            at += end == "ended"
            if at - at % self._epochs != epoch:
                resume = None
        self._next_epoch, self._resume, self._current = epoch, resume, None

    @property
    def steps(self) -> int | None:
        """Number of batches of an epoch on this rank; `None` if it is not known, for example because there is
        no index."""
        return self._runs.loader.steps()

    def __len__(self) -> int:
        if self._epochs is None or self.steps is None:
            raise TypeError("the number of batches is not known: set `epochs` and `index=True`")
        return self._epochs * self.steps

    def __bool__(self) -> bool:
        # Without this method, Python would call `__len__`, which may raise an error.
        return True

    def __iter__(self) -> Batches:
        resume, before = self._resume_state(), self._current
        if resume is not None:
            core, epoch = self._runs.restored(resume)
        elif before is not None and self._epochs is None:
            return before
        else:
            epoch = self._next_epoch
            if before is not None and self._epochs is not None:
                # If the previous iteration ended early, the rest of its epochs is left out.
                epoch = before.epoch - before.epoch % self._epochs + self._epochs
            core = self._runs.started(epoch)
        current = Batches(self._runs, core, epoch)
        self._current, self._resume = current, None
        if before is not None:
            before.close()
        return current

    def _resume_state(self) -> str | None:
        """The state after which the next iteration continues: a loaded state, the state at which an outage
        ended the iteration with an exception, or the state of a closed iteration without an end. `None` if
        the next iteration begins with a new epoch."""
        current = self._current
        if self._resume is None and current is not None:
            if current._end() == "failed" or (self._epochs is None and current._closed):
                return current._core.state()
        return self._resume

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch that was returned, for `load_state_dict`. Each rank has its own
        state."""
        if self._resume is not None:
            return {_STATE: self._resume}
        if self._current is None:
            return {_STATE: self._runs.started(self._next_epoch).state()}
        return self._current.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Restores a state: the next iteration continues after the state. If the number of ranks has changed,
        or this rank's own state is missing, give the list of the states of all ranks."""
        self._resume = _text(state)

    def get_state(self) -> bytes:
        """The same as `state_dict`, in the form of Grain's iterators and of its checkpoint handler for
        Orbax."""
        return str(self.state_dict()[_STATE]).encode()

    def set_state(self, state: bytes | str | Mapping[str, Any] | Sequence[Any]) -> None:
        """The same as `load_state_dict`, under Grain's name."""
        self.load_state_dict(state)  # type: ignore[arg-type]

    def report(self) -> Report | None:
        """The report of the current iteration; `None` before the first iteration."""
        return self._current.report() if self._current is not None else None

    def close(self) -> None:
        """Ends the threads of the current iteration. Its batches stay valid. With `epochs=None`, the next
        `iter` continues the iteration."""
        if self._current is not None:
            self._current.close()


_Run = tuple[_core.Batches, int]
"""Batches, and the epoch of the first of them."""


@dataclass(frozen=True)
class _Runs:
    """Starts the runs of a loader.

    Iterators refer to this object and not to the `Loader`, because the `Loader` refers to its current
    iterator. A cycle of references would keep the threads until the next garbage collection."""

    loader: _core.Loader
    epochs: int | None

    def started(self, epoch: int) -> _core.Batches:
        return self.loader.epochs(epoch) if self.epochs is None else self.loader.epoch(epoch)

    def restored(self, state: str) -> _Run:
        """The batches after a state, and their epoch."""
        epoch, endless, end = _core.inspect_state(state)
        if endless != (self.epochs is None):
            kind = "without an end" if endless else "with a number of epochs"
            raise StateError(
                f"the state belongs to an iteration {kind}, but the loader has epochs={self.epochs}",
                kind="state",
            )
        # `restore` also checks that the state belongs to this loader, so it is called for an ended epoch too.
        core = self.loader.restore(state)
        if end == "ended":
            core.close()
            return self.started(epoch + 1), epoch + 1
        return core, epoch


class Batches(Iterator[Batch]):
    """The iterator over a loader's batches, which `iter(loader)` returns, and its state."""

    def __init__(self, runs: _Runs, core: _core.Batches, epoch: int) -> None:
        self._runs, self._closed = runs, False
        # One assignment sets both. With two, Ctrl-C or another thread could come in between, and one epoch's
        # number would be combined with another epoch's batches.
        self._run = core, epoch
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """The epoch of the last batch that was returned."""
        return self._run[1]

    @property
    def _core(self) -> _core.Batches:
        return self._run[0]

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        run = self._run
        batch = run[0].next()
        while batch is None:
            run = self._run_after(run)
            batch = run[0].next()
        return batch

    def _run_after(self, run: _Run) -> _Run:
        """Returns the batches of the epoch after `run`, which has no more batches."""
        core, epoch = run
        end, epochs = _core.inspect_state(core.state())[2], self._runs.epochs
        if end == "failed":
            raise StoreError(
                "the batches have ended with an error: iterate over the loader again, which continues after "
                "the last batch",
                kind="failed",
            )
        if end != "ended" or epochs is None or (epoch + 1) % epochs == 0:
            raise StopIteration
        with self._lock:
            # Another thread may have started the next epoch already.
            if self._run is run and not self._closed:
                self._run = self._runs.started(epoch + 1), epoch + 1
                if self._closed:  # Another thread has called `close` meanwhile.
                    self._core.close()
            return self._run

    def _end(self) -> str:
        return _core.inspect_state(self._core.state())[2]

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch that was returned."""
        return {_STATE: self._core.state()}

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Restores a state: the next batch is the first batch after the state."""
        run = self._runs.restored(_text(state))
        with self._lock:
            before, self._run, self._closed = self._core, run, False
        before.close()

    def get_state(self) -> bytes:
        """The same as `state_dict`, in the form of Grain's iterators."""
        return self._core.state().encode()

    def set_state(self, state: bytes | str | Mapping[str, Any] | Sequence[Any]) -> None:
        """The same as `load_state_dict`, under Grain's name."""
        self.load_state_dict(state)  # type: ignore[arg-type]

    def report(self) -> Report:
        """What this epoch has consumed so far, where its time went and what limits it."""
        return Report(self._core)

    def close(self) -> None:
        """Ends the iteration's threads. Batches that were returned stay valid."""
        # This does not take `_lock`: a forked child may have inherited it locked.
        self._closed = True
        self._core.close()


def merge_states(states: Sequence[Any]) -> dict[str, Any]:
    """Merges the states of all ranks after the same step into the state of the job. Loaders of any number of
    ranks can restore that state."""
    return {_STATE: _core.merge_states([_text(state) for state in states])}


def _text(state: Any) -> str:
    """The JSON document of a state. The state may have any of the forms that the package accepts."""
    if isinstance(state, (bytes, bytearray)):
        return bytes(state).decode()
    if isinstance(state, str):
        return state
    if isinstance(state, Mapping):
        if _STATE not in state:
            raise StateError(
                f"the dictionary has no key {_STATE!r}: give the result of `state_dict`", kind="state"
            )
        return _text(state[_STATE])
    if isinstance(state, Sequence) and len(state) > 0:
        return _text(merge_states(state)) if len(state) > 1 else _text(state[0])
    raise StateError(
        f"a value of type {type(state).__name__} is not a state: give the result of `state_dict`",
        kind="state",
    )


def _unpickled(options: str, epochs: int | None) -> Loader:
    loader = Loader.__new__(Loader)
    loader._begin(options, epochs)
    return loader
