"""The controller machine: one event in, all that follows from it decided, one message an island and a client out.

`handle(event, now)` finds the sender, lets the module concerned act, and then works off what that made possible
(`_work`) until nothing more can move; what was gathered to be said leaves at the end of the turn.
A peer that breaks the protocol is closed, with the reason; nothing that a peer sends ever raises here.

The controller is its `Modules`: all that decide something, made from the ground up. One that must tell another above it
enters news in the turn's agenda (`State`); `_work` hands them on.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from .. import protocol as p
from ..fanout import TreeShape, tree
from ..model import Atoms, Cluster, Illegal, Spans, spans, why_not_grown
from ..record import OrderHash, Trace
from ..schedule import Scheduler, Window
from ..schedule.policy import Fifo, Policy
from .config import Config
from .modules import Modules
from .observations import ClusterGrown, Observation, ReportsApplied
from .records import InFlight
from .snapshot import Snapshot, snapshot_of
from .state import IslandState, State

DEFAULT = Config()
OF_HOSTS = (p.Join, p.Seated, p.Leave, p.Reports)
CHANGES = (p.Join, p.Open, p.Seated, p.Leave)  # they may change who there is
LIVE = attrgetter("scheduler.live")  # of an island: not empty if a gang may enter


class Controller(Modules):
    def __init__(
        self,
        cluster: Cluster,
        policy: Callable[[], Policy] = Fifo,
        config: Config = DEFAULT,
        *,
        incarnation: int = 0,
        starts: tuple[int, ...] = (),
        observe: Callable[[Observation], None] | None = None,
        trace: Trace | None = None,
        shape: TreeShape = tree,
    ) -> None:
        """`policy` makes one for each island. `incarnation`: higher at each start of the process. `starts`: random
        numbers, one for each start with the same state so far, this one's last; see `Join.start`. `shape`: makes the
        tree through which an island's hosts are told, and report. `observe` is told what happens inside a turn, in
        order: checkers (`tests/invariants`) need that, and neither commands nor the state after a turn show it (a
        buffer may be held and let go in one turn). Nothing is worded if it is not given."""
        self.config, self.incarnation, self.starts = config, incarnation, starts
        window = Window(config.window, config.window_span, config.window_most)
        atoms = Atoms()
        make = partial(
            Scheduler, window=window, max_passes=config.max_passes, early=config.early, max_reserved=config.max_reserved
        )
        self._schedulers: Callable[[int], list[Scheduler]] = lambda count: [make(atoms, policy()) for _ in range(count)]
        state = State(cluster, config, incarnation, observe, self._schedulers(len(cluster.islands)), starts)
        super().__init__(state, atoms, OrderHash(), trace, shape)
        self.next_wakeup = self.watch.next_wakeup
        self.reshape, self.standing = self.membership.reshape, self.membership.standing  # for a simulator
        self._agenda = self._make_agenda()
        self._begun = False
        self._route()

    def _route(self) -> None:
        """Say who takes which event, message and report."""
        self._events: dict[type, Callable[[Any, int], None]] = {
            p.MessageReceived: self._came,
            p.Connected: lambda event, now: None,
            p.Disconnected: self._disconnected,
            p.Malformed: lambda event, now: self._violation(
                event.peer, f"it sent what is no message: {event.reason}", now
            ),
            p.Wakeup: lambda event, now: self.watch.wakeup(now),
            p.HostRefused: self._host_refused,
            p.HostAccepted: self._host_taken,
            p.OperateSlices: self._operate_slices,
            p.OperateHost: self._operate_host,
            p.GrowCluster: self._grow,
            p.PeerIdentified: self._identified,
            p.UsageKnown: self.accounts.restore,
            p.SuspensionsKnown: self.suspensions.known,
            p.HostsKnown: self.recovery.hosts_known,
            p.WorldUp: lambda event, now: self.membership.world_up(event.island, event.epoch, now),
            p.WorldFailed: lambda event, now: self.membership.world_failed(
                event.island, event.epoch, str(event.blame), now
            ),
        }
        self._calls = self.clients.calls()
        # What a peer may say: returns what is wrong with it.
        self._takes: dict[type, Callable[[int, Any, int], str | None]] = {
            p.Join: self._join,
            p.Open: self._open,
            p.Reports: self._reported,
            p.Seated: self._seated,
            p.Leave: self._leaves,
            **dict.fromkeys(self._calls, self._from_client),
            p.Calls: self._from_client,
        }
        self._reports: dict[type, Callable[[IslandState, Any, int], None]] = {
            p.Done: self.completion.done,
            p.Enqueued: self.completion.enqueued,
            p.PieceCounts: self.completion.counted,
            p.Compiled: lambda island, report, now: self.compilation.reported(report),
            p.Arrived: lambda island, report, now: self.in_flight.arrived(report),
            p.Heartbeat: lambda island, report, now: island.stream.seen(report.hosts, report.number),
            p.HostFault: self.failures.trouble,
            p.Lost: lambda island, report, now: self.membership.path_lost(report.host, now),
        }

    # --- the machine ---------------------------------------------------------------------------------------------

    def handle(self, event: p.Event, now: int) -> list[p.Command]:
        act = self._events.get(type(event))
        if act is None:
            raise Illegal(f"a controller is not told of {type(event).__name__}")
        self.state.now = now
        if type(event) is not p.MessageReceived or type(event.message) in CHANGES:
            self.outbox.hurry()
        if not self._begun:
            self._begun = True
            if self.recovery.under_way:
                self.recovery.begin(now)
        act(event, now)
        self._work(now)
        if self.ledger.touched and self.tracing is not None:
            self.tracing.levels()
        return self.outbox.take()

    def _make_agenda(self) -> tuple[tuple[deque[Any], Callable[[Any, int], None]], ...]:
        """The news of a turn, the most urgent first, and who is told of each."""
        state, outcomes = self.state, self.outcomes
        return (
            (state.peer_failures, self.failures.peer_failed),
            (state.overdue, self.failures.overdue),
            (state.lost_hosts, lambda lost, now: self.membership.lost(lost[0], lost[1], lost[2], now)),
            (state.broken, self.membership.broken),
            (state.slices_down, self.failures.slices_down),
            (state.failing, lambda failing, now: outcomes.fail(failing[0], failing[1], now)),
            (state.explained, self.completion.explained),
            (state.stay_away, lambda away, now: outcomes.stay_away(away[0], away[1])),
            (state.admitted, self.dispatch.start),
            (state.views, lambda view, now: self.views.advance(view)),
            (state.settling, lambda each, now: self.completion.argument_settled(each[0], each[1], now)),
            (state.plan_ready, self._code_ready),
            (state.kept, lambda kept, now: self._came(p.MessageReceived(*kept), now)),
        )

    def _code_ready(self, plan: int, now: int) -> None:
        self.runs.code_ready(plan, now)
        self.dispatch.code_ready(plan, now)
        self.compilation.answered(plan)

    def _work(self, now: int) -> None:
        """Until nothing more can move. Each of these may make work for the others."""
        state, admission, ledger, slice_calls = self.state, self.admission, self.ledger, self.slice_calls
        relocation = self.relocation
        while True:
            for news, act in self._agenda:
                if news:
                    act(news.popleft(), now)
                    break
            else:
                if state.wake:
                    wake, state.wake = state.wake, []
                    for run in wake:
                        self.runs.advance(run, now)
                elif not (
                    (
                        state.line
                        and (state.fresh or admission.eased != ledger.eased)
                        and admission.work(now, self.dispatch.start)
                    )
                    or (any(map(LIVE, state.islands)) and self.dispatch.pump(now))
                    or (state.changing and self.membership.settle(now))
                    or ((relocation.under_way or relocation.resting or slice_calls.asked) and slice_calls.work(now))
                    or (self.elastic.all and self.elastic.work(now))
                    or (self.placements.placement is not None and self.placements.work(now))
                    or ((self.resources.queue or self.preemption.away) and self.preemption.work(now))
                    or (self.drains.under_way and self.drains.work(now))
                ):
                    break
        if self.compilation.stale or self.lowerings.dropped:
            self.compilation.forget_stale()
        if self.relocation.under_way or self.relocation.resting or self.suspensions.told:
            self.suspensions.tell()
        for island in state.islands:
            if island.scheduler.news:
                self.policy_news.look(island, now)

    # --- hosts that could not be hosts, or can be ----------------------------------------------------------------

    def _host_refused(self, event: p.HostRefused, now: int) -> None:
        if self.resources.refusals.refused(event.name, event.island, event.reason, now):
            self.runs.renew_reasons()

    def _host_taken(self, event: p.HostAccepted, now: int) -> None:
        if self.resources.refusals.taken(event.name):
            self.runs.renew_reasons()

    # --- what an operator asks for -------------------------------------------------------------------------------

    def _operate_slices(self, event: p.OperateSlices, now: int) -> None:
        self.outbox.effect(p.OperatorAnswer(self.slice_calls.operate(event, now)))

    def _operate_host(self, event: p.OperateHost, now: int) -> None:
        if not 0 <= event.host < self.state.cluster.hosts:
            wrong = f"there is no host {event.host}"
        elif event.action == "drain":
            wrong = self.drains.drain(event.host, event.patience, now)
        else:
            wrong = self.drains.cordon(event.host, event.action == "cordon", now)
        self.outbox.effect(p.OperatorAnswer(wrong))

    def _grow(self, event: p.GrowCluster, now: int) -> None:
        """New hosts may join from now on. What there is goes on as it is, and all are told of the new ones, before
        anything names them."""
        wrong = why_not_grown(self.state.cluster, event.cluster)
        if not wrong:
            new = len(event.cluster.islands) - len(self.state.islands)
            self.state.grow(event.cluster, self._schedulers(new))
            self.state.observe(ClusterGrown(event.cluster))
            self.resources.grow(event.cluster)
            for module in (self.in_flight, self.policy_news, self.membership, self.clients):
                module.grown()
            self.runs.renew_reasons()
        self.outbox.effect(p.OperatorAnswer(wrong))

    # --- peers ---------------------------------------------------------------------------------------------------

    def _came(self, event: p.MessageReceived, now: int) -> None:
        peer, message = event.peer, event.message
        if self.recovery.under_way and not isinstance(message, OF_HOSTS):
            if not self.clients.stranger(peer, message):
                self.recovery.keep(peer, message)
            return
        take = self._takes.get(type(message))
        if take is None:
            wrong: str | None = f"a controller takes no {type(message).__name__}"
        else:
            wrong = take(peer, message, now)
        if wrong:
            self._violation(peer, wrong, now, of_host=isinstance(message, OF_HOSTS))

    def _join(self, peer: int, message: p.Join, now: int) -> str | None:
        if peer in self.state.by_peer:
            return "it is a client and joined as a host"
        why, name = self.membership.stranger(peer, message), f"host {message.host}"
        if not why:
            self._host_taken(p.HostAccepted(name), now)
            return self.membership.join(peer, message, now)
        island = self.state.island_of_host(message.host).island.index
        self._host_refused(p.HostRefused(island, name, why), now)
        return None

    def _open(self, peer: int, message: p.Open, now: int) -> str | None:
        if peer in self.state.host_peers:
            return "it is a host"
        return None if self.clients.stranger(peer, message) else self.clients.opened(peer, message, now)

    def _host_at(self, peer: int, message: p.Reports | p.Seated | p.Leave) -> tuple[int, str | None]:
        """The host that has this connection; -1 if none, and what is wrong with that."""
        host = self.state.host_peers.get(peer, -1)
        if host < 0 and peer not in self.state.dismissed and peer not in self.state.strangers:
            return host, f"{type(message).__name__} before Join"
        return host, None

    def _leaves(self, peer: int, message: p.Leave, now: int) -> str | None:
        host, wrong = self._host_at(peer, message)
        if host >= 0:
            self.drains.leaves(host, message.reason, message.patience, now)
        return wrong

    def _seated(self, peer: int, message: p.Seated, now: int) -> str | None:
        host, wrong = self._host_at(peer, message)
        if host >= 0 and message.host != host:
            return f"host {host} speaks for host {message.host}"
        if host >= 0:
            self.membership.seated(host, message.epoch, message.tree, message.last, now)
        return wrong

    def _reported(self, peer: int, message: p.Reports, now: int) -> str | None:
        state = self.state
        host = state.host_peers.get(peer, -1)
        if host < 0:
            return self._host_at(peer, message)[1]
        if not 0 <= message.island < len(state.islands):
            return None
        island = state.islands[message.island]
        if message.tree != island.tree_number or message.epoch != island.epoch:
            return None  # by a path that has been fenced
        below = island.roots.get(peer)
        if below is None:
            if state.island_of_host(host) is not island:
                return None
            if not island.stream.shape.is_root(host):
                return f"host {host} reports, and is no root of the tree"
            below = island.roots[peer] = island.stream.shape.below(host)
        for report in message.reports:
            wrong = _lie(report, island, below, state.in_flight)
            if wrong:
                return f"host {host} {wrong}"
        if state.watched:
            state.observe(ReportsApplied(message.island, message.epoch))
        for report in message.reports:
            self._reports[type(report)](island, report, now)
        return None

    def _from_client(self, peer: int, message: p.Calls | p.Call, now: int) -> str | None:
        session = self.state.by_peer.get(peer)
        if session is None:
            return f"its first message is {type(message).__name__}, not Open"
        take = self._calls.get(type(message))
        if take is not None:
            return take(session, message, now)
        assert isinstance(message, p.Calls)
        for call in message.calls:
            wrong = self._calls[type(call)](session, call, now)
            if wrong:
                return wrong
            if session.gone:
                break
        return None

    def _identified(self, event: p.PeerIdentified, now: int) -> None:
        if wrong := self.accounts.identified(event):
            self._violation(event.peer, wrong, now)

    def _disconnected(self, event: p.Disconnected, now: int) -> None:
        state, peer = self.state, event.peer
        if not event.anew:
            self.accounts.forget(peer)
        state.dismissed.pop(peer, None)
        state.strangers.pop(peer, None)
        self.recovery.forget(peer)
        session = state.by_peer.get(peer)
        host = state.host_peers.get(peer)
        text = event.reason or "its connection was lost"
        if session is not None:
            self.clients.given_up(session, text, event.anew, now)
        elif host is not None:
            self.membership.lost(state.island_of_host(host), host, text, now)

    def _violation(self, peer: int, reason: str, now: int, of_host: bool = True) -> None:
        """The peer broke the protocol, or there is no room for it: it is told, what it had is dealt with as if it had
        died, and it is closed. `of_host`: what it said is what hosts say, or no message at all."""
        state = self.state
        self.recovery.forget(peer)
        self.accounts.forget(peer)
        host = state.host_peers.get(peer)
        if peer in state.by_peer:
            session = state.by_peer[peer]
            self.outbox.note(peer, p.ConnectionClosed(reason))
            blame = p.Blame("client-lost", f"client {session.name!r} was closed: {reason}")
            self.clients.gone(session, blame, now)
        elif host is not None:
            self.membership.lost(state.island_of_host(host), host, reason, now)
        elif of_host:
            self.outbox.effect(p.Send((peer,), p.Dismiss(-1, reason)))
        else:
            self.outbox.note(peer, p.ConnectionClosed(reason))
        self.outbox.close(p.Close(peer, reason))

    # --- to look at ----------------------------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """As it is now: it may have grown."""
        return self.state.cluster

    def snapshot(self) -> Snapshot:
        """All that may be shown, as of now."""
        return snapshot_of(self, self.left())

    def left(self) -> dict[str, int]:
        """What is not over: zero of each when nothing is under way and no client is there."""
        state = self.state
        return {
            "clients": len(state.sessions),
            "runs": len(state.runs),
            "operations": len(state.in_flight),
            "buffers": len(self.buffers),
            "views": len(self.views),
        }

    def members(self, island: int) -> Spans:
        return self.state.islands[island].members

    def client_at(self, peer: int) -> tuple[int, str] | None:
        """Number and name of the client that has this connection."""
        session = self.state.by_peer.get(peer)
        return (session.number, session.name) if session is not None else None

    def client_name(self, number: int) -> str | None:
        session = self.state.sessions.get(number)
        return session.name if session is not None else None

    def call_of(self, run: int) -> tuple[str, int] | None:
        """Client, and its number for a run that is not over."""
        found = self.state.runs.get(run)
        return (found.session.name, found.call.run) if found is not None else None

    def call_at(self, seq: int) -> tuple[str, int] | None:
        """As `call_of`, by something of the run that is in an island's order."""
        entry = self.state.in_flight.get(seq)
        return self.call_of(entry.run.id) if entry is not None and entry.run is not None else None

    def audit(self) -> Iterable[tuple[str, int, int]]:
        """(what, as it is kept, counted anew)."""
        entries: dict[int, int] = {}
        for entry in self.state.in_flight.values():
            if entry.run is not None:
                entries[entry.run.id] = entries.get(entry.run.id, 0) + 1
        held: dict[int, int] = {}
        for run in self.state.runs.values():
            yield f"steps of run {run.id} in an order", run.open_steps, entries.get(run.id, 0)
            mine = [record.id for record in self.buffers.held(run.held, run.width)]
            for buffer in (*mine, *run.own.values()):
                held[buffer] = held.get(buffer, 0) + 1
        for record in self.buffers:
            copy = getattr(record.owner, "copies", None) is not None
            others = record.aliases + record.transfers + record.views + copy  # holds that are no run's
            yield f"references of buffer {record.id}", record.holds, held.get(record.id, 0) + others
        yield from self.spill.audit()
        yield from self.accounts.audit()
        yield from self.resources.audit()
        yield from self.relocation.audit()
        yield from self.policy_news.audit()


def _lie(report: Any, island: IslandState, below: Spans, in_flight: dict[int, InFlight]) -> str:
    """What is wrong with a report of a root with these hosts below it: it is of other hosts, or another island."""
    kind = type(report)
    if kind is p.Lost or kind is p.HostFault:
        if not spans.contains(below, report.host):
            return f"reports of host {report.host}, which is not below it"
        if isinstance(report, p.HostFault) and report.device >= 0:
            if not spans.contains(island.island.devices_of(report.host), report.device):
                return f"reports of device {report.device}, which is not one of host {report.host}"
    elif report.hosts != below:
        hosts = report.hosts
        if len(hosts) == len(below) == 1:  # as where one of them answers a get
            among = below[0][0] <= hosts[0][0] < hosts[0][1] <= below[0][1]
        else:
            among = hosts and spans.is_normal(hosts) and spans.within(hosts, below)
        if not among:
            return f"reports for hosts {spans.text(hosts)}, not all of which are below it"
    if kind is p.Done and report.sizes and min(report.sizes) < 0:
        return f"reports sizes {report.sizes}"
    seq: int = report.transfer if kind is p.PieceCounts else getattr(report, "seq", -1)
    entry = in_flight.get(seq)
    if entry is not None and entry.island != island.island.index:
        return "reports on what is another island's"
    return ""
