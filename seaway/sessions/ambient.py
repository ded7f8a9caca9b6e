"""Finds the session or client that a call outside a traced program runs in.

That is the session or client that this thread entered last; or else the session that was opened last in any thread.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from ..errors import NoSession

if TYPE_CHECKING:
    from .caller import Caller
    from .session import Session


class _ThreadSession(threading.local):
    """What one thread has entered."""

    def __init__(self) -> None:
        self.callers: list[Caller | Session] = []  # sessions and clients that were entered, innermost last
        self.dues: list[tuple[Session, int]] = []  # deadlines that were entered, by the session's clock


here = _ThreadSession()
_open: list[Session] = []  # of all threads: a thread that opened none uses the session opened last
_unopened: weakref.WeakKeyDictionary[Session, None] = weakref.WeakKeyDictionary()  # made, and not entered yet


def enter(what: Caller | Session) -> None:
    here.callers.append(what)


def leave(what: Caller | Session) -> None:
    """Remove the innermost entry of this session or client. Blocks need not end in the order in which they began."""
    for at in range(len(here.callers) - 1, -1, -1):
        if here.callers[at] is what:
            del here.callers[at]
            return


def made(session: Session) -> None:
    _unopened[session] = None


def opened(session: Session) -> None:
    _unopened.pop(session, None)
    _open.append(session)


def closed(session: Session) -> None:
    _unopened.pop(session, None)
    if session in _open:
        _open.remove(session)


def current(what: str) -> Caller | Session:
    if here.callers:
        return here.callers[-1]
    if _open:
        return _open[-1]
    raise NoSession(what, [repr(session) for session in _unopened])


def caller(what: str) -> Caller:
    """The client that makes a call here."""
    callers = here.callers
    return (callers[-1] if callers else current(what)).main


def session(what: str) -> Session:
    return current(what).session


def due(session: Session, at: int) -> None:
    here.dues.append((session, at))


def no_longer_due() -> None:
    here.dues.pop()


def due_in(session: Session) -> int:
    """The earliest deadline entered in this thread for this session; 0 if there is none."""
    return min([at for owner, at in here.dues if owner is session], default=0)
