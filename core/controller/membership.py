"""Membership of islands, in epochs: which hosts are members, which tree reaches them, and what a change does.

    forming ---all here, or grace over--> reforming
    running --member lost--> fencing --all re-seated--> draining --all ended--> reforming --all seated--> running
    running --join, leave--> draining
    running --path lost----> fencing (same members, new tree) --all re-seated--> draining or running
    any but forming --no member left--> forming

Fencing: survivors get a new seat (a new tree, the same epoch) directly; it fences every older path, names the gangs
that can never finish, and asks each host for the last message it has seen, so that what was lost on a dead path is
sent again *through the new tree*, where nothing can overtake it. Draining: nothing new enters; what is in flight and
can finish does. Reforming: the next epoch's world is set up, hosts take their seats in it, code is compiled anew.
Messages of another epoch or tree are refused on both sides. Nothing is sent down a tree that is not all seated.

In: hosts that come and go, worlds that form or fail; from the agenda, hosts that are lost and epochs that are broken.
Neighbours: `Resources` learns which hosts are there; `failures` ends what a lost host has broken; `recovery` rebuilds.
The functions that matter: `join`, `lost`, `seated`, `broken`, `move_on`.
"""

from msgspec.structs import replace

from ..fanout import Stream, Tree, TreeShape
from ..model import spans
from ..protocol import Close, Dismiss, DropWorlds, FormWorld, GrownStep, Join, LogLine, Seat, Send
from ..slices import Resources
from .failures import Failures
from .in_flight import InFlightTable
from .outbox import TurnOutbox
from .recovery import Recovery
from .state import ControllerModule, IslandState, State
from .trace_rows import Tracing
from .watch import Watchdog

OTHER_STATE = (
    "it has served a start of the controller that this --state does not know, so this --state is an older copy, or "
    "another one"
)
REMEDY = (
    "End this controller, and start it with the newest --state. If that is lost, add --forget: hosts and clients begin "
    "anew, without their arrays. (If only some hosts say so, an older copy was in use meanwhile: restart their agents)"
)


DRAINED = "it was drained, and its cordon has not been lifted since"


class Membership(ControllerModule):
    _state: State
    _failures: Failures
    _in_flight: InFlightTable
    _outbox: TurnOutbox
    _recovery: Recovery
    _resources: Resources
    _shape: TreeShape
    _tracing: Tracing | None
    _watch: Watchdog

    # --- hosts come --------------------------------------------------------------------------------------------

    def stranger(self, peer: int, join: Join) -> str:
        """Why a host may not be a member, though nothing is wrong with it: "" if it may. It keeps what it has, for the
        controller that it belongs to."""
        state = self._state
        if join.start in state.starts or not 0 <= join.host < state.cluster.hosts or peer in state.host_peers:
            return ""
        if peer not in state.strangers:
            state.strangers[peer] = join.host
            text = f"host {join.host} does not obey this controller: {OTHER_STATE}. {REMEDY}"
            self._outbox.effect(LogLine(text, alarm=True))
        return f"{OTHER_STATE}. {REMEDY}"

    def join(self, peer: int, join: Join, now: int) -> str | None:
        """A host presents itself on its direct connection. Returns what is wrong with it, if anything."""
        if not 0 <= join.host < self._state.cluster.hosts:
            return f"host {join.host} is not in this cluster ({self._state.cluster.hosts} hosts)"
        island = self._state.islands[self._state.cluster.island_of_host(join.host).index]
        known = island.incarnations.get(join.host, -1)
        if join.incarnation < known:
            return self._turn_away(peer, join, f"incarnation {join.incarnation} is older than {known}")
        if join.incarnation <= island.dismissed.get(join.host, -1):
            # It was cut off and has not heard that it was given up: what it still has belongs to nobody.
            return self._turn_away(peer, join, f"incarnation {join.incarnation} was given up")
        if join.host in self._state.drained:
            return self._turn_away(peer, join, DRAINED)
        wrong = self._recovery.nonsense(join)
        if wrong:
            return f"host {join.host} {wrong}"
        if self._state.host_peers.get(peer, join.host) != join.host:
            return f"host {self._state.host_peers[peer]} joins as host {join.host}"
        if join.epoch >= 0 and not self._recovery.under_way and not spans.contains(island.members, join.host):
            return self._turn_away(peer, join, "it was not waited for any longer")
        returned = join.incarnation > known and spans.contains(island.members, join.host)
        old_peer = island.peers.get(join.host)
        island.rewired()
        if old_peer is not None and old_peer != peer:
            self._state.host_peers.pop(old_peer, None)
        if returned:
            self.lost(island, join.host, "it came back as another incarnation", now)
        island.peers[join.host] = peer
        self._state.host_peers[peer] = join.host
        if join.incarnation > known:
            self._state.diskless.pop(join.host, None)
        island.incarnations[join.host] = join.incarnation
        if spans.contains(island.members, join.host):
            self._path_lost(island, now)  # same incarnation, same seat: only its way to us has changed
            return None
        island.coming[join.host] = join
        self._recovery.reported(join)
        self._failures.new_host(island, join)
        self._has_come(island, now)
        return None

    def _has_come(self, island: IslandState, now: int) -> None:
        """A new host is here."""
        if island.phase == "forming":
            self._form_if_complete(island, now)
        elif island.phase == "running":
            self._change(island, now)
        elif self._watch.waits_for(("pause", island.island.index)):
            self._reform(island, now)  # it may be what was missing

    def _turn_away(self, peer: int, join: Join, reason: str) -> str | None:
        """It is to begin anew. To have stood still is no breach of the protocol; to join where it has joined is one."""
        self._outbox.effect(Send((peer,), Dismiss(join.host, reason, join.host in self._state.drained)))
        text = f"host {join.host}: {reason}"
        if peer in self._state.host_peers:
            return text
        self._recovery.forget(peer)
        self._outbox.close(Close(peer, text, breach=""))
        return None

    def _form_if_complete(self, island: IslandState, now: int) -> None:
        awaited = self._recovery.awaited(island.island) or island.island.host_span
        if len(island.coming) < spans.count(awaited) or not spans.within(awaited, spans.of(island.coming)):
            # The grace is counted from the last that came: hosts that start one after another make one epoch.
            key, form = ("forming", island.island.index), lambda at: self._form_anyway(island, at)
            self._watch.begin(key, now, 0, form, form)
            return
        self._form_anyway(island, now)

    def _form_anyway(self, island: IslandState, now: int) -> None:
        """Begin with the hosts that are here: all of them, or those that came before the grace was over."""
        if island.phase == "forming" and island.coming:
            self._watch.end(("forming", island.island.index))
            island.turn("complete")
            self._reform(island, now)

    def grown(self) -> None:
        """Tell the hosts that have a seat, or are being offered one; others learn of it with theirs."""
        for island in self._state.islands:
            step = GrownStep(self._state.all_hosts)
            self._outbox.step(island.island.index, step, island.stream.shape.members)
        self._outbox.effect(LogLine(f"the cluster has grown: {'; '.join(self._state.cluster.describe().splitlines())}"))

    # --- hosts go ----------------------------------------------------------------------------------------------

    def leave(self, host: int, reason: str, now: int) -> None:
        """Graceful: what is in flight ends first."""
        island = self._state.island_of_host(host)
        if not spans.contains(island.members, host):
            island.coming.pop(host, None)
            self._dismiss(island, host, reason)
            return
        island.leaving[host] = reason or "it asked to leave"
        if not spans.contains(island.fresh, host):
            self._resources.host_draining(host)
        if island.phase == "running":
            self._change(island, now)

    def lost(self, island: IslandState, host: int, reason: str, now: int) -> None:
        """A host is gone: its gangs will never finish, its buffers are lost, its island re-forms without it."""
        island.coming.pop(host, None)
        island.leaving.pop(host, None)
        island.apart = spans.minus(island.apart, spans.one(host))
        self._recovery.host_lost(host)
        if not spans.contains(island.members, host):
            self._dismiss(island, host, reason)
            return
        self._outbox.effect(LogLine(f"host {host} of island {island.island.name!r} is lost: {reason}"))
        self._dismiss(island, host, reason)
        island.members = spans.minus(island.members, spans.one(host))
        self._forget(island, host)
        self._failures.host_lost(island, host, reason, now)
        if not island.members:
            self._empty(island)
            if island.coming:
                self._form_if_complete(island, now)
            return
        self.broken(island, now)

    def _forget(self, island: IslandState, host: int) -> None:
        """Give the host no more work. A new host has had none."""
        if spans.contains(island.fresh, host):
            island.fresh = spans.minus(island.fresh, spans.one(host))
        else:
            self._resources.host_lost(host)
            if self._tracing is not None:
                self._tracing.lost(island.island.devices_of(host))

    def _dismiss(self, island: IslandState, host: int, reason: str) -> None:
        """Tell the host to stop and come back as a new one, if it lives. What it still says is ignored."""
        island.dismissed[host] = island.incarnations.get(host, -1)
        island.rewired()
        peer = island.peers.pop(host, None)
        if peer is not None and self._state.host_peers.pop(peer, None) is not None:
            self._state.dismissed[peer] = host
            self._outbox.effect(Send((peer,), Dismiss(host, reason, host in self._state.drained)))

    def broken(self, island: IslandState, now: int) -> None:
        """A member, a device or a launch is lost: this epoch ends."""
        if island.phase == "forming":
            return
        island.scheduler.paused = True
        island.stale_world = True
        self._watch.end(("peer", island.island.index))
        again = island.phase == "reforming"
        island.turn("lost")
        if again:
            self._reform(island, now)  # a world with a dead member never forms: go straight to the next
        else:
            self._fence(island, now)

    def path_lost(self, host: int, now: int) -> None:
        """The host may live, but the relay above it does not reach it: a new tree, in which it hangs below us. If
        it is dead, its own connection to us will say so."""
        island = self._state.island_of_host(host)
        if spans.contains(island.members, host):
            island.apart = spans.union(island.apart, spans.one(host))
            self._path_lost(island, now)

    def _path_lost(self, island: IslandState, now: int) -> None:
        if island.phase == "forming":
            return
        island.scheduler.paused = True
        island.turn("path")
        if island.phase == "fencing" or island.world_epoch == island.epoch:
            self._fence(island, now)

    def _empty(self, island: IslandState) -> None:
        """Nobody is left: it forms anew when somebody comes. What was said to it, nobody needs to hear."""
        island.turn("empty")
        island.abandon, island.dropped = [], []
        island.stream = Stream(island.island.index, number=island.stream.number)
        for wait in ("seats", "drain", "world", "pause", "peer"):
            self._watch.end((wait, island.island.index))

    def _change(self, island: IslandState, now: int) -> None:
        island.turn("change")
        island.scheduler.paused = True
        self._watch_drain(island, now)
        self.move_on(island, now)

    # --- seats -------------------------------------------------------------------------------------------------

    def _fence(self, island: IslandState, now: int) -> None:
        island.tree_number += 1
        self._offer_seats(island, now)

    def _offer_seats(self, island: IslandState, now: int) -> None:
        """Send each member its seat directly: with its tree and epoch the member refuses all older paths."""
        index = island.island.index
        island.rewired()
        shape = self._shape(island.members, self._state.config.fanout, island.apart)
        island.stream.refence(island.epoch, island.tree_number, shape)
        abandon, dropped = tuple(island.abandon), tuple(island.dropped)
        for host in spans.items(island.members):
            seat = replace(
                island.stream.seat(host, abandon, dropped), start=self._state.start, all_hosts=self._state.all_hosts
            )
            self._outbox.effect(Send((island.peers[host],), seat))
        self._watch.begin(
            ("seats", index), now, 0, lambda at: self._tell_unseated(island), lambda at: self._lose_unseated(island, at)
        )

    def _tell_unseated(self, island: IslandState) -> None:
        who = spans.text(island.stream.missing)
        text = f"island {island.island.name!r} waits for hosts {who} to take their seats"
        self._outbox.effect(LogLine(text))

    def _lose_unseated(self, island: IslandState, now: int) -> None:
        epoch = island.epoch
        for host in spans.items(island.stream.missing):
            reason = "it did not take its seat in time"
            island.broken.add(epoch, host, reason, now)
            self.lost(island, host, reason, now)

    def reshape(self, number: int) -> None:
        """Ask again for the shape of an island's tree, which is another now though its hosts and seats are the same."""
        island = self._state.islands[number]
        island.rewired()
        island.stream.reshape(self._shape(island.members, self._state.config.fanout, island.apart))

    def standing(self, number: int, order: int) -> tuple[Seat, Tree] | None:
        """The seat of an island's first host, and the tree in which it is, when this order is about to be written; None
        while any of that is about to change, or orders are sent again that only some hosts lack. Only a simulator needs
        this: it may then have one host speak for all."""
        island = self._state.islands[number]
        if island.phase != "running" or island.coming or island.leaving or island.stale_world:
            return None
        if order <= island.stream.again or any(spans.contains(island.members, host) for host in self._state.draining):
            return None
        return island.stream.seat(island.members[0][0]), island.stream.shape

    def seated(self, host: int, epoch: int, tree_number: int, last: int, now: int) -> None:
        island = self._state.island_of_host(host)
        if not island.stream.forming or (epoch, tree_number) != (island.epoch, island.tree_number):
            return  # of a seat that has been replaced meanwhile
        again = island.stream.rejoin(host, last)
        if island.stream.unseated:
            return
        for message in again:  # what was lost on dead paths goes first, through the new tree
            self._outbox.send(island, message)
        self._watch.end(("seats", island.island.index))
        island.abandon, island.dropped = [], []
        was = island.phase
        island.turn("seated")
        if was == "fencing":
            self._watch_drain(island, now)
            self.move_on(island, now)
        else:
            self._run(island, now)

    # --- draining and forming anew --------------------------------------------------------------------------------

    def _watch_drain(self, island: IslandState, now: int) -> None:
        expected = sum(entry.cost for entry in self._in_flight.on(island.island.index))
        self._watch.begin(
            ("drain", island.island.index), now, expected,
            lambda at: self._in_flight.report_oldest(island.island.index, at, "draining"),
            lambda at: self._give_up(island, at),
        )  # fmt: skip

    def _give_up(self, island: IslandState, now: int) -> None:
        """It cannot drain."""
        self._failures.give_up_flights(island, now)
        self.move_on(island, now)

    def settle(self, now: int) -> bool:
        """When nothing else moves. True: an island has drained, so something may."""
        moved = False
        for island in self._state.islands:
            if island.phase == "draining":
                self.move_on(island, now)
                moved |= island.phase != "draining"
        return moved

    def move_on(self, island: IslandState, now: int) -> None:
        """A draining island with nothing in flight forms anew."""
        if island.phase != "draining":
            return
        changed = island.coming or island.leaving or island.stale_world
        if changed and island.in_flight:
            return
        self._watch.end(("drain", island.island.index))
        if not changed:
            island.turn("nothing changed")
            island.scheduler.paused = False
            self._state.fresh = True  # runs may have come for memory meanwhile
            return
        island.turn("drained")
        self._reform(island, now)

    def _reform(self, island: IslandState, now: int) -> None:
        """Begin the next epoch, with hosts that have come, without those that leave. Code is compiled again. It waits
        where epochs have broken for the same reason, unless another host has come."""
        for wait in ("peer", "pause", "seats", "world"):
            self._watch.end((wait, island.island.index))
        pause = 0 if island.coming else island.broken.pause
        for host, reason in sorted(island.leaving.items()):
            island.members = spans.minus(island.members, spans.one(host))
            self._forget(island, host)
            self._recovery.host_lost(host)
            self._failures.host_left(island, host, reason, now)
            self._dismiss(island, host, reason)
        island.leaving = {}
        island.fresh = spans.union(island.fresh, spans.of(island.coming))
        island.members = spans.union(island.members, island.fresh)
        island.coming = {}
        if not island.members:
            self._empty(island)
            return
        island.epoch += 1
        self._state.epochs += 1
        if pause:
            key = ("pause", island.island.index)
            self._watch.begin_for(key, now, pause, lambda at: self._form(island, at))
        else:
            self._form(island, now)

    def _form(self, island: IslandState, now: int) -> None:
        self._outbox.effect(FormWorld(island.island.index, island.epoch, island.members))
        self._watch.begin(
            ("world", island.island.index), now, 0,
            lambda at: self._outbox.effect(LogLine(f"island {island.island.name!r}: its world is slow to form")),
            lambda at: self.world_failed(island.island.index, island.epoch, "it took too long", at),
        )  # fmt: skip

    def world_up(self, number: int, epoch: int, now: int) -> None:
        island = self._state.islands[number]
        if (island.phase, island.epoch) == ("reforming", epoch):
            self._watch.end(("world", number))
            island.world_epoch = epoch
            self._fence(island, now)

    def world_failed(self, number: int, epoch: int, reason: str, now: int) -> None:
        """Try once more, as a new epoch; the driver has said why in its own log. A world that had formed, and has
        lost what it needs to form again, is left when what is in flight has ended."""
        island = self._state.islands[number]
        if island.phase == "forming" or island.epoch != epoch:
            return
        tell = self._outbox.effect
        if island.phase == "reforming":
            tell(LogLine(f"island {island.island.name!r}: epoch {epoch} did not form: {reason}"))
            self._failures.epoch_broken(island, -1, reason, now)
            self._reform(island, now)
            return
        tell(LogLine(f"island {island.island.name!r}: the world of epoch {epoch} has failed: {reason}"))
        island.stale_world = True
        if island.phase == "running":
            self._change(island, now)

    def _run(self, island: IslandState, now: int) -> None:
        island.stale_world = False
        island.scheduler.paused = False
        if not island.broken.apart or spans.count(island.members) == 1:
            island.broken.worked()
        for host in spans.items(island.fresh):
            self._resources.host_joined(host)
            if self._tracing is not None:
                self._tracing.back(island.island.devices_of(host))
        island.fresh = spans.EMPTY
        name, hosts = island.island.name, spans.text(island.members)
        self._outbox.effect(LogLine(f"island {name!r} runs: epoch {island.epoch}, hosts {hosts}"))
        self._outbox.effect(DropWorlds(island.island.index, island.epoch))
        island.formed = island.epoch
        self._state.epochs += 1
        self._failures.epoch_formed(island, now)
        self._recovery.island_formed(island.members, now)
        for host in island.leaving:
            self._resources.host_draining(host)
        if island.coming or island.leaving:
            self._change(island, now)
