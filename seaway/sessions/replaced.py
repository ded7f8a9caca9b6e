"""What a session says at its end where fifo took over from the policy that it was given: one warning.

All that was measured after that is fifo's, so nobody is to read the figures without having heard of it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from core.protocol import PolicyReplaced

from ..wording import duration, plural

HERE = str(Path(__file__).parents[1] / "_")[:-1]  # with what parts it from what lies in it


def text_of(replaced: Iterable[tuple[int | None, PolicyReplaced]]) -> str:
    """Each with when, where that is known. "": no policy was replaced."""
    found = list(replaced)
    if not found:
        return ""
    (at, first), others = found[0], found[1:]
    where = f"on island {first.island!r} it {first.fault}" + ("" if at is None else f", at {duration(at)}")
    return (
        f"policy {first.policy} was replaced by fifo: {where}{_likewise(others)}; what entered from then on was "
        f"ordered by fifo"
    )


def _likewise(others: list[tuple[int | None, PolicyReplaced]]) -> str:
    if not others:
        return ""
    names = ", ".join(repr(about.island) for _, about in others[:3])
    return f"; and on {plural(len(others), 'more island')} ({names}{', ...' if others[3:] else ''})"


def warn(replaced: Iterable[tuple[int | None, PolicyReplaced]]) -> None:
    """At the line of the user's that ended the session."""
    said(text_of(replaced))


def said(text: str) -> None:
    """As a warning, there. "": nothing."""
    if text:
        warnings.warn(text, RuntimeWarning, stacklevel=_level())


def _level() -> int:
    """Of the first caller that is none of ours, as `warn` counts them."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        level, frame = level + 1, frame.f_back
    return level
