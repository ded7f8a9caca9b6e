"""Where a call goes that no program under trace takes: the innermost open session, or the client entered last."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from ..errors import NoSession

if TYPE_CHECKING:
    from .caller import Caller
    from .session import Session


class _Here(threading.local):
    """Of one thread."""

    def __init__(self) -> None:
        self.callers: list[Caller | Session] = []  # sessions and clients that were entered, innermost last
        self.dues: list[tuple[Session, int]] = []  # deadlines that were entered, by the session's clock


_here = _Here()
_open: list[Session] = []  # of all threads: a thread that opened none works in the one opened last
_unopened: weakref.WeakKeyDictionary[Session, None] = weakref.WeakKeyDictionary()  # made, and not entered yet


def enter(what: Caller | Session) -> None:
    _here.callers.append(what)


def leave(what: Caller | Session) -> None:
    """Usually the innermost."""
    for at in range(len(_here.callers) - 1, -1, -1):
        if _here.callers[at] is what:
            del _here.callers[at]
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
    if _here.callers:
        return _here.callers[-1]
    if _open:
        return _open[-1]
    raise NoSession(what, [repr(session) for session in _unopened])


def caller(what: str) -> Caller:
    """The client in whose name a call is made."""
    return current(what).main


def session(what: str) -> Session:
    return current(what).session


def due(session: Session, at: int) -> None:
    _here.dues.append((session, at))


def no_longer_due() -> None:
    _here.dues.pop()


def due_in(session: Session) -> int:
    """The earliest of the deadlines that a call made here has in this session; 0 if none."""
    return min([at for of, at in _here.dues if of is session], default=0)
