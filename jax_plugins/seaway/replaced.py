"""A function of JAX, replaced by one that is given the original: what every lift is made of."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any


def replace(owner: str, name: str, by: Callable[..., Any]) -> None:
    """Replace a function of a module, or of a class in it ("jaxlib._jax:Device"). by: is called with the original, and
    then as that would be. Where there is no such function, nothing changes, for JAX moves them between versions."""
    module, _, inside = owner.partition(":")
    try:
        found: Any = importlib.import_module(module)
        found = getattr(found, inside) if inside else found
        original = getattr(found, name)
    except (ImportError, AttributeError):
        return

    @functools.wraps(original, ("__doc__",), ())
    def replaced(*words: Any, **named: Any) -> Any:
        return by(original, *words, **named)

    setattr(found, name, replaced)
