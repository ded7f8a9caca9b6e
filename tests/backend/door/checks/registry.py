"""The list of checks, and what they share. A check is a function that raises an exception if something is wrong."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CHECKS: dict[str, Callable[[], None]] = {}
REMOTE = "proxy" in os.environ.get("JAX_PLATFORMS", "")  # devices of another process: some things cannot work


def check(function: Callable[[], None]) -> Callable[[], None]:
    assert function.__name__ not in CHECKS
    CHECKS[function.__name__] = function
    return function


def same(found: Any, wanted: Any) -> None:
    """Equal in dtype, shape and every element; NaNs are equal, too."""
    there, here = np.asarray(found), np.asarray(wanted)
    assert there.dtype == here.dtype, f"dtype {there.dtype}, not {here.dtype}"
    assert there.shape == here.shape, f"shape {there.shape}, not {here.shape}"
    wrong = there.size and there.tobytes() != here.tobytes()
    if wrong and not np.array_equal(there, here, equal_nan=here.dtype.kind in "fc"):
        raise AssertionError(f"{there!r}, not {here!r}")


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def error_of(work: Callable[[], Any]) -> Exception:
    """The exception that this work raises."""
    try:
        found = work()
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {found!r}")


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def line(name: str = "x") -> Mesh:
    """All devices in a row."""
    return Mesh(np.array(jax.devices()), (name,))


def grid(order: Any = None) -> Mesh:
    """All devices in two columns. order: a permutation of them."""
    devices = np.array(jax.devices())
    return Mesh(devices[slice(None) if order is None else order].reshape(-1, 2), ("x", "y"))


def on(mesh: Mesh, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec))
