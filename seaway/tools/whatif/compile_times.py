"""Measures how long hosts compiled in a record: from the controller's order until the last host had the code ready.

`workload` passes the replayed events to this; `running` lets each code of a simulation take the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.protocol import Compiled, CompileStep, MessageReceived, Ordered, Reports, Send

LEAST = 10_000_000  # nanoseconds: a smaller mean is only the time of messages, and nothing was compiled


class Compiling:
    def __init__(self) -> None:
        self._ordered: dict[tuple[int, int], int] = {}  # (plan, code) -> when
        self._ready: dict[tuple[int, int], int] = {}

    def see(self, event: Any, commands: Sequence[Any], now: int) -> None:
        """Take an event of the controller and its commands."""
        if isinstance(event, MessageReceived) and isinstance(event.message, Reports):
            for report in event.message.reports:
                if isinstance(report, Compiled) and (report.plan, report.code) in self._ordered:
                    self._ready[report.plan, report.code] = now
        for command in commands:
            if isinstance(command, Send) and isinstance(command.message, Ordered):
                for step in command.message.steps:
                    if isinstance(step, CompileStep):
                        for code in step.codes:
                            self._ordered.setdefault((step.plan, code), now)

    @property
    def mean(self) -> int:
        """Mean nanoseconds a code; 0 if nothing was compiled."""
        took = [now - self._ordered[which] for which, now in self._ready.items()]
        mean = sum(took) // max(1, len(took))
        return mean if mean >= LEAST else 0
