"""A `Checker` checks one invariant; `Checks` passes a driver's observations to several checkers.

Any driver can use this: the in-memory world of the tests, the simulator, the backend. It reports what it *did*, not
what it was told to do, so a checker shares no code and no assumptions with the machines that it checks:

    checks = Checks([GangAtomicity(), OneOrder(), ...])     # invariants.everything() makes all of them
    checks.saw(Launched(host, seq, epoch, devices), now)    # whenever something happens
    checks.look(now)                                        # when the controller took an event: check its counters
    checks.at_rest(now)                                     # nothing is under way: check that nothing is left
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, NoReturn

from .observations import Observation


class Violation(Exception):  # a mistake of the system, not of its caller
    """An invariant does not hold. `recent` holds the last observations, the oldest first."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker
        self.text = text
        self.now = -1
        self.recent: tuple[Observation, ...] = ()


class Checker(ABC):
    """One invariant. `saw` gets only the kinds of observations that are in `sees`."""

    name: ClassVar[str]
    sees: ClassVar[tuple[type[Observation], ...]] = ()

    @abstractmethod
    def saw(self, seen: Observation, now: int) -> None:
        """Take an observation; call `fail` if it should not have happened."""

    def look(self, now: int) -> None:  # noqa: B027 - most checkers do not need it
        """Check a machine's own counters. This is called after every event that it took."""

    def at_rest(self, now: int) -> None:  # noqa: B027 - some checkers do not need it
        """Check that everything has ended. This is called when nothing is under way and nothing will come."""

    def fail(self, text: str) -> NoReturn:
        raise Violation(self.name, text)


class Checks:
    """Passes each observation to the checkers that want it."""

    def __init__(self, checkers: Sequence[Checker], remember: int = 30) -> None:
        self.checkers = tuple(checkers)
        self.recent: deque[Observation] = deque(maxlen=remember)
        self._routes: dict[type[Observation], list[Checker]] = {}
        for checker in self.checkers:
            for kind in checker.sees:
                self._routes.setdefault(kind, []).append(checker)

    def saw(self, seen: Observation, now: int) -> None:
        self.recent.append(seen)
        try:
            for checker in self._routes.get(type(seen), ()):
                checker.saw(seen, now)
        except Violation as violation:
            raise self._placed(violation, now) from None

    __call__ = saw

    def look(self, now: int) -> None:
        try:
            for checker in self.checkers:
                checker.look(now)
        except Violation as violation:
            raise self._placed(violation, now) from None

    def at_rest(self, now: int) -> None:
        try:
            for checker in self.checkers:
                checker.at_rest(now)
        except Violation as violation:
            raise self._placed(violation, now) from None

    def _placed(self, violation: Violation, now: int) -> Violation:
        violation.now = now
        violation.recent = tuple(self.recent)
        return violation
