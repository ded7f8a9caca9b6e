"""Rounds of faults on one cluster: wait until all is well, inject, wait until all is well again, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from pathlib import Path

import msgspec

from .cluster import Cluster, Named
from .inject import Injected, await_moment, inject, settle
from .judge import STUCK, Bounds, RoundSeen, Verdict, judge, leaks
from .processes import Usage
from .schedule import RESTARTS, Fault, Schedule, Shape
from .watching import standing

START = 120.0  # seconds for the whole cluster to come up at first
STEADY = 0.5  # seconds that the cluster must be well before it counts as well
OVER = 150.0  # seconds for the last gang that is stuck in a world that is over
QUIET = 10.0  # seconds for what clients have released to be gone


class NotReady(Exception):
    """The cluster is not up, so there is nothing yet to put faults on."""


class Round(msgspec.Struct):
    faults: Schedule
    verdict: Verdict


class Campaign:
    """Rounds of faults on one cluster, which ends with `close`. `tell` is called with each round."""

    def __init__(
        self, folder: Path, shape: Shape, clients: dict[str, Named], *, slack: float = 1.0,
        forgiven: Container[str] = (), devices: int = 2,
        tell: Callable[[str], None] = lambda words: None,
    ) -> None:  # fmt: skip
        self.shape, self.slack, self.forgiven, self.tell = shape, slack, forgiven, tell
        self.cluster = Cluster(folder, shape, clients, devices)
        self.bounds = Bounds(shape.lease, 0.0, slack)
        self.baseline: dict[str, Usage] = {}
        self.first: dict[str, Usage] = {}
        self._deaths = 0

    def open(self) -> None:
        begun = time.monotonic()
        self.cluster.start()
        if not self.cluster.until(lambda: not standing(self.cluster.watch.status), START):
            raise NotReady(self._why())
        start = time.monotonic() - begun
        if not self.cluster.until(lambda: not self.cluster.good_since(begun), START):
            raise NotReady(f"no good call of {', '.join(self.cluster.good_since(begun))}. {self._why()}")
        self.bounds = Bounds(self.shape.lease, start, self.slack)
        quiet = self._rest()
        if quiet:
            raise NotReady(f"before any fault: {quiet}")
        self.baseline = self.first = self.cluster.usages()
        bad = [
            call for reader in self.cluster.readers.values() for call in reader.calls if call.end in ("wrong", "error")
        ]
        if bad or any(death.wrong for death in self.cluster.deaths):
            raise NotReady(f"before any fault: {bad} {self.cluster.deaths}")
        self.tell(
            f"the cluster stood after {start:.1f} s; bounds: detection {self.shape.lease:g} s (the lease), error "
            f"{self.bounds.error:g} s and islands {self.bounds.stand:g} s after it, times {self.slack:g}"
        )

    def close(self) -> None:
        self.cluster.stop()

    def _why(self) -> str:
        tails = [
            f"--- {name}\n{process.tail(800)}" for name, process in self.cluster.processes.items()
            if not process.alive or name == "controller"
        ]  # fmt: skip
        return f"{standing(self.cluster.watch.status)}\n" + "\n".join(tails)

    def round(self, faults: Schedule) -> Verdict:
        cluster = self.cluster
        begun = time.monotonic()
        deaths = len(cluster.deaths)
        injected: list[Injected] = []
        for fault in faults:
            if injected and fault.gap:
                self._pass(injected, fault.gap)
            await_moment(cluster, fault)
            injected.append(inject(cluster, fault))
        begun = injected[0].begun
        seen = self._wait(injected)
        seen.calls = [
            call for reader in cluster.readers.values() for call in reader.calls
            if call.ended is None or call.ended >= begun
        ]  # fmt: skip
        seen.deaths = cluster.deaths[deaths:]
        gone = {death.pid for death in cluster.deaths} | {each.pid for each in injected if each.fault.kind in RESTARTS}
        seen.gone = frozenset(gone)
        verdict = judge(seen, self.bounds, self.forgiven)
        self.baseline = self.baseline | {  # `first` stays what it was
            name: now
            for name, now in seen.after.items()
            if leaks({name: self.baseline.get(name, now)}, {name: now}, STUCK)
        }
        return verdict

    def _pass(self, injected: list[Injected], seconds: float) -> None:
        self.cluster.until(lambda: [settle(self.cluster, each) for each in injected] and False, seconds)

    def _wait(self, injected: list[Injected]) -> RoundSeen:
        """Wait until all is over and well, or never will be."""
        cluster = self.cluster
        touched = frozenset[int]().union(*(cluster.islands_of(each.fault) for each in injected))
        seen = RoundSeen(
            injected=injected, calls=[], deaths=[], before=self.baseline, touched=touched,
            islands={name: islands for name, (_, islands) in cluster.clients.items()},
        )  # fmt: skip
        steady: list[float] = []

        def well() -> bool:
            now = time.monotonic()
            settled = [settle(cluster, each) for each in injected]
            if not all(settled):
                seen.waiting = "a process has not come back"
                return False
            over = max(each.over or now for each in injected)
            seen.waiting = standing(cluster.watch.status) or ("" if cluster.watch.at > over else "no status yet")
            if seen.waiting:
                steady.clear()
            else:
                steady.append(now)
            late = cluster.good_since(over)
            if late:
                seen.waiting = seen.waiting or f"no good call of {', '.join(late)}"
                return False
            seen.resumed = seen.resumed or now
            return bool(steady) and now - steady[0] >= STEADY

        while not cluster.until(well, 1.0):
            if time.monotonic() > self.bounds.hang_by(injected, time.monotonic()):
                seen.ended = time.monotonic()
                return seen
        seen.stood, seen.waiting = steady[0], ""
        seen.quiet = self._rest()
        seen.after = cluster.usages()
        seen.ended = time.monotonic()
        return seen

    def at_the_end(self) -> list[str]:
        """What processes still hold beyond what they did before, when faults are over for good and nothing is stuck any
        more."""
        self.cluster.until(lambda: not leaks(self.first, self.cluster.usages()), OVER)
        return leaks(self.first, self.cluster.usages())

    def held(self) -> str:
        """What each process holds, before any fault and now."""
        now = self.cluster.usages()
        return "; ".join(
            f"{name}: "
            + ", ".join(
                f"{what} {getattr(was, what)} and {getattr(now.get(name, was), what)}"
                for what in Usage.__struct_fields__
            )
            for name, was in self.first.items()
        )

    def _rest(self) -> str:
        """Pause all clients, look at what is left over, and let them go on."""
        cluster = self.cluster
        cluster.pause(True)
        try:
            asked = time.monotonic()
            if not cluster.until(lambda: cluster.paused_since(asked), START):
                return "not all clients came to rest"
            asked = time.monotonic()

            def left() -> str:
                return standing(cluster.watch.status, quiet=True, clients=len(cluster.clients))

            return "" if cluster.until(lambda: cluster.watch.at > asked and not left(), QUIET) else left()
        finally:
            cluster.pause(False)


def last_words(campaign: Campaign) -> str:
    """The last output of all processes, with the stacks of their threads."""
    names = list(campaign.cluster.processes)
    status = campaign.cluster.watch.status
    campaign.cluster.stacks(names)
    return "\n".join(
        [f"status: {status}"]
        + [f"=== {name} ===\n{process.tail(6000)}" for name, process in campaign.cluster.processes.items()]
    )


def touches(fault: Fault) -> str:
    """The name of a fault in the table."""
    if fault.role == "link":
        one, other, both = fault.link
        ends = [end.partition("-")[0].replace("door", "client") for end in (one, other)]
        return f"{fault.kind} {'='.join(sorted(ends)) if both else '>'.join(ends)}"
    return f"{fault.kind} {fault.role}"
