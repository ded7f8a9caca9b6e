"""The warning that a session gives at its end if its policy failed and fifo replaced it.

All times measured after that belong to fifo, so a user must not read the figures without knowing.
"""

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from core.protocol import PolicyReplaced

from ..wording import duration, plural

HERE = str(Path(__file__).parents[1] / "_")[:-1]  # with the separator at its end


def text_of(replaced: Iterable[tuple[int | None, PolicyReplaced]]) -> str:
    """The warning's text; "" if no policy was replaced. Each replacement comes with its time, if that is known."""
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
    """Give the warning at the user's line that ended the session."""
    said(text_of(replaced))


def said(text: str) -> None:
    """Give this text as a warning at the user's line that ended the session; nothing if it is empty."""
    if text:
        warnings.warn(text, RuntimeWarning, stacklevel=_level())


def _level() -> int:
    """The `stacklevel` of the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        level, frame = level + 1, frame.f_back
    return level
