"""Writes options as a JSON document, which the extension module reads."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from .errors import ConfigError


def dtype_name(dtype: Any) -> str:
    """The name of a type of numbers, such as `"float32"`. The type may be given as `"float32"`,
    `numpy.float32`, `torch.float32` or `jax.numpy.float32`."""
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, type) and dtype.__module__ in ("numpy", "ml_dtypes"):
        return dtype.__name__
    # `jax.numpy.float32` has an attribute `dtype`, an instance of `numpy.dtype`, which has a name.
    dtype = getattr(dtype, "dtype", dtype)
    if not getattr(dtype, "isnative", True):
        raise ConfigError(
            f"dtype {dtype.str!r}: only little-endian numbers can be read, as on this host", kind="config"
        )
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def document_of(options: Mapping[str, Any]) -> str:
    """The options as a JSON object."""
    texts = []
    for name, value in options.items():
        try:
            texts.append(f"{json.dumps(name)}: {json.dumps(document(value))}")
        except TypeError as error:
            raise ConfigError(f"`{name}`: {error}", kind="config") from error
    return f"{{{', '.join(texts)}}}"


def document(value: Any) -> Any:
    """The value as JSON. An object of options, such as an `Image`, becomes a JSON object with the name of its
    class as `type`."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        for name in ("dtype", "raw"):
            if not isinstance(fields.get(name), (bool, type(None))):
                fields[name] = dtype_name(fields[name])
        return {"type": type(value).__name__, **{name: document(field) for name, field in fields.items()}}
    if isinstance(value, (list, tuple)):
        return [document(item) for item in value]
    if hasattr(value, "tolist"):  # A NumPy array, or a number of a NumPy type.
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
