"""Connections between named actors: FIFO, with a latency. Tests may cut and mend them.

A connection that is cut loses what is under way on it. Both ends are told, unless the cut is silent (a black hole, as
when a switch dies). A cut may also be of one direction: what one end says is kept on the way, and arrives when the cut
is mended, as TCP would bring it. Each time a connection comes up it has a new `life`; frames of an older life are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .clock import Clock

Actor = str
Latency = Callable[[Actor, Actor], int]


class Wire:
    """One connection, in both directions."""

    __slots__ = ("ends", "kept", "last", "life", "mute", "muted_at", "severed", "silent", "up")

    def __init__(self, ends: tuple[Actor, Actor]) -> None:
        self.ends = ends
        self.up = False
        self.life = 0
        self.severed = False  # nothing gets through until it is mended
        self.silent = False  # severed, and the ends do not know it
        self.mute: Actor | None = None  # severed in one direction: nobody hears this end
        self.muted_at = 0
        self.kept: list[Any] = []  # frames that it has sent; None: it has hung up
        self.last: dict[Actor, int] = {}  # receiver -> when the last frame sent to it arrives


class Network:
    """All connections. It calls `up`, `down` and `arrive` with (receiver, other end[, frame])."""

    def __init__(
        self, clock: Clock, latency: Latency,
        up: Callable[[Actor, Actor], None], down: Callable[[Actor, Actor], None],
        arrive: Callable[[Actor, Actor, Any], None], still: Callable[[Actor], bool] = lambda actor: False,
    ) -> None:  # fmt: skip
        """`still(actor)`: whether an actor's process is stopped, so that nobody can connect to it."""
        self.clock = clock
        self.latency = latency
        self.sent = 0
        self._up, self._down, self._arrive, self._still = up, down, arrive, still
        self._wires: dict[tuple[Actor, Actor], Wire] = {}
        self._dead: dict[Actor, bool] = {}

    # --- what actors do ---------------------------------------------------------------------------------

    def dial(self, one: Actor, other: Actor) -> None:
        """Connect if the other end runs and can be reached, and tell both ends. A second call does nothing."""
        wire = self._wire(one, other)
        if wire.up or wire.severed or one in self._dead or other in self._dead or self._still(other):
            return
        wire.up = True
        wire.life += 1
        wire.last.clear()
        delay = self.latency(one, other)
        self.clock.after(0, self._tell_up, wire, wire.life, one, other)
        wire.last[other] = self.clock.now + delay
        self.clock.after(delay, self._tell_up, wire, wire.life, other, one)

    def send(self, sender: Actor, receiver: Actor, frame: Any) -> None:
        wire = self._wire(sender, receiver)
        if not wire.up or wire.silent:
            return
        self.sent += 1
        if wire.mute == sender:
            wire.kept.append(frame)
            return
        arrival = max(self.clock.now + self.latency(sender, receiver), wire.last.get(receiver, 0))
        wire.last[receiver] = arrival
        self.clock.at(arrival, self._deliver, wire, wire.life, receiver, sender, frame)

    def hang_up(self, one: Actor, other: Actor) -> None:
        """Close a connection from one end: all that this end has sent still arrives, then the other end is told."""
        wire = self._wire(one, other)
        if not wire.up:
            return
        wire.up = False
        if wire.mute == one:
            wire.kept.append(None)
            return
        arrival = max(self.clock.now + self.latency(one, other), wire.last.get(other, 0))
        self.clock.at(arrival, self._tell_down, wire, wire.life, other, one)

    # --- faults -----------------------------------------------------------------------------------------

    def cut(self, one: Actor, other: Actor, silent: bool = False) -> None:
        wire = self._wire(one, other)
        wire.severed = True
        wire.silent, wire.mute = silent, None
        if wire.up and not silent:
            self._drop(wire)

    def mute(self, one: Actor, other: Actor) -> None:
        """Cut the direction from one end to the other. Neither can dial the other meanwhile."""
        wire = self._wire(one, other)
        if not wire.severed:
            wire.severed, wire.mute, wire.muted_at = True, one, self.clock.now

    def mend(self, one: Actor, other: Actor) -> None:
        """Let a cut connection be dialled again. After a silent cut, the ends first learn that the old one is dead."""
        wire = self._wire(one, other)
        if not wire.severed:
            return
        wire.severed = False
        if wire.mute is not None:
            self._bring_kept(wire, wire.mute)
        if wire.silent and wire.up:
            self._drop(wire)
        wire.silent = False

    def die(self, actor: Actor) -> None:
        """Break all connections of an actor. It cannot be reached until it revives."""
        self._dead[actor] = True
        for wire in self._wires.values():
            if actor in wire.ends and wire.up:
                self._drop(wire)

    def revive(self, actor: Actor) -> None:
        self._dead.pop(actor, None)

    def is_up(self, one: Actor, other: Actor) -> bool:
        wire = self._wires.get(_key(one, other))
        return wire is not None and wire.up

    def muted_at(self, one: Actor, other: Actor) -> int:
        """Since when nobody hears this end; -1 if that is not so."""
        wire = self._wire(one, other)
        return wire.muted_at if wire.mute == one else -1

    def severed(self) -> list[tuple[Actor, Actor]]:
        return [wire.ends for wire in self._wires.values() if wire.severed]

    # --- inside -----------------------------------------------------------------------------------------

    def _wire(self, one: Actor, other: Actor) -> Wire:
        key = _key(one, other)
        wire = self._wires.get(key)
        if wire is None:
            wire = self._wires[key] = Wire(key)
        return wire

    def _bring_kept(self, wire: Wire, mute: Actor) -> None:
        other = wire.ends[wire.ends[0] == mute]
        kept, wire.mute, wire.kept = wire.kept, None, []
        for frame in kept:
            arrival = max(self.clock.now + self.latency(mute, other), wire.last.get(other, 0))
            wire.last[other] = arrival
            if frame is None:
                self.clock.at(arrival, self._tell_down, wire, wire.life, other, mute)
            else:
                self.clock.at(arrival, self._deliver, wire, wire.life, other, mute, frame)

    def _drop(self, wire: Wire) -> None:
        wire.kept.clear()
        wire.up = False
        wire.life += 1  # frames under way are lost
        for end, other in (wire.ends, wire.ends[::-1]):
            if end not in self._dead:
                self.clock.after(0, self._tell_down, wire, wire.life, end, other)

    def _tell_up(self, wire: Wire, life: int, actor: Actor, other: Actor) -> None:
        if wire.life == life and wire.up and actor not in self._dead:
            self._up(actor, other)

    def _tell_down(self, wire: Wire, life: int, actor: Actor, other: Actor) -> None:
        if wire.life == life and not wire.up and actor not in self._dead:
            self._down(actor, other)

    def _deliver(self, wire: Wire, life: int, receiver: Actor, sender: Actor, frame: Any) -> None:
        if wire.life == life and not wire.silent and receiver not in self._dead:
            self._arrive(receiver, sender, frame)


def _key(one: Actor, other: Actor) -> tuple[Actor, Actor]:
    return (one, other) if one < other else (other, one)
