"""How many examples a law draws where each of them is dear: a simulation, or two that are compared.

A law without settings draws as many as its profile says (`conftest`): a hundred, always the same, in `make test`, and
a thousand new ones in `make test-full`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(of_hundred: int, **more: Any) -> settings:
    """So many examples where the profile draws a hundred, and ten times as many where it draws a thousand."""
    assert settings.default is not None
    return settings(max_examples=max(1, of_hundred * settings.default.max_examples // 100), **more)
