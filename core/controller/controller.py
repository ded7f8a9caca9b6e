"""The controller machine: one event in, all that follows from it decided, one message an island and a client out.

`handle(event, now)` finds who the event is from, lets the room concerned act, and then works off what that made
possible (`_work`) until nothing more can move; what was gathered to be said leaves at the end of the turn.
A peer that breaks the protocol is closed, with the reason; nothing that a peer sends ever raises here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..invariants import Heeded, Observation
from ..model import Cluster, Illegal
from ..protocol import (
    Arrived,
    Beat,
    Blame,
    Calls,
    Came,
    CameTogether,
    Close,
    Compiled,
    Connected,
    Counted,
    Disconnected,
    Dismiss,
    Done,
    Effect,
    Enqueued,
    Goodbye,
    HostRefused,
    HostTaken,
    Join,
    Leave,
    Lost,
    Malformed,
    Open,
    Reports,
    Seated,
    Send,
    Trouble,
    Wakeup,
    WorldFailed,
    WorldUp,
)
from ..record import Trace
from ..schedule.policy import Fifo, Policy
from .books import Books
from .config import Config
from .hearing import Hearing
from .islands import IslandBook

DEFAULT = Config()
OF_HOSTS = (Join, Seated, Leave, Reports)


class Controller:
    def __init__(
        self,
        cluster: Cluster,
        policy: Callable[[], Policy] = Fifo,
        config: Config = DEFAULT,
        *,
        incarnation: int = 0,
        observe: Callable[[Observation], None] | None = None,
        trace: Trace | None = None,
    ) -> None:
        """`policy` makes one for each island. `incarnation`: higher at each start of the process."""
        self.books = Books(cluster, policy, config, incarnation=incarnation, observe=observe, trace=trace)
        self.books.deliver = self._deliver
        self._begun = False
        self._events: dict[type, Callable[[Any, int], None]] = {
            Came: self._came,
            CameTogether: lambda event, now: self._heed(event.message, now),
            Connected: lambda event, now: None,
            Disconnected: self._disconnected,
            Malformed: lambda event, now: self._violation(
                event.peer, f"it sent what is no message: {event.reason}", now
            ),
            Wakeup: lambda event, now: self.books.watch.wakeup(now),
            HostRefused: self._host_refused,
            HostTaken: self._host_taken,
            WorldUp: lambda event, now: self.books.islands_room.world_up(event.island, event.epoch, now),
            WorldFailed: lambda event, now: self.books.islands_room.world_failed(
                event.island, event.epoch, str(event.blame), now
            ),
        }
        books = self.books
        self._hearing = Hearing(books)
        # What a peer may say: returns what is wrong with it.
        self._takes: dict[type, Callable[[int, Any, int], str | None]] = {
            Join: self._join,
            Open: self._open,
            **dict.fromkeys((Reports, Seated, Leave), self._from_host),
            **dict.fromkeys((Calls, *books.clients.calls), books.clients.call),
        }
        self._reports: dict[type, Callable[[IslandBook, Any, int], None]] = {
            Done: lambda book, report, now: books.dispatch.done(report, now),
            Enqueued: lambda book, report, now: books.dispatch.enqueued(report, now),
            Counted: lambda book, report, now: books.dispatch.counted(report, now),
            Compiled: lambda book, report, now: books.code_reported(report),
            Arrived: lambda book, report, now: books.flights.arrived(report),
            Beat: lambda book, report, now: book.stream.seen(report.hosts, report.number),
            Trouble: books.failures.trouble,
            Lost: lambda book, report, now: books.islands_room.path_lost(report.host, now),
        }

    # --- the machine ---------------------------------------------------------------------------------------------

    def handle(self, event: Effect, now: int) -> list[Effect]:
        if isinstance(event, CameTogether) and not self._hearing.may_take(event):
            return [effect for each in self._hearing.apart(event) for effect in self.handle(each, now)]
        act = self._events.get(type(event))
        if act is None:
            raise Illegal(f"a controller is not told of {type(event).__name__}")
        self.books.now = now
        if not self._begun:
            self._begun = True
            if self.books.recovery.under_way:
                self.books.recovery.begin(now)
        act(event, now)
        self._work(now)
        self.books.history.levels()
        self.books.islands_room.flush(self.books.outbox.turns)
        return self.books.outbox.take()

    def next_wakeup(self) -> int | None:
        return self.books.watch.next_wakeup()

    def _work(self, now: int) -> None:
        """Until nothing more can move. Each of these may make work for the others."""
        books = self.books
        while True:
            if books.settling:
                buffer, blame = books.settling.popleft()
                books.dispatch.argument_settled(buffer, blame, now)
            elif books.plan_ready:
                plan = books.plan_ready.pop(0)
                books.runs_room.code_ready(plan, now)
                books.dispatch.code_ready(plan, now)
            elif books.wake:
                wake, books.wake = books.wake, []
                for run in wake:
                    books.runs_room.advance(run, now)
            elif not (
                books.admission.work(now) or books.dispatch.pump(now) or books.islands_room.settle(now)
            ):
                break
        books.forget_plans()
        books.tell_faults()

    # --- hosts that could not be hosts, or can be ----------------------------------------------------------------

    def _host_refused(self, event: HostRefused, now: int) -> None:
        if self.books.resources.refusals.refused(event.name, event.island, event.reason, now):
            self.books.runs_room.renew_reasons()

    def _host_taken(self, event: HostTaken, now: int) -> None:
        if self.books.resources.refusals.taken(event.name):
            self.books.runs_room.renew_reasons()

    # --- peers ---------------------------------------------------------------------------------------------------

    def _came(self, event: Came, now: int) -> None:
        recovery = self.books.recovery
        if recovery.under_way and not isinstance(event.message, OF_HOSTS):
            recovery.keep(event.peer, event.message)
        else:
            self._deliver(event.peer, event.message, now)

    def _deliver(self, peer: int, message: msgspec.Struct, now: int) -> None:
        take = self._takes.get(type(message))
        wrong = (
            f"a controller takes no {type(message).__name__}" if take is None else take(peer, message, now)
        )
        if wrong:
            self._violation(peer, wrong, now)

    def _join(self, peer: int, message: Join, now: int) -> str | None:
        if peer in self.books.by_peer:
            return "it is a client and joined as a host"
        return self.books.islands_room.join(peer, message, now)

    def _open(self, peer: int, message: Open, now: int) -> str | None:
        return (
            "it is a host" if peer in self.books.host_peers else self.books.clients.opened(peer, message, now)
        )

    def _from_host(self, peer: int, message: Reports | Seated | Leave, now: int) -> str | None:
        books = self.books
        host = books.host_peers.get(peer)
        if host is None:
            return None if peer in books.dismissed else f"{type(message).__name__} before Join"
        if isinstance(message, Leave):
            books.islands_room.leave(host, message.reason, now)
            return None
        if isinstance(message, Seated):
            if message.host != host:
                return f"host {host} speaks for host {message.host}"
            books.islands_room.seated(host, message.epoch, message.tree, message.last, now)
            return None
        book = books.island_of_host(host)
        if (message.island, message.epoch, message.tree) != (book.island.index, book.epoch, book.tree_number):
            return None  # by a path that has been fenced
        if not book.stream.shape.is_root(host):
            return f"host {host} reports, and is no root of the tree"
        below = book.stream.shape.below(host)
        for report in message.reports:
            wrong = self._hearing.lie(report, book, below)
            if wrong:
                return f"host {host} {wrong}"
        self._heed(message, now)
        return None

    def _heed(self, message: Reports, now: int) -> None:
        book = self.books.islands[message.island]
        if self.books.watched:
            self.books.observe(Heeded(message.island, message.epoch))
        for report in message.reports:
            self._reports[type(report)](book, report, now)

    def _disconnected(self, event: Disconnected, now: int) -> None:
        books, peer = self.books, event.peer
        books.dismissed.pop(peer, None)
        books.recovery.forget(peer)
        session = books.by_peer.get(peer)
        host = books.host_peers.get(peer)
        text = event.reason or "its connection was lost"
        if session is not None:
            books.clients.given_up(session, text, event.anew, now)
        elif host is not None:
            books.islands_room.lost(books.island_of_host(host), host, text, now)

    def _violation(self, peer: int, reason: str, now: int) -> None:
        """The peer broke the protocol: it is told, what it had is dealt with as if it had died, and it is closed."""
        books = self.books
        books.recovery.forget(peer)
        host = books.host_peers.get(peer)
        if peer in books.by_peer:
            session = books.by_peer[peer]
            books.outbox.note(peer, Goodbye(reason))
            books.clients.gone(
                session, Blame("client-lost", f"client {session.name!r} was closed: {reason}"), now
            )
        elif host is not None:
            books.islands_room.lost(books.island_of_host(host), host, reason, now)
        else:
            books.outbox.effect(Send((peer,), Dismiss(-1, reason)))
        books.outbox.close(Close(peer, reason))
