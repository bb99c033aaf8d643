"""The exceptions of this package, all of them `Error`s that say where they happened."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Something went wrong. `kind` is the name of the reason in snake case, such as `checksum`, and does
    not change between releases. `shard`, `offset` (in bytes, in the uncompressed shard), `member` and
    `key` (of the sample) say where, as far as it is known."""

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
        # Keyword arguments are part of the attributes.
        return type(self), self.args, self.__dict__


class ConfigError(Error, ValueError):
    """An option, a pattern or a combination of them that cannot be used."""


class StateError(Error, ValueError):
    """A state that cannot be read, merged or restored."""


class StoreError(Error):
    """The network, a store or a disk failed, or an object has changed. The batches end after it: restore
    the state."""


class NotFoundError(StoreError):
    """There is no such shard."""


class DamageError(Error):
    """A shard is damaged. Iteration can continue after it; `Skip("damage")` skips it."""


class DecodeError(Error):
    """A field is missing, or cannot be decoded as its column says. `Skip("decode")` skips the sample."""


class TooManySkippedError(Error):
    """More failures than `Skip` allows."""


class ForkedError(Error, RuntimeError):
    """The process was forked after it had used this package: threads are not copied."""
