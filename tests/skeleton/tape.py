"""What a driver knows of a machine, and a machine that remembers: all that went in, all that came out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from . import vocabulary as v

Inbound = tuple[int, v.Event]


class Machine(Protocol):
    def handle(self, event: v.Event, now: int) -> list[v.Command]: ...

    def next_wakeup(self) -> int | None: ...


class Tape(msgspec.Struct):
    """The record of one machine: the event log, the commands in order, the order hash (if it keeps one)."""

    events: list[Inbound] = []
    commands: list[v.Command] = []
    order_hash: str = ""


class Recorder:
    """A machine that records another."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.tape = machine, Tape()

    def handle(self, event: v.Event, now: int) -> list[v.Command]:
        self.tape.events.append((now, event))
        commands = self.machine.handle(event, now)
        self.tape.commands.extend(commands)
        self.tape.order_hash = getattr(self.machine, "order_hash", "")
        return commands

    def next_wakeup(self) -> int | None:
        return self.machine.next_wakeup()


def replay(tape: Tape, fresh: Callable[[], Machine]) -> bytes:
    """The commands a fresh machine gives for a recorded run, encoded."""
    machine = fresh()
    return msgspec.msgpack.encode([c for now, event in tape.events for c in machine.handle(event, now)])
