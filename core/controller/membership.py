"""Membership of islands, in epochs: which hosts are members, which tree reaches them, and what a change does.

    forming ---all here, or grace over--> reforming
    running --member lost--> fencing --all re-seated--> draining --all landed--> reforming --all seated--> running
    running --join, leave--> draining
    running --path lost----> fencing (same members, new tree) --all re-seated--> draining or running

Fencing: survivors get a new seat (a new tree, the same epoch) directly; it fences every older path, names the gangs
that can never finish, and asks each host for the last message it has seen, so that what was lost on a dead path is
sent again *through the new tree*, where nothing can overtake it. Draining: nothing new enters; what is in flight and
can finish does. Reforming: the next epoch's world is set up, hosts take their seats in it, code is compiled anew.
Messages of another epoch or tree are refused on both sides. Nothing is sent down a tree that is not all seated.

Neighbours: `resources` learns which hosts are there; `failures` ends what a lost host has broken.
The functions that matter: `join`, `lost`, `seated`, `flush`, `_move_on`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fanout import Stream, tree
from ..model import spans
from ..protocol import Close, Dismiss, DropWorlds, FormWorld, Join, Send, Tell
from ..slices import Resources
from .failures import Failures
from .in_flight import InFlightTable
from .outbox import TurnOutbox
from .state import IslandState, State
from .watch import Watchdog

if TYPE_CHECKING:
    from .recovery import Recovery


class Membership:
    recovery: Recovery

    def __init__(
        self,
        state: State,
        *,
        failures: Failures,
        in_flight: InFlightTable,
        outbox: TurnOutbox,
        resources: Resources,
        watch: Watchdog,
    ) -> None:
        self._state = state
        self._failures = failures
        self._in_flight = in_flight
        self._outbox = outbox
        self._resources = resources
        self._watch = watch

    # --- hosts come --------------------------------------------------------------------------------------------

    def join(self, peer: int, join: Join, now: int) -> str | None:
        """A host presents itself on its direct connection. Returns what is wrong with it, if anything."""
        if not 0 <= join.host < self._state.cluster.hosts:
            return f"host {join.host} is not in this cluster ({self._state.cluster.hosts} hosts)"
        book = self._state.islands[self._state.cluster.island_of_host(join.host).index]
        known = book.incarnations.get(join.host, -1)
        if join.incarnation < known:
            return self._turn_away(peer, join, f"incarnation {join.incarnation} is older than {known}")
        if join.incarnation <= book.dismissed.get(join.host, -1):
            # It was cut off and has not heard that it was given up: what it still has belongs to nobody.
            return self._turn_away(peer, join, f"incarnation {join.incarnation} was given up")
        wrong = self.recovery.nonsense(join)
        if wrong:
            return f"host {join.host} {wrong}"
        if self._state.host_peers.get(peer, join.host) != join.host:
            return f"host {self._state.host_peers[peer]} joins as host {join.host}"
        if join.epoch >= 0 and not self.recovery.under_way and not spans.contains(book.members, join.host):
            return self._turn_away(peer, join, "it was not waited for any longer")
        returned = join.incarnation > known and spans.contains(book.members, join.host)
        old_peer = book.peers.get(join.host)
        book.rewired()
        if old_peer is not None and old_peer != peer:
            self._state.host_peers.pop(old_peer, None)
        if returned:
            self.lost(book, join.host, "it came back as another incarnation", now)
        book.peers[join.host] = peer
        self._state.host_peers[peer] = join.host
        book.incarnations[join.host] = join.incarnation
        if spans.contains(book.members, join.host):
            self._path_lost(book, now)  # same incarnation, same seat: only its way to us has changed
            return None
        book.coming[join.host] = join
        self.recovery.reported(join)
        self._failures.new_host(book, join)
        if book.phase == "forming":
            self._form_if_complete(book, now)
        elif book.phase == "running":
            self._change(book, now)
        return None

    def _turn_away(self, peer: int, join: Join, reason: str) -> str | None:
        """It is to begin anew. To have stood still is no breach of the protocol; to join where it has joined is one."""
        self._outbox.effect(Send((peer,), Dismiss(join.host, reason)))
        text = f"host {join.host}: {reason}"
        if peer in self._state.host_peers:
            return text
        self.recovery.forget(peer)
        self._outbox.close(Close(peer, text, breach=""))
        return None

    def _form_if_complete(self, book: IslandState, now: int) -> None:
        if len(book.coming) < book.island.hosts:
            # The grace is counted from the last that came: hosts that start one after another make one epoch.
            self._watch.begin(
                ("forming", book.island.index),
                now,
                0,
                lambda at: self._form_anyway(book, at),
                lambda at: self._form_anyway(book, at),
            )
            return
        self._form_anyway(book, now)

    def _form_anyway(self, book: IslandState, now: int) -> None:
        """Begin with the hosts that are here: all of them, or those that came before the grace was over."""
        if book.phase == "forming" and book.coming:
            self._watch.end(("forming", book.island.index))
            book.turn("complete")
            self._reform(book, now)

    # --- hosts go ----------------------------------------------------------------------------------------------

    def leave(self, host: int, reason: str, now: int) -> None:
        """Graceful: what is in flight ends first."""
        book = self._state.island_of_host(host)
        if not spans.contains(book.members, host):
            book.coming.pop(host, None)
            self._dismiss(book, host, reason)
            return
        book.leaving[host] = reason or "it asked to leave"
        if not spans.contains(book.fresh, host):
            self._resources.host_draining(host)
        if book.phase == "running":
            self._change(book, now)

    def lost(self, book: IslandState, host: int, reason: str, now: int) -> None:
        """A host is gone: its gangs will never finish, its buffers are lost, its island re-forms without it."""
        book.coming.pop(host, None)
        book.leaving.pop(host, None)
        book.apart = spans.minus(book.apart, spans.one(host))
        self.recovery.host_lost(host)
        if not spans.contains(book.members, host):
            self._dismiss(book, host, reason)
            return
        self._outbox.effect(Tell(f"host {host} of island {book.island.name!r} is lost: {reason}"))
        self._dismiss(book, host, reason)
        book.members = spans.minus(book.members, spans.one(host))
        self._forget(book, host)
        self._failures.host_lost(book, host, reason, now)
        if not book.members:
            self._empty(book)
            if book.coming:
                self._form_if_complete(book, now)
            return
        self.broken(book, now)

    def _forget(self, book: IslandState, host: int) -> None:
        """Give the host no more work. A new host has had none."""
        if spans.contains(book.fresh, host):
            book.fresh = spans.minus(book.fresh, spans.one(host))
        else:
            self._resources.host_lost(host)

    def _dismiss(self, book: IslandState, host: int, reason: str) -> None:
        """Tell the host to stop and come back as a new one, if it lives. What it still says is ignored."""
        book.dismissed[host] = book.incarnations.get(host, -1)
        book.rewired()
        peer = book.peers.pop(host, None)
        if peer is not None and self._state.host_peers.pop(peer, None) is not None:
            self._state.dismissed[peer] = host
            self._outbox.effect(Send((peer,), Dismiss(host, reason)))

    def broken(self, book: IslandState, now: int) -> None:
        """A member, a device or a launch is lost: this epoch ends."""
        if book.phase == "forming":
            return
        book.scheduler.paused = True
        book.stale_world = True
        self._watch.end(("peer", book.island.index))
        again = book.phase == "reforming"
        book.turn("lost")
        if again:
            self._reform(book, now)  # a world with a dead member never forms: go straight to the next
        else:
            self._fence(book, now)

    def path_lost(self, host: int, now: int) -> None:
        """The host may live, but the relay above it does not reach it: a new tree, in which it hangs below us. If
        it is dead, its own connection to us will say so."""
        book = self._state.island_of_host(host)
        if spans.contains(book.members, host):
            book.apart = spans.union(book.apart, spans.one(host))
            self._path_lost(book, now)

    def _path_lost(self, book: IslandState, now: int) -> None:
        if book.phase == "forming":
            return
        book.scheduler.paused = True
        book.turn("path")
        if book.phase == "fencing" or book.world_epoch == book.epoch:
            self._fence(book, now)

    def _empty(self, book: IslandState) -> None:
        """Nobody is left: it forms anew when somebody comes. What was said to it, nobody needs to hear."""
        book.become("forming")
        book.abandon, book.dropped = [], []
        book.stream = Stream(book.island.index, number=book.stream.number)
        for wait in ("seats", "drain", "world", "peer"):
            self._watch.end((wait, book.island.index))

    def _change(self, book: IslandState, now: int) -> None:
        book.turn("change")
        book.scheduler.paused = True
        self._watch_drain(book, now)
        self.move_on(book, now)

    # --- seats -------------------------------------------------------------------------------------------------

    def _fence(self, book: IslandState, now: int) -> None:
        book.tree_number += 1
        self._offer_seats(book, now)

    def _offer_seats(self, book: IslandState, now: int) -> None:
        """Send each member its seat directly: with its tree and epoch the member refuses all older paths."""
        index = book.island.index
        book.rewired()
        book.stream.refence(
            book.epoch, book.tree_number, tree(book.members, self._state.config.fanout, book.apart)
        )
        abandon, dropped = tuple(book.abandon), tuple(book.dropped)
        for host in spans.items(book.members):
            self._outbox.effect(Send((book.peers[host],), book.stream.seat(host, abandon, dropped)))
        self._watch.begin(
            ("seats", index),
            now,
            0,
            lambda at: self._tell_unseated(book),
            lambda at: self._lose_unseated(book, at),
        )

    def _tell_unseated(self, book: IslandState) -> None:
        who = spans.text(book.stream.missing)
        self._outbox.effect(Tell(f"island {book.island.name!r} waits for hosts {who} to take their seats"))

    def _lose_unseated(self, book: IslandState, now: int) -> None:
        for host in spans.items(book.stream.missing):
            self.lost(book, host, "it did not take its seat in time", now)

    def seated(self, host: int, epoch: int, tree_number: int, last: int, now: int) -> None:
        book = self._state.island_of_host(host)
        if not book.stream.forming or (epoch, tree_number) != (book.epoch, book.tree_number):
            return  # of a seat that has been replaced meanwhile
        again = book.stream.rejoin(host, last)
        if book.stream.unseated:
            return
        for message in again:  # what was lost on dead paths goes first, through the new tree
            self._outbox.send(book, message)
        self._watch.end(("seats", book.island.index))
        book.abandon, book.dropped = [], []
        was = book.phase
        book.turn("seated")
        if was == "fencing":
            self._watch_drain(book, now)
            self.move_on(book, now)
        else:
            self._run(book, now)

    # --- draining and forming anew --------------------------------------------------------------------------------

    def _watch_drain(self, book: IslandState, now: int) -> None:
        expected = sum(entry.cost for entry in self._in_flight.on(book.island.index))
        self._watch.begin(
            ("drain", book.island.index), now, expected,
            lambda at: self._in_flight.report_oldest(book.island.index, at, "draining"),
            lambda at: self._failures.give_up_flights(book, at),
        )  # fmt: skip

    def settle(self, now: int) -> bool:
        """At the end of a turn. True: an island is at work again, and may have something to do."""
        again = False
        for book in self._state.islands:
            if book.phase == "draining":
                self.move_on(book, now)
                again |= book.phase == "running"
        return again

    def move_on(self, book: IslandState, now: int) -> None:
        """Called whenever something landed: a draining island with nothing in flight re-forms."""
        if book.phase != "draining":
            return
        changed = book.coming or book.leaving or book.stale_world
        if changed and book.in_flight:
            return
        self._watch.end(("drain", book.island.index))
        if not changed:
            book.turn("nothing changed")
            book.scheduler.paused = False
            return
        book.turn("drained")
        self._reform(book, now)

    def _reform(self, book: IslandState, now: int) -> None:
        """Begin the next epoch, with hosts that have come, without those that leave. Code is compiled again."""
        self._watch.end(("peer", book.island.index))
        for host, reason in sorted(book.leaving.items()):
            book.members = spans.minus(book.members, spans.one(host))
            self._forget(book, host)
            self._failures.host_left(book, host, reason, now)
            self._dismiss(book, host, reason)
        book.leaving = {}
        book.fresh = spans.union(book.fresh, spans.of(book.coming))
        book.members = spans.union(book.members, book.fresh)
        book.coming = {}
        if not book.members:
            self._empty(book)
            return
        book.epoch += 1
        self._state.epochs += 1
        self._outbox.effect(FormWorld(book.island.index, book.epoch, book.members))
        self._watch.begin(
            ("world", book.island.index), now, 0,
            lambda at: self._outbox.effect(Tell(f"island {book.island.name!r}: its world is slow to form")),
            lambda at: self.world_failed(book.island.index, book.epoch, "it took too long", at),
        )  # fmt: skip

    def world_up(self, island: int, epoch: int, now: int) -> None:
        book = self._state.islands[island]
        if (book.phase, book.epoch) == ("reforming", epoch):
            self._watch.end(("world", island))
            book.world_epoch = epoch
            self._fence(book, now)

    def world_failed(self, island: int, epoch: int, reason: str, now: int) -> None:
        """Try once more, as a new epoch; the driver has said why in its own log. A world that had formed, and has
        lost what it needs to form again, is left when what is in flight has ended."""
        book = self._state.islands[island]
        if book.phase == "forming" or book.epoch != epoch:
            return
        tell = self._outbox.effect
        if book.phase == "reforming":
            tell(Tell(f"island {book.island.name!r}: epoch {epoch} did not form: {reason}"))
            self._reform(book, now)
            return
        tell(Tell(f"island {book.island.name!r}: the world of epoch {epoch} has failed: {reason}"))
        book.stale_world = True
        if book.phase == "running":
            self._change(book, now)

    def _run(self, book: IslandState, now: int) -> None:
        book.stale_world = False
        book.scheduler.paused = False
        for host in spans.items(book.fresh):
            self._resources.host_joined(host)
        book.fresh = spans.EMPTY
        self._outbox.effect(
            Tell(f"island {book.island.name!r} runs: epoch {book.epoch}, hosts {spans.text(book.members)}")
        )
        self._outbox.effect(DropWorlds(book.island.index, book.epoch))
        book.formed = book.epoch
        self._state.epochs += 1
        self._failures.epoch_formed(book, now)
        self.recovery.island_formed(now)
        for host in book.leaving:
            self._resources.host_draining(host)
        if book.coming or book.leaving:
            self._change(book, now)
