"""The client as a machine: it names everything itself, never waits to send, pulls its results."""

from __future__ import annotations

from dataclasses import dataclass

from . import vocabulary as v
from .minicore import CONTROLLER


@dataclass(frozen=True)
class Workload:
    """What both drivers run: one computation over the island, called `runs` times."""

    name: str
    blob: bytes
    cost_ns: int
    argument: v.Literal
    runs: int = 1


class Client:
    def __init__(self, name: str, work: Workload) -> None:
        self.name, self.work = name, work
        self._open = set(range(1, work.runs + 1))
        self._pulls: dict[v.Key, tuple[int, set[str]]] = {}
        self._failures: list[str] = []

    def next_wakeup(self) -> int | None:
        return None

    def handle(self, event: v.Event, now: int) -> list[v.Command]:
        match event:
            case v.Connected(peer) if peer == CONTROLLER:
                w = self.work
                calls = [v.Submit(run, 1, w.argument, run) for run in sorted(self._open)]
                messages: list[v.Message] = [v.Register(1, w.name, w.blob, w.cost_ns), *calls]
                return [v.Send((CONTROLLER,), m) for m in messages]
            case v.Received(message=v.RunDone(run, output, hosts)):
                self._pulls[self.name, output] = run, set(hosts)
                return [v.Pull((self.name, output), host) for host in hosts]
            case v.Pulled(buffer, host):
                run, hosts_left = self._pulls[buffer]
                hosts_left.discard(host)
                if hosts_left:
                    return []
                del self._pulls[buffer]
                return [v.Send((CONTROLLER,), v.Release(buffer[1])), *self._close(run)]
            case v.Received(message=v.RunFailed(run, blame)):
                self._failures.append(f"run {run}: {blame}")
                return self._close(run)
            case _:
                pass
        return []

    def _close(self, run: int) -> list[v.Command]:
        self._open.discard(run)
        return [] if self._open else [v.Finish(tuple(self._failures))]
