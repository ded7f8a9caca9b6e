"""Wraps a machine with its links: a message to a peer arrives once and in order, or the peer is declared gone.

The machine inside (controller, host or client) deals with peers and messages: `Send` and `Close` come from it;
`MessageReceived`, `Connected` and `Disconnected` go to it. The driver outside deals with connections and packets:
`ConnectionUp`, `ConnectionDown` and `PacketReceived` come from it; `Dial`, `Write` and `HangUp` go to it. An endpoint
has one `Link` for each peer, which survives the loss of a connection. All other events and commands pass through
unchanged, in order.

A packet is a frame of a link, or the `Hello` that both ends write first on every connection. A Hello names the
sender's link, and the link that the sender believes the peer has. So if one end has started a new link, because it
was restarted or because its lease ran out, the other end learns this before it takes any frame. It drops its own link,
and both go on with new links. A late frame of an old link is never taken for one of the new link.

    write Hello(mine, theirs)                   on ConnectionUp, and when `mine` has changed
    the peer's link is not the one before       end the old link (Disconnected) and start a new one
    the peer names another link than mine       it does not know mine yet: wait for its next Hello
    both agree                                  the link is up; if it is new: Connected

A peer of the same process is *near* from `NearUp` to `NearDown`: it needs no link. Messages to it are `Hand`ed over
as objects, and its messages come as the events that the machine takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Literal, Protocol

import msgspec

from .. import protocol as p
from .link import Deliver, Frame, Link, LinkCommand, Transmit


class Machine(Protocol):
    def handle(self, event: Any, now: int) -> Sequence[p.Command]: ...

    def next_wakeup(self) -> int | None: ...


# --- from the driver and to it --------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, gc=False):
    """The first packet of a connection."""

    mine: int  # number of the sender's link
    theirs: int  # number of the peer's link, as the sender knows it; 0 if it knows none


Packet = Frame | Hello
ANEW = "it began anew"  # the reason, if a peer has dropped our link or was restarted
LONGEST_ATTEMPT = 5_000_000_000  # nanoseconds


class ConnectionUp(p.Event, frozen=True):
    """A connection with this peer exists, whichever end dialled. An earlier connection has ended."""

    peer: int


class ConnectionDown(p.Event, frozen=True):
    peer: int


class PeerMoved(p.Event, frozen=True):
    """The driver has learnt that this peer was restarted elsewhere, so the link to its old process has ended."""

    peer: int


class PacketReceived(p.Event, frozen=True):
    peer: int
    packet: Packet


class NearUp(p.Event, frozen=True):
    """This peer is in the same process: what is handed over arrives once and in order."""

    peer: int


class NearDown(p.Event, frozen=True):
    """Nothing more comes from this near peer, and nothing reaches it."""

    peer: int


class Dial(p.Command, frozen=True):
    """Keep trying to connect to this peer until ConnectionUp, and again after each ConnectionDown, until HangUp."""

    peer: int


class Write(p.Command, frozen=True):
    """Write this packet to the peer's connection, if it is up.

    A message that goes to many peers is the same object in all their frames, so a driver encodes it once.
    """

    peer: int
    packet: Packet


class Hand(p.Command, frozen=True):
    """Hand this message to a near peer, in the order of these commands."""

    peer: int
    message: msgspec.Struct


class HangUp(p.Command, frozen=True):
    """Close the connection to this peer after all that has been written, and stop dialling it."""

    peer: int
    reason: str
    breach: str = ""  # if the peer broke a rule: "malformed" or "protocol"


Reach = Literal["dial", "await", "drop"]


class Peer:
    """The link to one peer, and the number of the peer's own link."""

    __slots__ = ("due", "link", "mine", "theirs", "up")

    def __init__(self, link: Link, mine: int) -> None:
        self.link = link
        self.mine = mine
        self.theirs = 0  # 0 until its Hello has come
        self.up = False  # whether there is a connection
        self.due = -1  # the time of its entry in the heap; -1 if it has none


class Endpoint:
    """A machine with one link for each of its peers.

    `me` is the number by which peers know this machine. A message that the machine sends to itself comes straight
    back, and the driver also gets it, since a Chunk has contents to copy. `identity` must differ for each start of
    the process. `homes` are peers to which there is always a link. `reach(peer)` says what to do with a message to a
    peer without a link: dial the peer, wait for it (for a lease), or drop the message.
    """

    def __init__(
        self, machine: Machine, me: int, identity: int, lease: int, *,
        homes: tuple[int, ...] = (), reach: Callable[[int], Reach] = lambda peer: "dial",
    ) -> None:  # fmt: skip
        self.machine = machine
        self.me = me
        self._lease = lease
        self._links = identity << 32  # the last number given to a link
        self._homes = homes
        self._reach = reach
        self._peers: dict[int, Peer] = {}
        self._near: set[int] = set()  # peers without a link
        self._away: dict[int, int] = {}  # homes without a connection, and since when each is out of reach
        self._heap: list[tuple[int, int]] = []  # (wake-up, peer); a stale entry only causes an early wake-up
        self._due: int | None = None  # what `next_wakeup` last returned
        self._events: deque[p.Event] = deque()  # for the machine
        self._out: list[p.Command] = []

    def start(self, now: int) -> list[p.Command]:
        """Begin the links to `homes`. Call this once, before anything else."""
        self._out = []
        self._away = dict.fromkeys(self._homes, now)
        for peer in self._homes:
            self._begin(peer, now)
        return self._out

    def handle(self, event: p.Event, now: int) -> list[p.Command]:
        self._out = []
        if self._due is not None and now - self._due > self._lease // 8:
            self._excuse_silence(now)
        act = ACTS.get(type(event))
        if act is None:
            self._events.append(event)
        else:
            act(self, event, now)
        self._run(now)
        return self._out

    def next_wakeup(self) -> int | None:
        """Return the next time to send Wakeup. It may be too early, never too late; an early Wakeup does nothing."""
        machine = self.machine.next_wakeup()
        links = self._heap[0][0] if self._heap else machine
        self._due = links if machine is None or (links is not None and links < machine) else machine
        return self._due

    @property
    def attempt(self) -> int:
        """Nanoseconds for one attempt to connect. What is lost on the way is tried again well before a lease is over;
        and soon after the way is there again, however long the lease is."""
        return min(self._lease // 2, LONGEST_ATTEMPT)

    @property
    def unacknowledged(self) -> int:
        """For how many nanoseconds a connection may have written what the other machine does not take. It is given up
        then, because another one gets through at once when the way is there again."""
        return self._lease // 2

    def away(self, home: int, now: int) -> int:
        """For how many nanoseconds this home has been out of reach: it has no connection, or says nothing on it. A
        lease that ends meanwhile changes nothing."""
        peer = self._peers.get(home)
        if peer is None:
            return 0
        if self._due is not None:  # since then, this process has not run, and has read nothing
            now = min(now, self._due)
        return now - self._away.get(home, now - peer.link.silence(now))

    def linked(self, peer: int) -> bool:
        return peer in self._peers or peer in self._near

    def keeps_ours(self, peer: int) -> bool:
        """Whether the connection that this end dialled is kept, if two hosts have dialled each other.

        Both ends decide the same. Otherwise each could close the connection that the other keeps, again and again.
        """
        return self.me < peer

    # --- the machine's side -----------------------------------------------------------------------------

    def _run(self, now: int) -> None:
        events = self._events
        while events:
            for effect in self.machine.handle(events.popleft(), now):
                if isinstance(effect, p.Send):
                    for peer in effect.peers:
                        self._send(peer, effect.message, now)
                elif isinstance(effect, p.Close):
                    self._drop(effect.peer, effect.reason, now, effect.breach)
                    if effect.peer in self._homes:
                        self._begin(effect.peer, now)
                else:
                    self._out.append(effect)

    def _send(self, number: int, message: msgspec.Struct, now: int) -> None:
        if number == self.me:
            self._out.append(p.Send((number,), message))
            self._events.append(p.MessageReceived(number, message))
            return
        if number in self._near:
            self._out.append(Hand(number, message))
            return
        peer = self._peers.get(number)
        if peer is None:
            if self._reach(number) == "drop":
                return
            peer = self._begin(number, now)
        self._carry_out(number, peer, peer.link.send(message, now), now)

    # --- the connections' side --------------------------------------------------------------------------

    def _packet(self, event: PacketReceived, now: int) -> None:
        number, packet = event.peer, event.packet
        peer = self._peers.get(number)
        if peer is None:
            return  # from a connection that this end has closed
        if isinstance(packet, Hello):
            self._hello(number, peer, packet, now)
        else:
            self._carry_out(number, peer, peer.link.frame_came(packet, now), now)

    def _connection_up(self, event: ConnectionUp, now: int) -> None:
        number = event.peer
        peer = self._peers.get(number) or self._begin(number, now)
        if peer.up:
            peer.link.disconnected(now)
        peer.up = True
        self._out.append(Write(number, Hello(peer.mine, peer.theirs)))

    def _connection_down(self, event: ConnectionDown, now: int) -> None:
        peer = self._peers.get(event.peer)
        if peer is not None and peer.up:
            peer.up = False
            self._miss(event.peer, peer, now)
            self._carry_out(event.peer, peer, peer.link.disconnected(now), now)

    def _near_up(self, event: NearUp, now: int) -> None:
        number = event.peer
        self._away.pop(number, None)
        peer = self._peers.pop(number, None)
        if number in self._near or (peer is not None and peer.theirs):
            self._events.append(p.Disconnected(number, ANEW, True))
            self._run(now)
        elif peer is not None:  # the machine has spoken already
            self._out += [Hand(number, message) for message in peer.link.unacknowledged]
        self._near.add(number)
        self._events.append(p.Connected(number))

    def _near_down(self, event: NearDown, now: int) -> None:
        if event.peer in self._near:
            self._end(event.peer, "it has ended", now)

    def _moved(self, event: PeerMoved, now: int) -> None:
        self._end(event.peer, "it began anew elsewhere", now, anew=True)

    def _malformed(self, event: p.Malformed, now: int) -> None:
        self._end(event.peer, event.reason, now, "malformed")

    def _hello(self, number: int, peer: Peer, hello: Hello, now: int) -> None:
        if not peer.up:
            return
        anew = peer.theirs not in (0, hello.mine)
        if anew:
            # The machine is told first. The messages that it then sends are for the new link.
            del self._peers[number]
            self._events.append(p.Disconnected(number, ANEW, True))
            self._run(now)
            peer = self._peers.get(number) or self._begin(number, now)
            peer.up = True
        if hello.theirs not in (0, peer.mine) and not anew:
            return
        if anew:
            self._out.append(Write(number, Hello(peer.mine, hello.mine)))
            if hello.theirs:
                return  # the peer knows our old link; it will answer with a Hello for the new one
        if not peer.theirs:
            peer.theirs = hello.mine
            self._events.append(p.Connected(number))
        self._away.pop(number, None)
        self._carry_out(number, peer, peer.link.connected(now), now)

    def _begin(self, number: int, now: int) -> Peer:
        """Start a new link. To dial does no harm if there is a connection."""
        self._links += 1
        peer = self._peers[number] = Peer(Link(now, self._lease), self._links)
        self._schedule(number, peer)
        if self._reach(number) == "dial":
            self._out.append(Dial(number))
        return peer

    def _end(self, number: int, reason: str, now: int, breach: str = "", anew: bool = False) -> None:
        """End this link for good, and tell the machine."""
        if self.linked(number):
            self._drop(number, reason, now, breach)
            self._events.append(p.Disconnected(number, reason, anew))
            if number in self._homes:
                self._begin(number, now)

    def _drop(self, number: int, reason: str, now: int, breach: str) -> None:
        if self.linked(number):
            self._miss(number, self._peers.pop(number, None), now)
            self._near.discard(number)
            self._out.append(HangUp(number, reason, breach))

    def _miss(self, number: int, peer: Peer | None, now: int) -> None:
        """This peer has lost its connection. If it is a home, remember since when it is out of reach."""
        if number in self._homes:
            self._away.setdefault(number, now if peer is None else now - peer.link.silence(now))

    # --- links ------------------------------------------------------------------------------------------

    def _excuse_silence(self, now: int) -> None:
        """Do not hold the time in which this process did not run (it was stopped or starved) against its peers.

        Their messages from that time have still to be read.
        """
        assert self._due is not None
        for peer in self._peers.values():
            peer.link.excuse(now - self._due, now)
        self._due = None

    def _carry_out(self, number: int, peer: Peer, commands: list[LinkCommand], now: int) -> None:
        for command in commands:
            if isinstance(command, Transmit):
                self._out.append(Write(number, command.frame))
            elif isinstance(command, Deliver):
                self._events.append(p.MessageReceived(number, command.message))
            else:
                self._end(number, command.reason, now, "protocol" if command.violation else "")
                return
        self._schedule(number, peer)

    def _schedule(self, number: int, peer: Peer) -> None:
        """Enter the link's wake-up in the heap. A later wake-up than the one entered waits until that one comes."""
        if peer.due >= 0 and not peer.link.hastened:
            return
        due = peer.link.next_wakeup()
        if due is not None and not 0 <= peer.due <= due:
            peer.due = due
            heappush(self._heap, (due, number))

    def _wakeup(self, event: p.Wakeup, now: int) -> None:
        while self._heap and self._heap[0][0] <= now:
            due, number = heappop(self._heap)
            peer = self._peers.get(number)
            if peer is not None and peer.due == due:
                peer.due = -1
                self._carry_out(number, peer, peer.link.wakeup(now), now)
        machine = self.machine.next_wakeup()
        if machine is not None and machine <= now:
            self._events.append(p.Wakeup())


ACTS: dict[type[p.Event], Callable[[Endpoint, Any, int], None]] = {
    PacketReceived: Endpoint._packet, ConnectionUp: Endpoint._connection_up, ConnectionDown: Endpoint._connection_down,
    p.Wakeup: Endpoint._wakeup, NearUp: Endpoint._near_up, NearDown: Endpoint._near_down, PeerMoved: Endpoint._moved,
    p.Malformed: Endpoint._malformed,
}  # fmt: skip  # other events are the machine's

# --- the three kinds of process: they differ in which peers they dial ------------------------------------------------


def for_controller(machine: Machine, identity: int, lease: int) -> Endpoint:
    """Return the controller's endpoint. It never dials, and drops messages to peers without a link."""
    return Endpoint(machine, p.peers.CONTROLLER, identity, lease, reach=lambda peer: "drop")


def for_host(machine: Machine, host: int, identity: int, lease: int) -> Endpoint:
    """Return a host's endpoint. It keeps a link to the controller, dials other hosts, and waits for clients to dial."""
    return Endpoint(
        machine, host, identity, lease,
        homes=(p.peers.CONTROLLER,), reach=lambda peer: "await" if p.peers.is_client(peer) else "dial",
    )  # fmt: skip


def for_client(machine: Machine, me: int, identity: int, lease: int) -> Endpoint:
    """Return a client's endpoint. It keeps a link to the controller, and dials hosts. `me` must be unique."""
    return Endpoint(machine, me, identity, lease, homes=(p.peers.CONTROLLER,))
