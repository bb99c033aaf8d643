"""The exceptions of this package. All are subclasses of `Error`."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """The base class of all exceptions of this package.

    `kind` is the name of the reason in snake case, such as `checksum`; it does not change between
    releases. `shard`, `offset` (in bytes, in the uncompressed shard), `member` and `key` (of the sample)
    say where the error happened; an attribute that is not known is `None`."""

    kind: str
    shard: str | None
    offset: int | None
    member: str | None
    key: str | None

    def __init__(
        self,
        message: str,
        *,
        kind: str = "error",
        shard: str | None = None,
        offset: int | None = None,
        member: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.shard, self.offset, self.member, self.key = kind, shard, offset, member, key

    def __reduce__(self) -> Any:
        # `args` lacks the keyword arguments; pickle restores them from the attributes.
        return type(self), self.args, self.__dict__


class ConfigError(Error, ValueError):
    """An option, a pattern of shards or a combination of options is invalid."""


class StateError(Error, ValueError):
    """A state cannot be read, merged or restored."""


class StoreError(Error):
    """The network, a store or a disk failed, or an object has changed while it was read. The iteration ends
    with this error: iterate over the loader again, or restore its state, to continue after the last batch."""


class NotFoundError(StoreError):
    """A shard does not exist."""


class DamageError(Error):
    """A shard is damaged. The iteration can continue after this error; `Skip("damage")` skips the damage."""


class DecodeError(Error):
    """A field is missing, or its column cannot decode it. The iteration can continue after this error;
    `Skip("decode")` skips the sample."""


class TooManySkippedError(Error):
    """More failures were skipped than `Skip` allows."""


class ForkedError(Error, RuntimeError):
    """The process was forked after its parent had used this package. A fork does not copy threads, so
    loaders cannot work in the child."""
