"""Ends what a lost host, device or launch has broken: each run fails once, with the blame; each lost buffer is named.

A gang that waits for a dead member is abandoned on all its hosts, by order of the controller (a tombstone): no host
decides so by itself. A transfer with a dead end is poisoned at the other. Runs that have entered an order and need
what is gone fail; runs that have not are lowered again for the new device map. Clients elsewhere notice nothing.

In: hosts that are lost, and epochs that have formed (`membership`); faults that hosts report; from the agenda, what is
overdue, and gangs whose hosts have lost each other. Out: runs fail (`outcomes`) or are lowered again (`runs`); on the
agenda, epochs that must end and hosts that cannot stay.
The functions that matter: `host_lost`, `trouble`, `flight_failed`, `epoch_formed`.
"""

from ..compile import Lowerings
from ..memory import Buffers
from ..model import Gang, Spans, spans
from ..protocol import Blame, HostFault, Join, LogLine, PoisonStep
from ..slices import MustWait, Resources
from .buffer_refs import BufferRefs
from .compilation import Compilation
from .completion import Completion
from .dispatch import Dispatch
from .in_flight import InFlightTable
from .observations import Abandoned, EpochFormed
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .records import NO_PLAN, InFlight, RunRecord
from .registrations import Registrations
from .run_waits import CODE
from .runs import Runs
from .state import ControllerModule, IslandState, State
from .trace_rows import Tracing
from .watch import Watchdog


class Failures(ControllerModule):
    _state: State
    _buffers: Buffers
    _compilation: Compilation
    _completion: Completion
    _dispatch: Dispatch
    _in_flight: InFlightTable
    _lowerings: Lowerings
    _outbox: TurnOutbox
    _outcomes: Outcomes
    _refs: BufferRefs
    _registrations: Registrations
    _resources: Resources
    _runs: Runs
    _tracing: Tracing | None
    _watch: Watchdog

    # --- hosts ---------------------------------------------------------------------------------------------------

    def host_lost(self, island: IslandState, host: int, reason: str, now: int) -> None:
        text = f"host {host} of island {island.island.name!r} was lost: {reason}"
        blame = Blame("host-lost", text, host=host)
        self._remap(island)
        for entry in self._in_flight.touching(island.island.index, spans.one(host)):
            self._cut_flight(island, entry, spans.one(host), blame, now)
        for buffer in self._refs.on_host(host):
            island.dropped.append(buffer)
            self._outcomes.lost(buffer, blame)
        self._fail_started(lambda run: _needs_host(run, host), blame, now)
        self._compilation.hosts_gone(spans.one(host))

    def host_left(self, island: IslandState, host: int, reason: str, now: int) -> None:
        """It has drained: nothing is in flight there. What still lies on it is lost all the same."""
        text = f"host {host} of island {island.island.name!r} has left: {reason}"
        blame = Blame("host-left", text, host=host)
        self._remap(island)
        for buffer in self._refs.on_host(host):
            self._outcomes.lost(buffer, blame)
        self._fail_started(lambda run: _needs_host(run, host), blame, now)

    def _remap(self, island: IslandState) -> None:
        """New places for slices that have lost a device. Plans for the old ones are forgotten."""
        for moved in self._resources.remap(island.island.index):
            self._lowerings.forget_place(moved.old)
            self._state.map_changed = True
            if isinstance(moved.new, MustWait) and moved.new.fails and not self._state.slices_down:
                self._state.slices_down.append(None)
        self._runs.hosts_changed()

    def slices_down(self, _: None, now: int) -> None:
        """What has not started fails if it needs one of them: the island may not form again for long."""
        self._runs.lower_again(now)
        self._registrations.anew(now)

    def _fail_started(self, needs: object, blame: Blame, now: int) -> None:
        assert callable(needs)
        for run in list(self._state.runs.values()):
            if run.state == "running" and needs(run):
                self._outcomes.fail(run, blame, now)

    # --- entries -------------------------------------------------------------------------------------------------

    def _cut_flight(self, island: IslandState, entry: InFlight, gone: Spans, blame: Blame, now: int) -> None:
        """A member of it is gone."""
        entry.cut(gone, self._completion.named(entry, blame))
        if entry.kind == "gang":
            island.abandon.append(entry.seq)
            self._state.observe(Abandoned(entry.seq))
            self._completion.end(entry, now)
            return
        if entry.transfer >= 0:
            self.poison_transfer(entry, blame)
        if not entry.left:
            self._completion.end(entry, now)

    def poison_transfer(self, entry: InFlight, blame: Blame) -> None:
        """Both ends are told that it will never complete; each answers for its half."""
        for half in self._in_flight.of_transfer(entry.transfer):
            self._outbox.step(half.island, PoisonStep(half.transfer, blame), half.hosts)

    def overdue(self, entry: InFlight, now: int) -> None:
        """It has outlasted its hard bound."""
        if self._state.in_flight.get(entry.seq) is entry:
            late = spans.text(entry.missing or entry.left)
            self.flight_failed(entry, Blame("timeout", f"hosts {late} did not finish in time"), now)
        self._in_flight.watch_again(entry.island, now)

    def flight_failed(self, entry: InFlight, blame: Blame, now: int) -> None:
        """It outlasted its hard bound, or could not be launched. A gang ends its epoch: its members may be anywhere."""
        island = self._state.islands[entry.island]
        blame = self._completion.named(entry, blame)
        if entry.kind != "gang":
            entry.give_up(blame)
            if entry.transfer >= 0 and not entry.poisoned:
                entry.poisoned = True
                self.poison_transfer(entry, blame)
                return
            # Its hosts have been told to end it, and have not: hosts that do not take the next seat are lost.
            self._completion.end(entry, now)
            self._state.broken.append(island)
            return
        self._cut_flight(island, entry, spans.EMPTY, blame, now)
        self._state.broken.append(island)

    # --- a world that is broken ----------------------------------------------------------------------------------

    def peer_failed(self, entry: InFlight, now: int) -> None:
        """A collective failed because of another member, so connections between members are broken, and stay so: this
        epoch ends. If the other one is dead, its lease will say so, and the run fails for that; nothing enters until
        then. If all members of the gang have said that it ended, or nobody's lease has run out, they live."""
        if self._state.in_flight.get(entry.seq) is not entry:
            return
        island = self._state.islands[entry.island]
        key = ("peer", entry.island)
        if not entry.left:
            self._world_broken(island, entry.blame, now)
        elif not self._watch.waits_for(key):
            island.scheduler.paused = True
            island.stale_world = True
            blame, lease = entry.blame, self._state.config.lease
            self._watch.begin_for(key, now, lease, lambda at: self._world_broken(island, blame, at))

    def _world_broken(self, island: IslandState, said: Blame | None, now: int) -> None:
        """All gangs of several hosts are given up: of those that have not failed yet, no host may wait for another."""
        where = f"hosts {spans.text(island.members)} of island {island.island.name!r}"
        cause = said.cause.partition("\n")[0] if said is not None else ""
        self.epoch_broken(island, said.host if said is not None else -1, cause, now, apart=True)
        again = f". {island.broken.text}" if island.broken.text else ""
        blame = Blame("world", f"the connections between {where} broke: {cause}{again}")
        for entry in self._in_flight.on(island.island.index):
            # The end of one may have explained, and so ended, others that waited for its reason.
            under_way = self._state.in_flight.get(entry.seq) is entry
            if under_way and entry.kind == "gang" and spans.count(entry.hosts) > 1:
                self._cut_flight(island, entry, spans.EMPTY, blame, now)
                self._completion.explain(now)
        self._outbox.effect(LogLine(f"{blame.cause}; the island forms anew"))
        self._state.broken.append(island)

    def epoch_broken(self, island: IslandState, host: int, reason: str, now: int, *, apart: bool = False) -> None:
        """An epoch did not form, or its hosts could not compute together. If that happens again and again, runs that
        have waited for it for long fail."""
        island.broken.add(island.epoch, host, reason, now, apart=apart)
        text, number = island.broken.text, island.island.index
        if not text:
            return
        self._outbox.effect(LogLine(f"island {island.island.name!r}: {text}"))
        blame = Blame("world", f"island {island.island.name!r} did not form: {text}")
        patience = self._watch.bounds.soft(0)
        for run in list(self._state.runs.values()):
            if run.waits == CODE and run.rows is not NO_PLAN and number in run.rows.island_hosts:
                if now - run.since > patience:
                    self._outcomes.fail(run, blame, now)

    def give_up_flights(self, island: IslandState, now: int) -> None:
        """An island cannot drain: what is left will not end by itself."""
        for entry in self._in_flight.on(island.island.index):
            if self._state.in_flight.get(entry.seq) is entry:
                blame = Blame("timeout", "it did not end in time for the island to form anew")
                entry.give_up(self._completion.named(entry, blame))
                if entry.kind == "gang":
                    island.abandon.append(entry.seq)
                    self._state.observe(Abandoned(entry.seq))
                elif entry.transfer >= 0:
                    self.poison_transfer(entry, blame)
                self._completion.end(entry, now)

    def trouble(self, island: IslandState, report: HostFault, now: int) -> None:
        """A launch failed on one host while its peers wait in it; or a device is lost, or a buffer; or a host could not
        join the epoch's world, could not write to its disk, or is confused."""
        self._outbox.effect(LogLine(f"trouble on host {report.host}: {report.blame}"))
        if report.device >= 0:
            self._device_lost(island, report.host, report.device, report.blame, now)
            return
        entry = self._state.in_flight.get(report.seq)
        if entry is not None:
            self.flight_failed(entry, report.blame, now)
        elif report.buffer >= 0:
            buffer = self._buffers.all.alone(report.buffer)
            if buffer is not None and spans.contains(buffer.hosts, report.host):
                self._outcomes.lost(buffer.id, report.blame)
        elif report.blame.code == "disk":
            self._state.diskless[report.host] = None  # until its process starts again
        elif report.blame.code == "world":
            self.epoch_broken(island, report.host, report.blame.cause, now)
            self._state.broken.append(island)
        elif report.blame.code == "protocol":
            self._state.lost_hosts.append((island, report.host, report.blame.cause))

    def _device_lost(self, island: IslandState, host: int, device: int, blame: Blame, now: int) -> None:
        of_another = island.island.index != self._state.cluster.island_of_device(device).index
        if of_another or not self._resources.usable(device):
            return
        self._resources.device_lost(device)
        if self._tracing is not None:
            self._tracing.lost(spans.one(device))
        self._remap(island)
        for entry in self._in_flight.touching(island.island.index, spans.one(host)):
            step = entry.run.plan.steps[entry.step] if entry.run is not None else None
            if isinstance(step, Gang) and device in step.place.devices():
                self._cut_flight(island, entry, spans.EMPTY, blame, now)
        for buffer in self._refs.on_device(device):
            island.dropped.append(buffer)
            self._outcomes.lost(buffer, blame)
        self._fail_started(lambda run: _needs_device(run, device), blame, now)
        self._state.broken.append(island)

    # --- an epoch has formed -------------------------------------------------------------------------------------

    def epoch_formed(self, island: IslandState, now: int) -> None:
        """Its code is compiled anew; slices that waited may have their devices now."""
        self._state.observe(EpochFormed(island.island.index, island.epoch, island.members))
        self._remap(island)
        for run in list(self._state.runs.values()):
            rows = run.rows
            if run.state == "running" and island.island.index in rows.island_hosts:
                self._dispatch.park(run)
                if self._compilation.ask(rows):
                    self._state.plan_ready.append(run.plan.id)
        if self._state.map_changed:
            self._state.map_changed = False
            self._runs.lower_again(now)
        else:
            self._runs.compile_again(island.island.index, now)
        self._registrations.anew(now)
        self._runs.slices_bound(now)
        self._state.fresh = True  # in the line for memory: an island is at work again

    def new_host(self, island: IslandState, join: Join) -> None:
        """Gangs that a host still has from another controller's time will never be asked for again."""
        island.epoch = max(island.epoch, join.epoch)
        self._state.epochs += 1
        island.stream.number = max(island.stream.number, join.last)
        for seq in join.unfinished:
            if seq not in island.abandon:
                island.abandon.append(seq)
                self._state.observe(Abandoned(seq))


def _needs_host(run: RunRecord, host: int) -> bool:
    """Some step that has not entered an order needs this host."""
    return any(not run.entered[index] and spans.contains(hosts, host) for index, hosts in enumerate(run.rows.hosts))


def _needs_device(run: RunRecord, device: int) -> bool:
    return any(
        not run.entered[index] and isinstance(step, Gang) and device in step.place.devices()
        for index, step in enumerate(run.plan.steps)
    )
