"""The controller machine: one event in, all that follows from it decided, one message an island and a client out.

`handle(event, now)` finds the sender, lets the module concerned act, and then works off what that made possible
(`_work`) until nothing more can move; what was gathered to be said leaves at the end of the turn.
A peer that breaks the protocol is closed, with the reason; nothing that a peer sends ever raises here.

The controller's modules are made, and handed each other by name, in `_make` and `_introduce`: nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from ..compile import Lowerings
from ..fanout import TreeShape, tree
from ..invariants import Heeded, Observation
from ..memory import Buffers, HostMemory, Ledger, Spill
from ..model import Atoms, Cluster, Illegal, Spans
from ..protocol import (
    Arrived,
    Blame,
    Call,
    Calls,
    Close,
    Command,
    Compiled,
    Connected,
    ConnectionClosed,
    Disconnected,
    Dismiss,
    Done,
    Enqueued,
    Event,
    Heartbeat,
    HostAccepted,
    HostFault,
    HostRefused,
    Join,
    Leave,
    Lost,
    Malformed,
    MessageReceived,
    Open,
    PieceCounts,
    Reports,
    Seated,
    Send,
    Wakeup,
    WorldFailed,
    WorldUp,
)
from ..record import OrderHash, Trace
from ..schedule import Scheduler, Window
from ..schedule.policy import Fifo, Policy
from ..slices import Resources
from .admission import Admission
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .clients import Clients
from .compilation import Compilation
from .completion import Completion
from .config import Config
from .contents import Contents
from .dispatch import Dispatch
from .failures import Failures
from .in_flight import InFlightTable
from .membership import Membership
from .outbox import TurnOutbox
from .policy_news import PolicyNews
from .recovery import Recovery
from .registrations import Registrations
from .report_checks import ReportChecks
from .runs import Runs
from .snapshot import Snapshot, snapshot_of
from .stalls import Stalls
from .state import IDS, IslandState, State
from .trace_rows import Tracing
from .views import Views
from .watch import Watchdog

DEFAULT = Config()
OF_HOSTS = (Join, Seated, Leave, Reports)
CHANGES = (Join, Open, Seated, Leave)  # they may change who there is
LIVE = attrgetter("scheduler.live")  # of an island: not empty if a gang may enter


class Controller:
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
        order: the checkers of `invariants` need that, and neither commands nor the state after a turn show it (a
        buffer may be held and let go in one turn). Nothing is worded if it is not given."""
        self.cluster, self.config, self.incarnation, self.starts = cluster, config, incarnation, starts
        window = Window(config.window, config.window_span, config.window_most)
        self.atoms = Atoms()
        make = partial(
            Scheduler, window=window, max_passes=config.max_passes, early=config.early, max_reserved=config.max_reserved
        )  # fmt: skip
        schedulers = [make(self.atoms, policy()) for _ in cluster.islands]
        self.state = State(cluster, config, incarnation, observe, schedulers, starts)
        self._checks, self.order = ReportChecks(self.state), OrderHash()
        self._make(trace, shape)
        self.policy_news = PolicyNews(self.state, outbox=self.outbox, tracing=self.tracing, watch=self.watch)
        self._begun = False
        self._events: dict[type, Callable[[Any, int], None]] = {
            MessageReceived: self._came,
            Connected: lambda event, now: None,
            Disconnected: self._disconnected,
            Malformed: lambda event, now: self._violation(
                event.peer, f"it sent what is no message: {event.reason}", now
            ),
            Wakeup: lambda event, now: self.watch.wakeup(now),
            HostRefused: self._host_refused,
            HostAccepted: self._host_taken,
            WorldUp: lambda event, now: self.membership.world_up(event.island, event.epoch, now),
            WorldFailed: lambda event, now: self.membership.world_failed(
                event.island, event.epoch, str(event.blame), now
            ),
        }
        self._calls = self.clients.calls
        # What a peer may say: returns what is wrong with it.
        self._takes: dict[type, Callable[[int, Any, int], str | None]] = {
            Join: self._join,
            Open: self._open,
            Reports: self._reported,
            Seated: self._seated,
            Leave: self._leaves,
            **dict.fromkeys(self._calls, self._from_client),
            Calls: self._from_client,
        }
        self._reports: dict[type, Callable[[IslandState, Any, int], None]] = {
            Done: self.completion.done,
            Enqueued: self.completion.enqueued,
            PieceCounts: self.completion.counted,
            Compiled: lambda island, report, now: self.compilation.reported(report),
            Arrived: lambda island, report, now: self.in_flight.arrived(report),
            Heartbeat: lambda island, report, now: island.stream.seen(report.hosts, report.number),
            HostFault: self.failures.trouble,
            Lost: lambda island, report, now: self.membership.path_lost(report.host, now),
        }

    def _make(self, trace: Trace | None, shape: TreeShape) -> None:
        """All modules. Those that are needed by one made before them are handed to it at the end."""
        state, atoms, config = self.state, self.atoms, self.state.config
        self.buffers = buffers = Buffers()
        self.ledger = ledger = Ledger(atoms, state.device_memory)
        self.spill = spill = Spill(
            atoms, ledger, buffers, HostMemory(state.hosts_of_devices, state.host_memory)
        )
        self.resources = resources = Resources(state.cluster)
        self.lowerings = lowerings = Lowerings(first=state.incarnation * IDS)
        self.watch = watch = Watchdog(config.bounds)
        self.outbox = outbox = TurnOutbox(state)
        self.tracing = tracing = (
            Tracing(state, trace, atoms=atoms, ledger=ledger) if trace is not None else None
        )
        self.compilation = compilation = Compilation(state, atoms=atoms, lowerings=lowerings, outbox=outbox)
        self.stalls = stalls = Stalls(state, compilation=compilation, outbox=outbox, watch=watch)
        self.in_flight = in_flight = InFlightTable(state, outbox=outbox, watch=watch, stalls=stalls)
        self.names = names = BufferNames(buffers)
        self.views = views = Views(
            state, atoms=atoms, buffers=buffers, names=names, outbox=outbox, resources=resources
        )
        self.refs = refs = BufferRefs(
            state, buffers=buffers, ledger=ledger, names=names, outbox=outbox, spill=spill, views=views
        )
        self.admission = admission = Admission(
            state, atoms=atoms, buffers=buffers, in_flight=in_flight, ledger=ledger, outbox=outbox, refs=refs,
            spill=spill, stalls=stalls, tracing=tracing, watch=watch,
        )  # fmt: skip
        self.dispatch = dispatch = Dispatch(
            state, buffers=buffers, compilation=compilation, in_flight=in_flight, ledger=ledger,
            order=self.order, outbox=outbox, refs=refs, tracing=tracing, admission=admission,
        )  # fmt: skip
        self.completion = completion = Completion(
            state, admission=admission, dispatch=dispatch, in_flight=in_flight, ledger=ledger, outbox=outbox,
            refs=refs, tracing=tracing,
        )  # fmt: skip
        self.registrations = registrations = Registrations(
            state, compilation=compilation, lowerings=lowerings, outbox=outbox, resources=resources,
            stalls=stalls, watch=watch,
        )  # fmt: skip
        self.runs = runs = Runs(
            state, admission=admission, buffers=buffers, compilation=compilation, completion=completion,
            dispatch=dispatch, ledger=ledger, lowerings=lowerings, names=names, outbox=outbox, refs=refs,
            registrations=registrations, resources=resources, stalls=stalls, tracing=tracing, watch=watch,
        )  # fmt: skip
        self.contents = contents = Contents(
            state, admission=admission, atoms=atoms, buffers=buffers, in_flight=in_flight, ledger=ledger,
            names=names, outbox=outbox, refs=refs, resources=resources, runs=runs, tracing=tracing,
            views=views, watch=watch,
        )  # fmt: skip
        self.failures = failures = Failures(
            state, admission=admission, compilation=compilation, completion=completion, dispatch=dispatch,
            in_flight=in_flight, lowerings=lowerings, outbox=outbox, refs=refs, registrations=registrations,
            resources=resources, runs=runs, watch=watch,
        )  # fmt: skip
        self.membership = Membership(
            state, admission=admission, failures=failures, in_flight=in_flight, outbox=outbox,
            resources=resources, shape=shape, watch=watch,
        )  # fmt: skip
        self.recovery = recovery = Recovery(
            state, atoms=atoms, buffers=buffers, ledger=ledger, outbox=outbox, refs=refs, spill=spill, watch=watch
        )  # fmt: skip
        self.clients = Clients(
            state, buffers=buffers, contents=contents, lowerings=lowerings, names=names, outbox=outbox,
            recovery=recovery, refs=refs, registrations=registrations, resources=resources, runs=runs,
            tracing=tracing, views=views,
        )  # fmt: skip
        self.next_wakeup = watch.next_wakeup
        self._introduce()

    def _introduce(self) -> None:
        """Hand modules those that were made after them."""
        admission, completion, contents, dispatch = (
            self.admission,
            self.completion,
            self.contents,
            self.dispatch,
        )
        refs, in_flight, runs = self.refs, self.in_flight, self.runs
        self.stalls.admission, self.stalls.in_flight = admission, in_flight
        self.stalls.registrations = self.registrations
        in_flight.refs, in_flight.failures = refs, self.failures
        refs.admission, refs.contents, refs.runs = admission, contents, runs
        admission.contents, admission.dispatch, admission.runs = contents, dispatch, runs
        dispatch.completion, dispatch.runs = completion, runs
        completion.contents, completion.failures, completion.runs = contents, self.failures, runs
        runs.contents = contents
        views = self.views
        views.admission, views.contents, views.refs, views.runs = admission, contents, refs, runs
        self.failures.membership = self.membership
        self.membership.recovery = self.recovery
        self.recovery.clients, self.recovery.deliver = self.clients, self._deliver

    # --- the machine ---------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: int) -> list[Command]:
        act = self._events.get(type(event))
        if act is None:
            raise Illegal(f"a controller is not told of {type(event).__name__}")
        self.state.now = now
        if type(event) is not MessageReceived or type(event.message) in CHANGES:
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

    def _work(self, now: int) -> None:
        """Until nothing more can move. Each of these may make work for the others."""
        state, admission, ledger = self.state, self.admission, self.ledger
        while True:
            if state.settling:
                buffer, blame = state.settling.popleft()
                self.completion.argument_settled(buffer, blame, now)
            elif state.plan_ready:
                plan = state.plan_ready.pop(0)
                self.runs.code_ready(plan, now)
                self.dispatch.code_ready(plan, now)
                self.compilation.answered(plan)
            elif state.wake:
                wake, state.wake = state.wake, []
                for run in wake:
                    self.runs.advance(run, now)
            elif not (
                (
                    admission.line
                    and (admission.fresh or admission.eased != ledger.eased)
                    and admission.work(now)
                )
                or (any(map(LIVE, state.islands)) and self.dispatch.pump(now))
                or (state.changing and self.membership.settle(now))
            ):
                break
        if self.compilation.stale or self.lowerings.dropped:
            self.compilation.forget_stale()
        for island in state.islands:
            if island.scheduler.news:
                self.policy_news.look(island, now)

    # --- hosts that could not be hosts, or can be ----------------------------------------------------------------

    def _host_refused(self, event: HostRefused, now: int) -> None:
        if self.resources.refusals.refused(event.name, event.island, event.reason, now):
            self.runs.renew_reasons()

    def _host_taken(self, event: HostAccepted, now: int) -> None:
        if self.resources.refusals.taken(event.name):
            self.runs.renew_reasons()

    # --- peers ---------------------------------------------------------------------------------------------------

    def _came(self, event: MessageReceived, now: int) -> None:
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

    def _deliver(self, peer: int, message: msgspec.Struct, now: int) -> None:
        """A client's message that was kept while the controller recovered."""
        self._came(MessageReceived(peer, message), now)

    def _join(self, peer: int, message: Join, now: int) -> str | None:
        if peer in self.state.by_peer:
            return "it is a client and joined as a host"
        why, name = self.membership.stranger(peer, message), f"host {message.host}"
        if not why:
            self._host_taken(HostAccepted(name), now)
            return self.membership.join(peer, message, now)
        island = self.state.island_of_host(message.host).island.index
        self._host_refused(HostRefused(island, name, why), now)
        return None

    def _open(self, peer: int, message: Open, now: int) -> str | None:
        if peer in self.state.host_peers:
            return "it is a host"
        return None if self.clients.stranger(peer, message) else self.clients.opened(peer, message, now)

    def _host_at(self, peer: int, message: Reports | Seated | Leave) -> tuple[int, str | None]:
        """The host that has this connection; -1 if none, and what is wrong with that."""
        host = self.state.host_peers.get(peer, -1)
        if host < 0 and peer not in self.state.dismissed and peer not in self.state.strangers:
            return host, f"{type(message).__name__} before Join"
        return host, None

    def _leaves(self, peer: int, message: Leave, now: int) -> str | None:
        host, wrong = self._host_at(peer, message)
        if host >= 0:
            self.membership.leave(host, message.reason, now)
        return wrong

    def _seated(self, peer: int, message: Seated, now: int) -> str | None:
        host, wrong = self._host_at(peer, message)
        if host >= 0 and message.host != host:
            return f"host {host} speaks for host {message.host}"
        if host >= 0:
            self.membership.seated(host, message.epoch, message.tree, message.last, now)
        return wrong

    def _reported(self, peer: int, message: Reports, now: int) -> str | None:
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
            wrong = self._checks.lie(report, island, below)
            if wrong:
                return f"host {host} {wrong}"
        if state.watched:
            state.observe(Heeded(message.island, message.epoch))
        for report in message.reports:
            self._reports[type(report)](island, report, now)
        return None

    def _from_client(self, peer: int, message: Calls | Call, now: int) -> str | None:
        session = self.state.by_peer.get(peer)
        if session is None:
            return f"its first message is {type(message).__name__}, not Open"
        take = self._calls.get(type(message))
        if take is not None:
            return take(session, message, now)
        assert isinstance(message, Calls)
        for call in message.calls:
            wrong = self._calls[type(call)](session, call, now)
            if wrong:
                return wrong
            if session.gone:
                break
        return None

    def _disconnected(self, event: Disconnected, now: int) -> None:
        state, peer = self.state, event.peer
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
        host = state.host_peers.get(peer)
        if peer in state.by_peer:
            session = state.by_peer[peer]
            self.outbox.note(peer, ConnectionClosed(reason))
            blame = Blame("client-lost", f"client {session.name!r} was closed: {reason}")
            self.clients.gone(session, blame, now)
        elif host is not None:
            self.membership.lost(state.island_of_host(host), host, reason, now)
        elif of_host:
            self.outbox.effect(Send((peer,), Dismiss(-1, reason)))
        else:
            self.outbox.note(peer, ConnectionClosed(reason))
        self.outbox.close(Close(peer, reason))

    # --- to look at ----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All that may be shown, as of now."""
        return snapshot_of(self)

    def left(self) -> dict[str, int]:
        """What is not over: zero of each when nothing is under way and no client is there."""
        state = self.state
        return {
            "clients": len(state.sessions),
            "runs": len(state.runs),
            "operations": len(state.in_flight),
            "buffers": len(self.buffers),
            "views": len(self.views.waiting),
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
            others = record.aliases + record.transfers + record.views  # holds that are no run's
            yield f"references of buffer {record.id}", record.holds, held.get(record.id, 0) + others
        yield from self.policy_news.audit()
