"""The in-memory world: the real controller, host and client machines on a simulated network and simulated devices.

    w = World(cluster, seed=1)
    a = w.client("a", weight=2)
    run = a.submit(program, a.put(...))
    w.run()                                 # until nothing is under way and nothing is outstanding
    assert run.good and not w.faults

All randomness comes from one seed, nothing reads a clock, and nothing iterates over a set, so the same calls give the
same diary. `diary` records what each machine was told and did; `faults` is all of that which it must not do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

from core.client.client_limits import Limits
from core.controller import Config, Controller
from core.host.host import Host
from core.link import codec as wire
from core.link.endpoint import for_controller, for_host
from core.model import Account, Cluster, Gang, Plan, Spans, spans
from core.protocol import effects as e
from core.protocol import messages as m
from core.protocol import peers
from core.record import Trace
from core.schedule.policy import Fifo, Policy
from core.transfer import at_once
from tests.invariants import Checks, everything
from tests.invariants import observations as o

from . import contents, text
from .actors import Actor, ControllerActor, HostActor, Recorder
from .clock import Clock
from .compiler import Compiler
from .devices import Fabric
from .filling import ClusterHosts
from .network import Network
from .plane import DataPlane
from .script import ClientActor, Script
from .timing import S, Timing

CONFIG, TIMING, LIMITS = Config(), Timing(), Limits()


class World:
    def __init__(
        self, cluster: Cluster, seed: int = 0, policy: Callable[[], Policy] = Fifo, config: Config = CONFIG,
        *, timing: Timing = TIMING, lane: str = "host", pool: int = 1 << 28, chunk: int = 1 << 20,
        check: bool = True, on_wire: bool = True, diary: bool = False, start: bool = True, traced: bool = False,
        accounts: Mapping[str, Account] = {}, known: Cluster | None = None,
    ) -> None:  # fmt: skip
        """`cluster`: all that there will be. `known`: what the controller knows of it at first, see `grow`."""
        self.cluster = cluster
        self._knows(known or cluster)
        self.random = Random(seed)
        self.policy = policy
        self.accounts = accounts  # by the names of clients
        self.config = msgspec.structs.replace(config, accounts=True) if accounts else config
        self.timing = timing
        self.lane, self.pool, self.chunk = lane, pool, chunk
        self.on_wire = on_wire
        self.traced = traced  # whether controllers keep a trace
        self.clock = Clock()
        self.network = Network(
            self.clock, self._latency, self._up, self._down, self._arrive,
            lambda name: name in self.actors and self.actors[name].still,
        )  # fmt: skip
        self.checks: Checks | None = Checks(everything(pool=pool, short=at_once(pool, chunk))) if check else None
        self.observe: Callable[[o.Observation], None] | None = self._observe if check else None
        self.unlooked = True  # whether the controller has taken an event since its counters were checked
        self.faults: list[str] = []
        self.diary: list[str] | None = [] if diary else None
        self.told: list[str] = []  # the controller's log
        self.answer = ""  # why the controller has not begun what an operator asked for last; "": it has
        self._hash = blake2b(digest_size=8)
        self._posted: tuple[Any, Any] = (None, None)

        self.views: dict[int, tuple[int, dict[int, tuple[int, int]]]] = {}  # see `Fabric.view`
        self._early_views: dict[int, list[m.ViewStep]] = {}  # of clients that are not numbered yet, by number
        self.fabric = Fabric(cluster, self.clock, self._tell_host, self.observe, self._complain)
        self.fabric.copy_time = timing.copy
        self.plane = DataPlane(self.fabric, _hosts_of(cluster), self.observe)
        self.wanted: dict[tuple[str, str], None] = {}  # (actor, the actor that it dials)
        # (client, host) -> the client's number when it last dialled
        self.shown: dict[tuple[str, str], int] = {}
        self.forming: dict[tuple[int, int], dict[int, None]] = {}  # (island, epoch) -> hosts that have joined
        self.plans: dict[tuple[int, int], Plan] = {}  # (island, plan)
        self.runs: dict[int, int] = {}  # run -> plan
        self.seats: dict[int, int] = {}
        self.last_seq = -1
        self.compiler = Compiler(cluster, self.plans, timing.compile, self._complain)
        self.gangs: list[tuple[int, str, str]] = []  # (island, program, step) of each gang, as they entered

        self.controller = ControllerActor(self, "controller")
        self.hosts = [HostActor(self, host) for host in range(cluster.hosts)]
        self.clients: list[Script] = []
        self.past: tuple[int, ...] = ()  # the controller's state: a number of each of its starts
        self.suspended: dict[tuple[int, ...], tuple[e.SuspendedSlices, ...]] = {}  # by state: what is in it
        self.had: dict[tuple[int, ...], Spans] = {}  # by state: hosts that have joined
        self.forgotten = 0  # how many starts came before those
        self.drained_stay_away = True  # whether nobody starts an agent again that has ended because it was drained
        self.late_hosts = False  # whether hosts that begin anew wait until the controller is started again
        self.actors: dict[str, Actor] = {actor.name: actor for actor in (self.controller, *self.hosts)}
        self._numbers: dict[int, str] = {}  # client number -> actor
        self._entered: dict[int, None] = {}  # gangs that this controller let enter
        self._holds: dict[tuple[int, str], int] = {}  # (buffer, holder) -> references at this controller
        self._open_runs: dict[tuple[int, int], None] = {}  # (client, run) accepted and not ended
        # (client, program) that this controller is to tell of
        self._awaited: dict[tuple[int, int], None] = {}
        if start:
            self.restart_controller()
            for host in range(self.known.hosts):
                self.return_host(host)

    def _knows(self, known: Cluster) -> None:
        """What a controller that is started, and hosts and clients that are new, know of the cluster."""
        self.known, self.hosts_of = known, _hosts_of(known)

    @property
    def now(self) -> int:
        return self.clock.now

    # --- time -------------------------------------------------------------------------------------------

    def run(self, limit: int = 600 * S) -> bool:
        """Go on until nothing is under way and no client waits. Return False if this takes too long."""
        end = self.now + limit
        while self.clock.pending or any(client.outstanding() for client in self.clients):
            at = self.clock.next_time()
            if at is None or at > end:
                return False
            self._step()
        return True

    def run_for(self, duration: int) -> None:
        self.run_until(self.now + duration)

    def run_until(self, end: int | Callable[[], bool], limit: int = 600 * S) -> bool:
        """Go on until this time, or until a condition is true."""
        if callable(end):
            last = self.now + limit
            while not end():
                at = self.clock.next_time()
                if at is None or at > last:
                    return False
                self._step()
            return True
        while (at := self.clock.next_time()) is not None and at <= end:
            self._step()
        self.clock.now = max(self.clock.now, end)
        return True

    def at_rest(self) -> None:
        """Check that nothing is left, now that everything has ended. Raise a Violation if something is."""
        if self.checks is not None:
            self.checks.at_rest(self.now)
        for hang in self.fabric.stuck():
            self._complain(f"hang: {hang}")

    def soon(self, delay: int, call: Callable[..., None], *args: Any) -> None:
        self.clock.after(delay, call, *args)

    def _step(self) -> None:
        self.clock.step()
        if self.checks is not None and self.unlooked:
            self.unlooked = False
            self.checks.look(self.now)

    # --- actors start and end ---------------------------------------------------------------------------

    def client(self, name: str, weight: int = 1, priority: int = 0, limits: Limits = LIMITS) -> Script:
        script = Script(self, name, weight, priority, limits)
        self.clients.append(script)
        self.actors[script.actor.name] = script.actor
        script.start()
        return script

    def restart_controller(self, state: tuple[int, ...] | None = None, late_hosts: bool = False) -> None:
        """Crash the controller and start it again at once. It knows only what hosts and clients tell it. `state`:
        another one than it has. If that is empty, its numbers still go on: checkers know things by number."""
        actor = self.controller
        if actor.alive:
            actor.die()
        for script in self.clients:
            closed = script.machine.state in ("closing", "closed")
            if self.observe and (closed or not script.actor.alive):
                self._from_controller(o.ClientLost(script.actor.number))  # this one will never learn of it
        self._forget_controller()
        observe = self._from_controller if self.observe else _ignore
        known = self.past if state is None else state
        if not known:
            self.forgotten = actor.starts
        suspended, had = self.suspended.get(known, ()), self.had.get(known, spans.EMPTY)
        self.past = (*known, actor.starts + 1)
        self.late_hosts = late_hosts or (self.late_hosts and state is None)
        machine = Controller(
            self.known, self.policy, self.config, incarnation=self.forgotten + len(known), starts=self.past,
            observe=observe, trace=Trace() if self.traced else None,
        )  # fmt: skip
        endpoint = for_controller(Recorder(machine, actor), actor.starts + 1, self.timing.lease)
        self.unlooked = True
        actor.boot(endpoint)
        self.suspended[self.past], self.had[self.past] = suspended, had
        if had:
            actor.feed(e.HostsKnown(had))
        if suspended:
            actor.feed(e.SuspensionsKnown(suspended))

    def _forget_controller(self) -> None:
        """Drop the references that the old controller held. Abandon its gangs: they may not have reached all hosts."""
        for (buffer, holder), number in self._holds.items():
            for _ in range(number):
                self._observe(o.BufferLetGo(buffer, holder))
        for seq in self._entered:
            self._observe(o.Abandoned(seq))
        for client, program in self._awaited:
            self._observe(o.ProgramTakenBack(client, program))
        self._holds.clear()
        self._entered.clear()
        self._awaited.clear()

    @property
    def machine(self) -> Any:
        """The controller's internal state, for tests that need it."""
        return self.controller.endpoint.machine.machine  # type: ignore[attr-defined]

    def crash_controller(self) -> None:
        self.controller.die()

    def crash_host(self, host: int) -> None:
        if self.hosts[host].alive:
            self.hosts[host].die()

    def return_host(self, host: int) -> None:
        """Start a host again, under another incarnation and with nothing on its devices."""
        actor = self.hosts[host]
        self.crash_host(host)
        if host >= self.known.hosts:
            return  # it has no number
        if self.late_hosts:
            self.soon(self.timing.restart, self._return, host, actor.starts)
            return
        self.fabric.boot(host)
        machine = Host(
            host, self.hosts_of, incarnation=actor.starts, beat=self.timing.beat,
            patience=self.timing.patience, lane=self.lane, pool=self.pool, chunk=self.chunk,
            start=self.past[-1] if self.past else 0,
        )  # fmt: skip
        endpoint = for_host(Recorder(machine, actor), host, actor.starts + 1, self.timing.lease)
        actor.boot(endpoint)

    def grow(self, cluster: Cluster, come: int = 0) -> None:
        """An operator lets the cluster grow to this one. Its new hosts begin one after another, with so much between
        them; -1: they do not."""
        self._coming = come
        self.controller.feed(e.GrowCluster(cluster))

    def grown(self, cluster: Cluster) -> None:
        """The controller has let it."""
        new = range(self.known.hosts, cluster.hosts)
        self._knows(cluster)
        for at, host in enumerate(new if self._coming >= 0 else ()):
            self.soon(at * self._coming, self._return, host, self.hosts[host].starts)

    def leave_host(self, host: int, reason: str = "a planned stop", patience: int = 0) -> None:
        self.hosts[host].leaving = True
        self.hosts[host].feed(e.LeaveRequested(reason, patience))

    def stopped(self, actor: HostActor, start: int, for_good: bool) -> None:
        """End a host that was dismissed. It comes back with a new incarnation, unless it was to leave."""
        if actor.starts == start and actor.alive:
            self.crash_host(actor.host)
            if not actor.leaving and not (for_good and self.drained_stay_away):
                self.soon(self.timing.restart, self._return, actor.host, start)
            actor.leaving = False

    def _return(self, host: int, start: int) -> None:
        if self.hosts[host].starts == start and not self.hosts[host].alive:
            self.return_host(host)

    def crash_client(self, name: str) -> None:
        actor = self.actors[f"client {name}"]
        actor.die()
        self.client_left(getattr(actor, "number", 0))

    def client_left(self, number: int) -> None:
        """Report that a client is lost if the controller does not know it, because it was started just now."""
        if self.observe and number not in self.machine.state.sessions:
            self._from_controller(o.ClientLost(number))

    def slow(self, host: int, factor: float, lag: int = 0) -> None:
        """Make a host slow: its gangs take `factor` times as long, and it handles messages `lag` nanoseconds later."""
        self.fabric.slow[host] = factor
        self.hosts[host].lag = lag

    def stand_still(self, name: str, length: int) -> None:
        """Stop a process, and let it go on after this time."""
        actor = self.actors[name]
        if actor.alive and not actor.still:
            actor.stand_still()
            self.soon(length, self._go_on, name, actor.starts)

    def _go_on(self, name: str, start: int) -> None:
        actor = self.actors[name]
        if actor.starts == start:
            actor.go_on(timer_first=self.random.random() < 0.5)

    def lose_device(self, device: int) -> None:
        host = self.cluster.host_of(device)
        self.fabric.lose(device)
        self.hosts[host].feed(
            e.DeviceLost(device, m.Blame("device-lost", f"device {device} fell off the bus", host=host))
        )

    def break_gang(self, host: int, name: str, when: str = "run") -> None:
        """Let the next gang of this name fail on this host: at its "launch", or during its "run"."""
        self.fabric.failures[host, name] = when

    def break_world(self, island: int) -> None:
        """Let collectives of several hosts fail, though all hosts run, until the island forms its next epoch."""
        mine = [host for host in self.hosts if self.cluster.island_of_host(host.host).index == island]
        self.fabric.broken[island] = max(host.epoch for host in mine)

    def break_code(self, name: str, why: str = "no such operation") -> None:
        self.compiler.bad[name] = why

    # --- network ----------------------------------------------------------------------------------------

    def cut(self, one: str, other: str, silent: bool = False) -> None:
        self.network.cut(one, other, silent)

    def mend(self, one: str, other: str) -> None:
        self.network.mend(one, other)
        self.redial()

    def mend_all(self) -> None:
        for one, other in self.network.severed():
            self.mend(one, other)

    def dial(self, actor: Actor, other: str) -> None:
        self.wanted[actor.name, other] = None
        self._try(actor.name, other)

    def _try(self, one: str, other: str) -> None:
        """Dial. A client gives the number that it has now."""
        actor = self.actors[one]
        if actor.still:
            return
        if isinstance(actor, ClientActor) and not self.network.is_up(one, other):
            self.shown[one, other] = actor.script.machine.number
        self.network.dial(one, other)

    def found_again(self, name: str) -> None:
        """Let an actor be reached from now on. Actors that dial it succeed at their next attempt."""
        if not self.timing.reach:
            self.redial()
            return
        for one, other in [pair for pair in self.wanted if name in pair]:
            delay = 0 if one == name else self.random.randrange(self.timing.reach)
            self.soon(delay, self._dial_again, one, other)

    def hang_up(self, actor: Actor, other: str, reason: str) -> None:
        self.wanted.pop((actor.name, other), None)
        self.network.hang_up(actor.name, other)

    def redial(self) -> None:
        for one, other in list(self.wanted):
            self._try(one, other)

    def _latency(self, one: str, other: str) -> int:
        jitter = self.timing.jitter
        return self.timing.latency + (self.random.randrange(jitter + 1) if jitter else 0)

    def _up(self, actor: str, other: str) -> None:
        if actor == "controller" and other.startswith("client "):
            script = next(each for each in self.clients if each.actor.name == other)
            if (account := self.accounts.get(other.removeprefix("client "))) is not None:
                peer = self.cluster.hosts + script.actor.index
                self.controller.feed(e.PeerIdentified(peer, account, script.actor.number))
        self.actors[actor].connection_up(other)

    def _down(self, actor: str, other: str) -> None:
        self.actors[actor].connection_down(other)
        if (actor, other) in self.wanted:
            self.soon(self.timing.redial, self._dial_again, actor, other)

    def _dial_again(self, actor: str, other: str) -> None:
        if (actor, other) in self.wanted:
            self._try(actor, other)

    def _arrive(self, actor: str, other: str, packet: Any) -> None:
        self.actors[actor].packet(other, packet)

    def post(self, said: msgspec.Struct) -> msgspec.Struct:
        """Encode and decode a message. A message to many peers is encoded and decoded once."""
        if not self.on_wire:
            return said
        if self._posted[0] is not said:
            self._posted = (said, wire.decode(wire.encode(said)))
        return self._posted[1]  # type: ignore[no-any-return]

    # --- names ------------------------------------------------------------------------------------------

    def number(self, name: str, seen_by: Actor) -> int:
        """Return the number by which one actor knows another."""
        actor = self.actors[name]
        if isinstance(actor, HostActor):
            return actor.host
        if isinstance(actor, ClientActor):
            shown = self.shown.get((name, seen_by.name), actor.number)
            return self.cluster.hosts + actor.index if seen_by is self.controller else peers.client(shown)
        return peers.CONTROLLER

    def name_of(self, peer: int, seen_by: Actor) -> str:
        if peer == peers.CONTROLLER:
            return "controller"
        if seen_by is self.controller and peer >= self.cluster.hosts:
            return self.clients[peer - self.cluster.hosts].actor.name
        return f"host {peer}" if peer >= 0 else self._numbers.get(-1 - peer, f"client #{-1 - peer}")

    def client_numbered(self, peer: int, number: int) -> None:
        """The controller has given a client a number. Hosts use it when the client knows it and next connects."""
        actor = self.clients[peer - self.cluster.hosts].actor
        before, actor.number = actor.number, number
        self._numbers[number] = actor.name
        for step in self._early_views.pop(number, ()):
            self._viewed(self.clients[peer - self.cluster.hosts], step)
        if before and before != number:
            if self.observe:
                # The client had not learnt its old number when the old controller ended.
                self._from_controller(o.ClientLost(before))

    # --- commands of machines ---------------------------------------------------------------------------

    def ordered(self, said: m.Ordered) -> None:
        """The controller sends this message: its plans and runs are known from now on, and its gangs have entered."""
        for plan in said.plans:
            self.plans[said.island, plan.id] = plan
        for run in said.runs:
            self.runs[run.run] = run.plan
        for step in said.steps:
            if isinstance(step, m.ViewStep):
                owner = [client for client in self.clients if client.actor.number == step.client]
                if owner:
                    self._viewed(owner[0], step)
                else:  # the controller has recovered, and numbers its clients later in this turn
                    self._early_views.setdefault(step.client, []).append(step)
            if isinstance(step, m.GangStep) and step.seq > self.last_seq:
                self.last_seq = step.seq
                plan = self.plans[said.island, self.runs[step.run]]
                gang = plan.steps[step.step]
                assert isinstance(gang, Gang)
                self.gangs.append((said.island, plan.program, gang.name))

    def _viewed(self, owner: Script, step: m.ViewStep) -> None:
        if step.buffer in self.views:  # it was folded
            return
        digest, shards = owner.views[step.name]
        on = contents.devices(step.layout.place)
        self.views[step.buffer] = digest, dict(zip(on, shards, strict=True))

    def turned_away(self, peer: int) -> None:
        """The controller does not know the client's past, and its session is over."""
        if self.observe:
            self._from_controller(o.ClientLost(self.clients[peer - self.cluster.hosts].actor.number))

    def ended(self, peer: int, note: m.Ended) -> None:
        """The controller has ended a run. A restarted controller also ends runs that it does not know."""
        key = (self.clients[peer - self.cluster.hosts].actor.number, note.run)
        if key in self._open_runs and self.observe:
            del self._open_runs[key]
            self.observe(o.RunEndSeen(*key, note.blame))

    def plan_of_run(self, actor: HostActor, run: int) -> Plan:
        return self.plans[self.cluster.island_of_host(actor.host).index, self.runs[run]]

    def _tell_host(self, host: int, event: e.Event) -> None:
        if host in self.fabric.hosts:
            self.hosts[host].feed(event)

    # --- observation ------------------------------------------------------------------------------------

    def _observe(self, seen: o.Observation) -> None:
        assert self.checks is not None
        self.checks.saw(seen, self.now)

    def _from_controller(self, seen: o.Observation) -> None:
        if isinstance(seen, o.RunSubmitted):
            self._open_runs[seen.client, seen.run] = None
        elif isinstance(seen, o.RunEndSeen):
            self._open_runs.pop((seen.client, seen.run), None)
        elif isinstance(seen, o.BufferHeld | o.BufferLetGo):
            key = (seen.buffer, seen.holder)
            self._holds[key] = self._holds.get(key, 0) + (1 if isinstance(seen, o.BufferHeld) else -1)
        elif isinstance(seen, o.ProgramAwaited):
            self._awaited[seen.client, seen.program] = None
        elif isinstance(seen, o.ProgramToldSeen | o.ProgramTakenBack):
            self._awaited.pop((seen.client, seen.program), None)
        elif isinstance(seen, o.Entered):
            self._entered[seen.seq] = None
        elif isinstance(seen, o.ClientLost):
            self._open_runs = {key: None for key in self._open_runs if key[0] != seen.client}
            self._awaited = {key: None for key in self._awaited if key[0] != seen.client}
        self._observe(seen)

    def _complain(self, what: str) -> None:
        self.faults.append(f"{text.when(self.now)}  {what}")

    def write(self, actor: Actor, event: Any, effects: Sequence[e.Command]) -> None:
        line = text.entry(self.now, actor.name, actor.actor, event, effects)
        if not line:
            return
        assert self.diary is not None
        self.diary.append(line)
        self._hash.update(line.encode())

    def digest(self) -> str:
        """Return a hash of the diary and the random state: equal for two runs only if their randomness was."""
        again = self._hash.copy()
        again.update(str(self.random.getstate()[1][:3]).encode())
        return again.hexdigest()


def _hosts_of(cluster: Cluster) -> ClusterHosts:
    devices = {host: cluster.devices_of(host) for host in range(cluster.hosts)}
    return ClusterHosts(cluster.host_of, devices.__getitem__)


def _ignore(seen: o.Observation) -> None:
    pass
