"""The child processes of an agent or a door: each answers one question at a time, and is replaced when it dies.

    ask(question) --> a child that is idle, or another one --> its answer
                  --> raises NotStarted, Late, CheckerEnded, NotWanted

A child is started when it is needed. If something other than the question ends it, another child is asked. Neighbours:
`code_gate` and `program_gate`, which ask; `checker_process`.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from .checker_line import CheckerSettings
from .checker_process import LONGEST, CheckerChild, Died, NotStarted

log = logging.getLogger("seaway.pjrt")
TRIES = 3  # children that are killed over one question before it is given up


class CheckerEnded(Exception):
    """The question is not answered; the text says how its child ended. `killed`: something else did that, each time.
    `crashed`: the question did, and would end the next child, too."""

    def __init__(self, how: str, killed: bool, crashed: bool) -> None:
        super().__init__(how)
        self.killed, self.crashed = killed, crashed


class NotWanted(Exception):
    """Nobody wants the answer any more."""


class CheckerAnswer(Protocol):
    @property
    def spends(self) -> bool:
        """Whether the child ran out of memory: then its state is unknown, and it is not asked again."""


A = TypeVar("A", bound=CheckerAnswer)


class Checkers:
    """`program`: the module whose `main` a child runs. `settings`: of the next child, and flags of XLA besides this
    process's. `largest`: bytes of an answer. Thread-safe."""

    def __init__(
        self, program: str, settings: Callable[[], tuple[CheckerSettings, Sequence[str]]], largest: int = LONGEST
    ) -> None:
        self._program, self._settings, self._largest = program, settings, largest
        self._lock = threading.Lock()
        self._idle: list[CheckerChild] = []
        self._children: set[CheckerChild] = set()
        self._asked: set[CheckerChild] = set()  # have a question that they have not answered
        self._closed = False
        # Linux ends a child with the thread that started it, and those that ask may end.
        self._starter = ThreadPoolExecutor(1, "checkers")

    def warm(self, devices: int) -> None:
        """Starts a child, which takes seconds, unless there is one. Returns at once."""
        with self._lock, suppress(NotStarted):
            if not self._closed and not any(child.alive for child in self._children):
                self._idle.append(self._started(devices))

    def ask(
        self, question: msgspec.Struct, kind: type[A], seconds: float, devices: int,
        wanted: Callable[[], bool] = lambda: True,
    ) -> A:  # fmt: skip
        """`devices`: the child has so many, or more. `wanted`: whether somebody wants the answer still."""
        encoded, killed = msgspec.msgpack.encode(question), 0
        while True:
            child = self._take(devices, wanted)
            kept = False
            try:
                child.await_ready()
                answer = msgspec.msgpack.decode(child.ask(encoded, seconds), type=kind)
                kept = not answer.spends
                return answer
            except Died:
                how = child.last_words()
                with self._lock:
                    interrupted = child not in self._asked
                if child.killed and not interrupted:
                    log.warning("a process that compiled a client's code %s", how)
                    killed += 1
                    if killed < TRIES:
                        continue
                    raise CheckerEnded(
                        f"{how}. So were the {TRIES - 1} before it, which compiled the same", True, False
                    ) from None
                if child.tired:  # it ended for lack of questions at this very moment
                    continue
                if not child.up:
                    raise NotStarted(how) from None
                raise CheckerEnded(how, False, child.crashed) from None
            finally:
                self._put_back(child, kept)

    def interrupt(self) -> bool:
        """Ends the children that are being asked, so that these questions fail; from any thread. False: none is."""
        with self._lock:
            asked, self._asked = self._asked, set()
            for child in asked:
                child.kill()
        return bool(asked)

    def close(self) -> None:
        """Ends all children, and with them the questions that wait; from any thread."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
            self._idle.clear()
        for child in children:
            child.end()
        self._starter.shutdown(wait=False)

    def _take(self, devices: int, wanted: Callable[[], bool]) -> CheckerChild:
        with self._lock:
            found = None
            while found is None and self._idle:
                child = self._idle.pop()
                if child.alive and child.devices >= devices:
                    found = child
                    continue
                devices = max(devices, child.devices)
                self._children.discard(child)
                child.end()
            if self._closed:
                raise NotStarted("this process ends")
            found = found or self._started(devices)
            if not wanted():
                self._idle.append(found)
                raise NotWanted
            self._asked.add(found)
            return found

    def _started(self, devices: int) -> CheckerChild:
        """With the lock held."""
        settings, flags = self._settings()
        try:
            child = self._starter.submit(
                CheckerChild, self._program, msgspec.json.encode(settings), devices, self._largest, flags
            ).result()
        except OSError as error:
            raise NotStarted(str(error)) from error
        self._children.add(child)
        return child

    def _put_back(self, child: CheckerChild, kept: bool) -> None:
        with self._lock:
            self._asked.discard(child)
            if kept and child in self._children:
                self._idle.append(child)
                return
            self._children.discard(child)
        child.end()
