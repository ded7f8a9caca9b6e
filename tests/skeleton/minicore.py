"""A core small enough to read at once: `handle(event, now) -> [command, ...]` and `next_wakeup()`.

The controller is here, the executor in miniexecutor.py, the client in client.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import msgspec

from . import vocabulary as v

CONTROLLER = "controller"


def chain(digest: str, order: int, computation: v.Key, output: v.Key) -> str:
    """The order hash: what was ordered, one link a gang."""
    return hashlib.sha256(msgspec.msgpack.encode((digest, order, computation, output))).hexdigest()


@dataclass
class _Gang:
    run: v.Key
    name: str
    output: v.Key
    deadline: int
    unlaunched: set[str]
    unfinished: set[str]
    errors: dict[str, str] = field(default_factory=dict)
    reported: bool = False

    def missing(self) -> tuple[str, ...]:
        return tuple(sorted(self.unlaunched or self.unfinished))


class Controller:
    """One island: forms its world, has computations compiled, orders gangs, ends runs."""

    def __init__(self, hosts: tuple[str, ...], bound_ns: int) -> None:
        self.hosts, self.bound_ns, self.order_hash = hosts, bound_ns, ""
        self._up: set[str] = set()
        self._joined: set[str] = set()
        self._lost = ""
        self._epoch = self._order = 0
        self._computations: dict[v.Key, v.Register] = {}
        self._sent: set[v.Key] = set()
        self._ready: dict[v.Key, set[str]] = {}
        self._queue: list[tuple[str, v.Submit]] = []
        self._gangs: dict[int, _Gang] = {}

    def next_wakeup(self) -> int | None:
        return min((g.deadline for g in self._gangs.values() if not g.reported), default=None)

    def handle(self, event: v.Event, now: int) -> list[v.Command]:
        match event:
            case v.Connected(peer) if peer in self.hosts:
                self._up.add(peer)
                if self._epoch == 0 and self._up == set(self.hosts):
                    self._epoch = 1
                    return [v.StartCoordination(1, self.hosts)]
            case v.CoordinationUp(epoch) if not self._lost:
                return [v.Send(self.hosts, v.Form(epoch, self.hosts))]
            case v.Disconnected(peer) if peer in self.hosts and not self._lost:
                self._lost = peer
                doomed = [g.run for g in self._gangs.values()] + [(c, s.run) for c, s in self._queue]
                self._gangs.clear()
                self._queue.clear()
                return [v.Send((client,), v.RunFailed(run, peer)) for client, run in doomed]
            case v.Received(peer, message):
                return self._received(peer, message, now)
            case v.Wakeup():
                late = {o: g for o, g in self._gangs.items() if g.deadline <= now and not g.reported}
                for gang in late.values():
                    gang.reported = True
                return [v.ReportLate(o, g.name, g.missing()) for o, g in late.items()]
            case _:
                pass
        return []

    def _received(self, peer: str, message: v.Message, now: int) -> list[v.Command]:
        match message:
            case v.Joined():
                self._joined.add(peer)
                return self._advance(now)
            case v.Register() as register:
                self._computations[peer, register.computation] = register
                return self._advance(now)
            case v.Ready(computation, error=""):
                self._ready[computation].add(peer)
                return self._advance(now)
            case v.Submit(run) if self._lost:
                return [v.Send((peer,), v.RunFailed(run, self._lost))]
            case v.Submit() as submit:
                self._queue.append((peer, submit))
                return self._advance(now)
            case v.Enqueued(order) if order in self._gangs:
                self._gangs[order].unlaunched.discard(peer)
            case v.Finished(order, error) if order in self._gangs:
                return self._finished(peer, order, error)
            case v.Release(buffer):
                return [v.Send(self.hosts, v.Free((peer, buffer)))]
            case _:
                pass
        return []

    def _advance(self, now: int) -> list[v.Command]:
        out: list[v.Command] = []
        if self._joined == set(self.hosts) and not self._lost:
            for key, c in self._computations.items():
                if key not in self._sent:
                    self._sent.add(key)
                    self._ready[key] = set()
                    out.append(v.Send(self.hosts, v.Compile(key, c.blob, c.cost_ns)))
            while self._queue and self._ready_everywhere(*self._queue[0]):
                out.append(self._place(*self._queue.pop(0), now))
        return out

    def _ready_everywhere(self, client: str, s: v.Submit) -> bool:
        return self._ready[client, s.computation] == set(self.hosts)

    def _place(self, client: str, s: v.Submit, now: int) -> v.Command:
        key, output = (client, s.computation), (client, s.output)
        self._order += 1
        self.order_hash = chain(self.order_hash, self._order, key, output)
        deadline = now + self.bound_ns
        name, hosts = self._computations[key].name, self.hosts
        self._gangs[self._order] = _Gang((client, s.run), name, output, deadline, set(hosts), set(hosts))
        return v.Send(self.hosts, v.Gang(self._epoch, self._order, key, s.argument, output))

    def _finished(self, peer: str, order: int, error: str) -> list[v.Command]:
        gang = self._gangs[order]
        gang.unfinished.discard(peer)
        if error:
            gang.errors[peer] = error
        if gang.unfinished:
            return []
        del self._gangs[order]
        client, run = gang.run
        if gang.errors:
            return [v.Send((client,), v.RunFailed(run, ",".join(sorted(gang.errors))))]
        return [v.Send((client,), v.RunDone(run, gang.output[1], self.hosts))]
