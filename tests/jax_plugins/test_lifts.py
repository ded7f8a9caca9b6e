"""The client's half of the door changes JAX only in programs of a door, and only what is there. What it lifts is tried
through doors, by `tests.backend.door.checks`."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jax_plugins import seaway
from jax_plugins.seaway import arrays
from jax_plugins.seaway.replaced import replace


class Devices:
    def count(self) -> int:
        return 8


@pytest.fixture
def library() -> Iterator[Any]:
    """A module that is not JAX."""
    found: Any = types.ModuleType("library")
    found.put, found.Devices = lambda x: f"put {x}", type("Devices", (Devices,), {})
    sys.modules["library"] = found
    yield found
    del sys.modules["library"]


def test_a_function_and_a_method_are_replaced_by_what_is_given_the_original(library: Any) -> None:
    replace("library", "put", lambda original, x: original(x * 2) + "!")
    replace("library:Devices", "count", lambda original, self: original(self) + 1)
    assert library.put(4) == "put 8!"
    assert library.Devices().count() == 9


@pytest.mark.parametrize("owner", ["library", "library:Devices", "library:Buffers", "no_such_library"])
def test_what_is_not_there_is_not_replaced(library: Any, owner: str) -> None:
    before = dict(vars(library))
    replace(owner, "take", lambda original: None)
    assert vars(library) == before


@pytest.mark.parametrize(("target", "platforms"), [("", "proxy,cpu"), ("grpc://unix:door.sock", "cpu")])
def test_programs_of_other_devices_are_left_alone(monkeypatch: pytest.MonkeyPatch, target: str, platforms: str) -> None:
    config = types.SimpleNamespace(read=lambda _: target, jax_platforms=platforms)
    monkeypatch.setattr(jax, "config", config)
    monkeypatch.setattr(arrays, "install", lambda: pytest.fail("JAX would be changed"))
    seaway.initialize()


def test_errors_that_no_lift_is_for_stay_as_they_are() -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")

    with pytest.raises(jax.errors.JaxRuntimeError, match="no memory"):
        arrays._put(refused, None, None, [np.ones(3)], jax.devices())
    with pytest.raises(jax.errors.JaxRuntimeError, match="no memory"):
        arrays._put_arguments(refused, [None], [None], [None], [np.ones(3)])
