"""Membership of islands, in epochs: who is a member, by which tree they are reached, and what happens at a change.

    forming ---all here, or grace over--> reforming
    running --member lost--> fencing --all re-seated--> draining --all landed--> reforming --all seated--> running
    running --join, leave--> draining
    running --path lost----> fencing (same members, new tree) --all re-seated--> draining or running

Fencing: survivors get a new seat (a new tree, the same epoch) directly; it fences every older path, names the gangs
that can never finish, and asks each host for the last message it has seen, so that what was lost on a dead path is
sent again *through the new tree*, where nothing can overtake it. Draining: nothing new enters; what is in flight and
can finish does. Reforming: the next epoch's world is set up, hosts take their seats in it, code is compiled anew.
Messages of another epoch or tree are refused on both sides. Nothing is sent down a tree that is not all seated.

Neighbours: `resources` is told who is there; `failures` says what died with a host; `dispatch` goes on afterwards.
The functions that matter: `join`, `lost`, `seated`, `flush`, `_move_on`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fanout import Stream, tree
from ..model import Island, Spans, spans
from ..protocol import Close, Dismiss, DropWorlds, FormWorld, Join, Ordered, Send, Tell
from ..schedule import Scheduler
from .outbox import Turn
from .records import Company

if TYPE_CHECKING:
    from .books import Books

# (phase, what happened) -> next phase
PHASES: dict[tuple[str, str], str] = {
    ("forming", "complete"): "reforming",
    ("running", "lost"): "fencing",
    ("running", "path"): "fencing",
    ("running", "change"): "draining",
    ("fencing", "lost"): "fencing",
    ("fencing", "path"): "fencing",
    ("fencing", "seated"): "draining",
    ("draining", "lost"): "fencing",
    ("draining", "path"): "fencing",
    ("draining", "nothing changed"): "running",
    ("draining", "drained"): "reforming",
    ("reforming", "lost"): "reforming",
    ("reforming", "path"): "reforming",
    ("reforming", "seated"): "running",
}


WAYS = 512  # sets of hosts whose connections are remembered


class IslandBook:
    """One island as the controller knows it."""

    def __init__(self, island: Island, scheduler: Scheduler, epoch: int) -> None:
        self.island = island
        self.scheduler = scheduler
        self.phase = "forming"
        self.epoch = epoch  # the first to form is the next
        self.formed = epoch - 1  # the last epoch that has formed: its code may be compiled, its gangs ordered
        self.tree_number = 0
        self.stream = Stream(island.index)
        self.members: Spans = spans.EMPTY
        self.peers: dict[int, int] = {}  # host -> its direct connection
        self.incarnations: dict[int, int] = {}
        self.dismissed: dict[int, int] = {}  # host -> its last incarnation that was given up
        self.coming: dict[int, Join] = {}  # joined, not yet members
        self.fresh: Spans = spans.EMPTY  # members since this epoch; they get work once it has formed
        self.leaving: dict[int, str] = {}
        self.apart: Spans = (
            spans.EMPTY
        )  # hosts whose relays did not reach them: they hang below the controller
        self.abandon: list[int] = []  # gangs given up since the last fence
        self.dropped: list[int] = []
        self.stale_world = True  # members or devices have changed since the epoch formed
        self.world_epoch = -1  # the last epoch whose world is up
        self.company: dict[Spans, Company | None] = {}  # connections: what roots they are together
        self.ways: dict[Spans, tuple[int, ...]] = {}  # hosts: the connections by which they are told
        scheduler.paused = True

    def rewired(self) -> None:
        """Another tree, or other connections."""
        self.company, self.ways = {}, {}

    def turn(self, happened: str) -> None:
        self.phase = PHASES[self.phase, happened]


class Islands:
    def __init__(self, books: Books) -> None:
        self._books = books

    # --- hosts come --------------------------------------------------------------------------------------------

    def join(self, peer: int, join: Join, now: int) -> str | None:
        """A host presents itself on its direct connection. Returns what is wrong with it, if anything."""
        books = self._books
        if not 0 <= join.host < books.cluster.hosts:
            return f"host {join.host} is not in this cluster ({books.cluster.hosts} hosts)"
        book = books.islands[books.cluster.island_of_host(join.host).index]
        known = book.incarnations.get(join.host, -1)
        if join.incarnation < known:
            return self._turn_away(peer, join, f"incarnation {join.incarnation} is older than {known}")
        if join.incarnation <= book.dismissed.get(join.host, -1):
            # It was cut off and has not heard that it was given up: what it still has belongs to nobody.
            return self._turn_away(peer, join, f"incarnation {join.incarnation} was given up")
        wrong = books.recovery.nonsense(join)
        if wrong:
            return f"host {join.host} {wrong}"
        if books.host_peers.get(peer, join.host) != join.host:
            return f"host {books.host_peers[peer]} joins as host {join.host}"
        if join.epoch >= 0 and not books.recovery.under_way and not spans.contains(book.members, join.host):
            return self._turn_away(peer, join, "it was not waited for any longer")
        returned = join.incarnation > known and spans.contains(book.members, join.host)
        old_peer = book.peers.get(join.host)
        book.rewired()
        if old_peer is not None and old_peer != peer:
            books.host_peers.pop(old_peer, None)
        if returned:
            self.lost(book, join.host, "it came back as another incarnation", now)
        book.peers[join.host] = peer
        books.host_peers[peer] = join.host
        book.incarnations[join.host] = join.incarnation
        if spans.contains(book.members, join.host):
            self._path_lost(book, now)  # same incarnation, same seat: only its way to us has changed
            return None
        book.coming[join.host] = join
        books.recovery.reported(join)
        books.failures.new_host(book, join)
        if book.phase == "forming":
            self._form_if_complete(book, now)
        elif book.phase == "running":
            self._change(book, now)
        return None

    def _turn_away(self, peer: int, join: Join, reason: str) -> str | None:
        """It is to begin anew. To have stood still is no breach of the protocol; to join where it has joined is one."""
        books = self._books
        books.outbox.effect(Send((peer,), Dismiss(join.host, reason)))
        text = f"host {join.host}: {reason}"
        if peer in books.host_peers:
            return text
        books.recovery.forget(peer)
        books.outbox.close(Close(peer, text, breach=""))
        return None

    def _form_if_complete(self, book: IslandBook, now: int) -> None:
        if len(book.coming) < book.island.hosts:
            # The grace is counted from the last that came: hosts that start one after another make one epoch.
            self._books.watch.begin(
                ("forming", book.island.index),
                now,
                0,
                lambda at: self._form_anyway(book, at),
                lambda at: self._form_anyway(book, at),
            )
            return
        self._form_anyway(book, now)

    def _form_anyway(self, book: IslandBook, now: int) -> None:
        """All are here; or the grace is over, and the island begins with who is."""
        if book.phase == "forming" and book.coming:
            self._books.watch.end(("forming", book.island.index))
            book.turn("complete")
            self._reform(book, now)

    # --- hosts go ----------------------------------------------------------------------------------------------

    def leave(self, host: int, reason: str, now: int) -> None:
        """Graceful: what is in flight ends first."""
        book = self._books.island_of_host(host)
        if not spans.contains(book.members, host):
            book.coming.pop(host, None)
            self._dismiss(book, host, reason)
            return
        book.leaving[host] = reason or "it asked to leave"
        if not spans.contains(book.fresh, host):
            self._books.resources.host_draining(host)
        if book.phase == "running":
            self._change(book, now)

    def lost(self, book: IslandBook, host: int, reason: str, now: int) -> None:
        """A host is gone: its gangs will never finish, its buffers are lost, its island re-forms without it."""
        book.coming.pop(host, None)
        book.leaving.pop(host, None)
        book.apart = spans.minus(book.apart, spans.one(host))
        self._books.recovery.host_lost(host)
        if not spans.contains(book.members, host):
            self._dismiss(book, host, reason)
            return
        books = self._books
        books.outbox.effect(Tell(f"host {host} of island {book.island.name!r} is lost: {reason}"))
        self._dismiss(book, host, reason)
        book.members = spans.minus(book.members, spans.one(host))
        self._forget(book, host)
        books.failures.host_lost(book, host, reason, now)
        if not book.members:
            self._empty(book)
            if book.coming:
                self._form_if_complete(book, now)
            return
        self.broken(book, now)

    def _forget(self, book: IslandBook, host: int) -> None:
        """It gets no more work; one that is new never got any."""
        if spans.contains(book.fresh, host):
            book.fresh = spans.minus(book.fresh, spans.one(host))
        else:
            self._books.resources.host_lost(host)

    def _dismiss(self, book: IslandBook, host: int, reason: str) -> None:
        """If it lives, it is to stop and come back as a new host: what it still says is of no account."""
        book.dismissed[host] = book.incarnations.get(host, -1)
        book.rewired()
        peer = book.peers.pop(host, None)
        if peer is not None and self._books.host_peers.pop(peer, None) is not None:
            self._books.dismissed[peer] = host
            self._books.outbox.effect(Send((peer,), Dismiss(host, reason)))

    def broken(self, book: IslandBook, now: int) -> None:
        """A member, a device or a launch is lost: this epoch ends."""
        if book.phase == "forming":
            return
        book.scheduler.paused = True
        book.stale_world = True
        self._books.watch.end(("peer", book.island.index))
        again = book.phase == "reforming"
        book.turn("lost")
        if again:
            self._reform(book, now)  # a world with a dead member never forms: go straight to the next
        else:
            self._fence(book, now)

    def path_lost(self, host: int, now: int) -> None:
        """The host may live, but the relay above it does not reach it: a new tree, in which it hangs below us. If
        it is dead, its own connection to us will say so."""
        book = self._books.island_of_host(host)
        if spans.contains(book.members, host):
            book.apart = spans.union(book.apart, spans.one(host))
            self._path_lost(book, now)

    def _path_lost(self, book: IslandBook, now: int) -> None:
        if book.phase == "forming":
            return
        book.scheduler.paused = True
        book.turn("path")
        if book.phase == "fencing" or book.world_epoch == book.epoch:
            self._fence(book, now)

    def _empty(self, book: IslandBook) -> None:
        """Nobody is left: it forms anew when somebody comes. What was said to it, nobody needs to hear."""
        book.phase = "forming"
        book.abandon, book.dropped = [], []
        book.stream = Stream(book.island.index, number=book.stream.number)
        for wait in ("seats", "drain", "world", "peer"):
            self._books.watch.end((wait, book.island.index))

    def _change(self, book: IslandBook, now: int) -> None:
        book.turn("change")
        book.scheduler.paused = True
        self._watch_drain(book, now)
        self.move_on(book, now)

    # --- seats -------------------------------------------------------------------------------------------------

    def _fence(self, book: IslandBook, now: int) -> None:
        book.tree_number += 1
        self._offer_seats(book, now)

    def _offer_seats(self, book: IslandBook, now: int) -> None:
        """To every member, directly: tree and epoch by which all older paths are refused."""
        books, index = self._books, book.island.index
        book.rewired()
        book.stream.refence(book.epoch, book.tree_number, tree(book.members, books.config.fanout, book.apart))
        abandon, dropped = tuple(book.abandon), tuple(book.dropped)
        for host in spans.items(book.members):
            books.outbox.effect(Send((book.peers[host],), book.stream.seat(host, abandon, dropped)))
        books.watch.begin(
            ("seats", index),
            now,
            0,
            lambda at: self._tell_unseated(book),
            lambda at: self._lose_unseated(book, at),
        )

    def _tell_unseated(self, book: IslandBook) -> None:
        who = spans.text(book.stream.missing)
        self._books.outbox.effect(
            Tell(f"island {book.island.name!r} waits for hosts {who} to take their seats")
        )

    def _lose_unseated(self, book: IslandBook, now: int) -> None:
        for host in spans.items(book.stream.missing):
            self.lost(book, host, "it did not take its seat in time", now)

    def seated(self, host: int, epoch: int, tree_number: int, last: int, now: int) -> None:
        book = self._books.island_of_host(host)
        if not book.stream.forming or (epoch, tree_number) != (book.epoch, book.tree_number):
            return  # of a seat that has been replaced meanwhile
        again = book.stream.rejoin(host, last)
        if book.stream.unseated:
            return
        for message in again:  # what was lost on dead paths goes first, through the new tree
            self._send(book, message)
        self._books.watch.end(("seats", book.island.index))
        book.abandon, book.dropped = [], []
        was = book.phase
        book.turn("seated")
        if was == "fencing":
            self._watch_drain(book, now)
            self.move_on(book, now)
        else:
            self._run(book, now)

    def _send(self, book: IslandBook, message: Ordered) -> None:
        ways = book.ways.get(message.hosts)
        if ways is None:
            ways = self._way(book, message.hosts)
        if ways:
            self._books.outbox.effect(Send(ways, message))

    def _way(self, book: IslandBook, hosts: Spans) -> tuple[int, ...]:
        """A root that was dismissed meanwhile gets nothing; those below it are sent again what they miss, once
        seated."""
        roots = book.stream.targets(hosts)
        ways = tuple(book.peers[root] for root in roots if root in book.peers)
        if not book.stream.forming:
            if len(book.ways) >= WAYS:
                book.ways.clear()
            book.ways[hosts] = ways
        return ways

    # --- draining and forming anew --------------------------------------------------------------------------------

    def _watch_drain(self, book: IslandBook, now: int) -> None:
        expected = sum(flight.cost for flight in self._books.flights.on(book.island.index))
        self._books.watch.begin(
            ("drain", book.island.index), now, expected,
            lambda at: self._books.flights.report_oldest(book.island.index, at, "draining"),
            lambda at: self._books.failures.give_up_flights(book, at),
        )  # fmt: skip

    def settle(self, now: int) -> bool:
        """At the end of a turn. True: an island is at work again, and may have something to do."""
        again = False
        for book in self._books.islands:
            if book.phase == "draining":
                self.move_on(book, now)
                again |= book.phase == "running"
        return again

    def move_on(self, book: IslandBook, now: int) -> None:
        """Called whenever something landed: a draining island with nothing in flight re-forms."""
        if book.phase != "draining":
            return
        changed = book.coming or book.leaving or book.stale_world
        if changed and self._books.flights.any_on(book.island.index):
            return
        self._books.watch.end(("drain", book.island.index))
        if not changed:
            book.turn("nothing changed")
            book.scheduler.paused = False
            return
        book.turn("drained")
        self._reform(book, now)

    def _reform(self, book: IslandBook, now: int) -> None:
        """The next epoch: who has come is a member, who leaves is not, and all code is to be compiled again."""
        books = self._books
        books.watch.end(("peer", book.island.index))
        for host, reason in sorted(book.leaving.items()):
            book.members = spans.minus(book.members, spans.one(host))
            self._forget(book, host)
            books.failures.host_left(book, host, reason, now)
            self._dismiss(book, host, reason)
        book.leaving = {}
        book.fresh = spans.union(book.fresh, spans.of(book.coming))
        book.members = spans.union(book.members, book.fresh)
        book.coming = {}
        if not book.members:
            self._empty(book)
            return
        book.epoch += 1
        books.outbox.effect(FormWorld(book.island.index, book.epoch, book.members))
        books.watch.begin(
            ("world", book.island.index), now, 0,
            lambda at: books.outbox.effect(Tell(f"island {book.island.name!r}: its world is slow to form")),
            lambda at: self.world_failed(book.island.index, book.epoch, "it took too long", at),
        )  # fmt: skip

    def world_up(self, island: int, epoch: int, now: int) -> None:
        book = self._books.islands[island]
        if (book.phase, book.epoch) == ("reforming", epoch):
            self._books.watch.end(("world", island))
            book.world_epoch = epoch
            self._fence(book, now)

    def world_failed(self, island: int, epoch: int, reason: str, now: int) -> None:
        """Try once more, as a new epoch; the driver has said why in its own log. A world that had formed, and has
        lost what it needs to form again, is left when what is in flight has ended."""
        book = self._books.islands[island]
        if book.phase == "forming" or book.epoch != epoch:
            return
        tell = self._books.outbox.effect
        if book.phase == "reforming":
            tell(Tell(f"island {book.island.name!r}: epoch {epoch} did not form: {reason}"))
            self._reform(book, now)
            return
        tell(Tell(f"island {book.island.name!r}: the world of epoch {epoch} has failed: {reason}"))
        book.stale_world = True
        if book.phase == "running":
            self._change(book, now)

    def _run(self, book: IslandBook, now: int) -> None:
        book.stale_world = False
        book.scheduler.paused = False
        for host in spans.items(book.fresh):
            self._books.resources.host_joined(host)
        book.fresh = spans.EMPTY
        self._books.outbox.effect(
            Tell(f"island {book.island.name!r} runs: epoch {book.epoch}, hosts {spans.text(book.members)}")
        )
        self._books.outbox.effect(DropWorlds(book.island.index, book.epoch))
        book.formed = book.epoch
        self._books.failures.epoch_formed(book, now)
        self._books.recovery.island_formed(now)
        for host in book.leaving:
            self._books.resources.host_draining(host)
        if book.coming or book.leaving:
            self._change(book, now)

    # --- the end of a turn --------------------------------------------------------------------------------------

    def flush(self, turns: dict[int, Turn]) -> None:
        """Number what this turn says to each island and send it. While a tree forms, the stream keeps it."""
        for index in sorted(turns):
            book, turn = self._books.islands[index], turns[index]
            hosts = turn.target()
            if hosts != book.members:
                hosts = spans.meet(hosts, book.members)
            if hosts:
                settled = self._books.settled_below()
                message = book.stream.append(
                    tuple(turn.plans), tuple(turn.runs), tuple(turn.steps), hosts, settled
                )
                self._send(book, message)
        turns.clear()
