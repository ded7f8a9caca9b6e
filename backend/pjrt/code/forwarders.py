"""What an executable calls where its program calls a function of its client's process.

    XLA's thread --operands--> Forwarders --ask--> (the door, or a stream to it) --> the client
                 <--results---            <--answered--

XLA waits here, so the wait is bounded. If it fails, a program of one device fails with it. One of several devices goes
on with zeros instead: others may wait for this one in a collective, and would wait for ever. Who launched it finds
`fault` when it has ended, and drops the results. Neighbours: `stablehlo_reading`, which finds the calls;
`stablehlo_launchable` and `door.local`, which launch; `contents.callbacks`, the bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ... import xla
from ...contents import CallbackFault, callbacks
from .stablehlo_reading import CallbackFacts

# begins a call in the client's process, from any thread; the function that it is given gets the answer, in any thread
AskClient = Callable[[bytes, Callable[[bytes], None]], None]


class Forwarders:
    """Of one executable. `alone`: it runs on one device. `seconds`: how long it waits for each call."""

    def __init__(self, facts: Sequence[CallbackFacts], ask: AskClient, seconds: float, *, alone: bool) -> None:
        self._ask, self._seconds, self._alone = ask, seconds, alone
        self._lock = threading.Lock()
        self._runs: list[CallbackRun] = []
        self.functions = [partial(self._call, each) for each in facts]

    def begin(self) -> CallbackRun:
        """One more run is being launched."""
        run = CallbackRun()
        with self._lock:
            self._runs = [each for each in self._runs if not each.over]
            self._runs.append(run)
        return run

    def _call(self, facts: CallbackFacts, *operands: Any) -> tuple[Any, ...]:
        with self._lock:
            going = [each for each in self._runs if not each.over]
        if going and all(each.fault for each in going):  # whichever calls has failed: it only has to come to its end
            return _zeros(facts)
        try:
            return self._called(facts, operands)
        except CallbackFault as fault:
            with self._lock:
                for each in self._runs:  # which of these has called is not known
                    each.fault = each.fault or str(fault)
            if self._alone:
                raise
            return _zeros(facts)

    def _called(self, facts: CallbackFacts, operands: Sequence[Any]) -> tuple[Any, ...]:
        answer: list[bytes] = []
        here = threading.Event()

        def came(body: bytes) -> None:
            answer.append(body)
            here.set()

        self._ask(callbacks.asked(facts.function, operands), came)
        if not here.wait(self._seconds):
            raise CallbackFault(
                f"a callback was not answered in {self._seconds:g} s, which is the limit here (--callback-seconds). "
                "Does it use arrays on the devices that wait for it, or does the program hold its process up?"
            )
        return _checked(facts, callbacks.results_of(answer[0]))


class CallbackRun:
    """One run of a program with callbacks. `fault`: why its results are worth nothing."""

    __slots__ = ("fault", "over")

    def __init__(self) -> None:
        self.fault, self.over = "", False

    def end(self) -> None:
        """It has ended on all devices here. Raises CallbackFault."""
        self.over = True
        if self.fault:
            raise CallbackFault(self.fault)


def unasked(facts: Sequence[CallbackFacts]) -> list[Callable[..., Any]]:
    """For who only compiles, or looks."""
    return [lambda *operands: () for _ in facts]


def _checked(facts: CallbackFacts, results: Sequence[Any]) -> tuple[Any, ...]:
    wanted = [None if each is None else (xla.core_dtype(each.element), each.shape) for each in facts.results]
    given = [None if each is None else (each.dtype.name, each.shape) for each in results]
    if wanted != given:
        raise CallbackFault(f"a callback returned {given}, and the program was compiled for {wanted}")
    return tuple(results)


def _zeros(facts: CallbackFacts) -> tuple[Any, ...]:
    return tuple(
        None if each is None else np.zeros(each.shape, np.dtype(xla.core_dtype(each.element))) for each in facts.results
    )
