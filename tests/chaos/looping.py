"""What each client of the chaos program does: it calls in a loop, and writes down how each call began and ended.

A kind of client says how it opens a session, what it calls, and what an error of its front end means. What is lost is
made anew from the start. While the file `--pause` exists, a client calls nothing and holds nothing, so that leftovers
can be counted. Neighbours: `clients` (Seaway's), `jax_clients`; `journal`.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .journal import Writer

LOOK = 0.05  # seconds
PRIME = 65_537
LARGE = 1 << 26  # bytes
Steps = Iterator[tuple[str, Callable[[], bool]]]  # a call's name, and the call: whether its numbers are right


class SeenError(NamedTuple):
    """An error as the judge sees it. `ours`: one that the front end promises."""

    kind: str
    code: str
    ours: bool


class LoopingClient(ABC):
    over: tuple[str, ...] = ()  # codes and kinds of errors after which the session is to be opened again

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.journal = Writer(Path(chosen.journal), os.getpid())
        self.seed = os.getpid()

    @abstractmethod
    def session(self) -> bool:
        """Opens a session, says so with `opened`, and calls `work`."""

    @abstractmethod
    def steps(self) -> Steps:
        """The calls, with a state of their own."""

    @abstractmethod
    def named(self, error: Exception) -> SeenError: ...

    @abstractmethod
    def flush(self) -> None:
        """Tells the cluster what was dropped."""

    def run(self) -> None:
        while True:
            self.call("connect", self.session)

    def opened(self) -> None:
        """A connection is a call too, which ends as soon as the session is open."""
        self.journal.end("ok")

    def work(self) -> None:
        """Works until the session cannot go on."""
        while self._loop():
            self.seed += 1
            self._rest()
        self.journal.begin("leave")

    def _loop(self) -> bool:
        """Works with one state, as long as nothing fails. Returns False if the session is to be opened again."""
        for what, call in self.steps():
            if self._paused:
                return True
            if (ended := self.call(what, call)) != "ok":
                return ended not in self.over
        return True

    def call(self, what: str, call: Callable[[], bool]) -> str:
        """Makes a call. Returns how it ended: "ok", or a code, or a class."""
        self.journal.begin(what)
        try:
            right = call()
        except Exception as error:
            found = self.named(error)
            self.journal.end("error", kind=found.kind, ours=found.ours, code=found.code, text=str(error)[:600])
            time.sleep(LOOK)
            return found.code or found.kind
        self.journal.end("ok" if right else "wrong")
        return "ok"

    @property
    def _paused(self) -> bool:
        return Path(self.chosen.pause).exists()

    def _rest(self) -> None:
        """Writes that everything held has been released, and waits until the client is to go on."""
        while self._paused:
            gc.collect()
            self.flush()
            self.journal.paused()
            time.sleep(LOOK)


def options(description: str, words: Sequence[str]) -> argparse.ArgumentParser:
    """Those that all clients have, and `words`: further ones."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("name", "journal", "pause", *words):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--devices", type=int, required=True)
    faulthandler.register(signal.SIGUSR1)
    return parser


def drawn(count: int, devices: int, seed: int) -> Any:
    """Numbers that every client of this seed draws, so many that they divide by the devices."""
    return np.random.default_rng(seed).integers(0, PRIME, count // devices * devices, np.int32)


def stepped(values: Any) -> Any:
    """The state after a step, by numpy, in the same 32 bits."""
    return (values * 3 + values.sum(dtype=np.int32)) % PRIME


def put_sizes() -> Iterator[tuple[str, int]]:
    """Names and bytes of puts, of 32 KiB to 64 MiB, without end."""
    sizes = [1 << 15, 1 << 20, 1 << 15, 1 << 22, 1 << 15, 1 << 20, 1 << 15, LARGE]
    while True:
        for size in sizes:
            yield "put 64MB" if size == LARGE else "put", size
