"""A machine and its connections: what it sends to a peer arrives once and in order, or the peer is gone.

The machine inside (controller, host or client) speaks of peers and messages: `Send`, `Close`, `Came`,
`Connected`, `Disconnected`. The driver outside speaks of connections and packets: `ConnectionUp`,
`ConnectionDown`, `PacketCame` in; `Dial`, `Write`, `Hang` out. Between them stands one `Link` a peer, which
outlives its connections. Everything else, from the devices say, or for them, passes through untouched and
in its place.

A packet is a link's frame, or the `Hello` that both ends write first on every connection. It names the link
by which its sender speaks, and the one that it believes the other has. So when one end has begun anew (it
was restarted, or its lease ran out), the other learns of it before it takes a single frame, gives up its
own end, and both go on with fresh links; a late frame of an old conversation is never taken for one of the
new.

    write Hello(mine, theirs)                 on ConnectionUp, and when `mine` has changed
    theirs was another before                 the old link ends (Disconnected); begin anew
    the peer names another link than mine     it does not know yet: wait for its next Hello
    both agree                                the link is up; if it is new: Connected
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Literal, Protocol

import msgspec

from ..protocol import Came, Close, Connected, Disconnected, Effect, Malformed, Send, Wakeup, peers
from .link import Command, Deliver, Frame, Link, Transmit


class Machine(Protocol):
    def handle(self, event: Any, now: int) -> Sequence[Effect]: ...

    def next_wakeup(self) -> int | None: ...


# --- from the driver and to it --------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, gc=False):
    """First packet of a connection. `theirs` 0: it has not heard of any link of the other's."""

    mine: int
    theirs: int


Packet = Frame | Hello
ANEW = "it began anew"  # of a peer that has given our link up, or was started again


class ConnectionUp(Effect, frozen=True):
    """There is a connection with this peer, whoever dialled. An earlier one is over."""

    peer: int


class ConnectionDown(Effect, frozen=True):
    peer: int


class Elsewhere(Effect, frozen=True):
    """The driver has heard where this peer has begun anew. What is said on the link to its old start nobody hears."""

    peer: int


class PacketCame(Effect, frozen=True):
    peer: int
    packet: Packet


class Dial(Effect, frozen=True):
    """Keep trying to connect to this peer until ConnectionUp, and again after each ConnectionDown, until
    Hang."""

    peer: int


class Write(Effect, frozen=True):
    """To this peer's connection, if it is up. A message that goes to many peers is one object in all their
    frames: encode it once."""

    peer: int
    packet: Packet


class Hang(Effect, frozen=True):
    """Done with this peer: end its connection behind what has been written, and dial it no more. `breach`: what it has
    done wrong, if that is why: "malformed" or "protocol"."""

    peer: int
    reason: str
    breach: str = ""


Reach = Literal["dial", "await", "drop"]


class Peer:
    """The link to one peer, and what the two ends know of each other's."""

    __slots__ = ("due", "link", "mine", "theirs", "up")

    def __init__(self, link: Link, mine: int) -> None:
        self.link = link
        self.mine = mine
        self.theirs = 0  # 0: not introduced yet
        self.up = False  # there is a connection
        self.due = -1  # the wake-up for which it stands in the heap


class Endpoint:
    """`me`: how peers know it; what the machine sends to itself comes straight back, and is shown to the
    driver (it may be a Chunk, with contents to copy). `identity`: another number for each start of the
    process. `homes`: peers to whom there is always a link. `reach`: what becomes of a word to a peer that
    is not linked: this end dials, or awaits the peer (for a lease), or drops what it said."""

    def __init__(
        self, machine: Machine, me: int, identity: int, lease: int, *,
        homes: tuple[int, ...] = (), reach: Callable[[int], Reach] = lambda peer: "dial",
    ) -> None:  # fmt: skip
        self.machine = machine
        self.me = me
        self._lease = lease
        self._links = identity << 32  # the last number given to a link of ours
        self._homes = homes
        self._reach = reach
        self._peers: dict[int, Peer] = {}
        self._heap: list[tuple[int, int]] = []  # (wake-up, peer); a stale entry wakes us early, no more
        self._due: int | None = None  # when we last asked to be woken
        self._events: deque[Effect] = deque()  # for the machine
        self._out: list[Effect] = []

    def start(self, now: int) -> list[Effect]:
        """Call once, before anything else."""
        self._out = []
        for peer in self._homes:
            self._begin(peer, now)
        return self._out

    def handle(self, event: Effect, now: int) -> list[Effect]:
        self._out = []
        if self._due is not None and now - self._due > self._lease // 8:
            self._overslept(now)
        match event:
            case PacketCame():
                self._packet(event.peer, event.packet, now)
            case ConnectionUp():
                self._connection_up(event.peer, now)
            case ConnectionDown():
                self._connection_down(event.peer, now)
            case Wakeup():
                self._wakeup(now)
            case Elsewhere():
                self._end(event.peer, "it began anew elsewhere", now, anew=True)
            case Malformed():
                self._end(event.peer, event.reason, now, "malformed")
            case _:
                self._events.append(event)
        self._run(now)
        return self._out

    def next_wakeup(self) -> int | None:
        """Never too late; it may be early, and the wake-up then does nothing."""
        machine = self.machine.next_wakeup()
        links = self._heap[0][0] if self._heap else machine
        self._due = links if machine is None or (links is not None and links < machine) else machine
        return self._due

    def linked(self, peer: int) -> bool:
        return peer in self._peers

    def keeps_ours(self, peer: int) -> bool:
        """Of two connections that two hosts have dialled to each other, whose is kept: both ends say the same. If each
        kept the other's, or the one that came last, they would end each other's for ever."""
        return self.me < peer

    # --- the machine's side -----------------------------------------------------------------------------

    def _run(self, now: int) -> None:
        events = self._events
        while events:
            for effect in self.machine.handle(events.popleft(), now):
                if isinstance(effect, Send):
                    for peer in effect.peers:
                        self._send(peer, effect.message, now)
                elif isinstance(effect, Close):
                    self._drop(effect.peer, effect.reason, effect.breach)
                    if effect.peer in self._homes:
                        self._begin(effect.peer, now)
                else:
                    self._out.append(effect)

    def _send(self, number: int, message: msgspec.Struct, now: int) -> None:
        if number == self.me:
            self._out.append(Send((number,), message))
            self._events.append(Came(number, message))
            return
        peer = self._peers.get(number)
        if peer is None:
            if self._reach(number) == "drop":
                return
            peer = self._begin(number, now)
        self._obey(number, peer, peer.link.send(message, now), now)

    # --- the connections' side --------------------------------------------------------------------------

    def _packet(self, number: int, packet: Packet, now: int) -> None:
        peer = self._peers.get(number)
        if peer is None:
            return  # of a connection that we have hung up
        if isinstance(packet, Hello):
            self._hello(number, peer, packet, now)
        else:
            self._obey(number, peer, peer.link.frame_came(packet, now), now)

    def _connection_up(self, number: int, now: int) -> None:
        peer = self._peers.get(number) or self._begin(number, now)
        if peer.up:
            peer.link.disconnected(now)
        peer.up = True
        self._out.append(Write(number, Hello(peer.mine, peer.theirs)))

    def _connection_down(self, number: int, now: int) -> None:
        peer = self._peers.get(number)
        if peer is not None and peer.up:
            peer.up = False
            self._obey(number, peer, peer.link.disconnected(now), now)

    def _hello(self, number: int, peer: Peer, hello: Hello, now: int) -> None:
        if not peer.up:
            return
        anew = peer.theirs not in (0, hello.mine)
        if anew:
            # The machine is told first. What it says to that is for the new link.
            del self._peers[number]
            self._events.append(Disconnected(number, ANEW, True))
            self._run(now)
            peer = self._peers.get(number) or self._begin(number, now)
            peer.up = True
        if hello.theirs not in (0, peer.mine) and not anew:
            return
        if anew:
            self._out.append(Write(number, Hello(peer.mine, hello.mine)))
            if hello.theirs:
                return  # it knows our old link: it will answer to the new one
        if not peer.theirs:
            peer.theirs = hello.mine
            self._events.append(Connected(number))
        self._obey(number, peer, peer.link.connected(now), now)

    def _begin(self, number: int, now: int) -> Peer:
        """A new link. Dialling is harmless where a connection is up."""
        self._links += 1
        peer = self._peers[number] = Peer(Link(now, self._lease), self._links)
        self._schedule(number, peer)
        if self._reach(number) == "dial":
            self._out.append(Dial(number))
        return peer

    def _end(self, number: int, reason: str, now: int, breach: str = "", anew: bool = False) -> None:
        """This link will never work again."""
        if number in self._peers:
            self._drop(number, reason, breach)
            self._events.append(Disconnected(number, reason, anew))
            if number in self._homes:
                self._begin(number, now)

    def _drop(self, number: int, reason: str, breach: str) -> None:
        if self._peers.pop(number, None) is not None:
            self._out.append(Hang(number, reason, breach))

    # --- links ------------------------------------------------------------------------------------------

    def _overslept(self, now: int) -> None:
        """This process has not run: it was stopped, or starved. What peers said meanwhile has still to be read, so
        their silence is counted from now on."""
        assert self._due is not None
        for peer in self._peers.values():
            peer.link.excuse(now - self._due, now)
        self._due = None

    def _obey(self, number: int, peer: Peer, commands: list[Command], now: int) -> None:
        for command in commands:
            if isinstance(command, Transmit):
                self._out.append(Write(number, command.frame))
            elif isinstance(command, Deliver):
                self._events.append(Came(number, command.message))
            else:
                self._end(number, command.reason, now, "protocol" if command.violation else "")
                return
        self._schedule(number, peer)

    def _schedule(self, number: int, peer: Peer) -> None:
        """A wake-up that has moved away is left where it is: it finds nothing to do and is put where it
        belongs."""
        due = peer.link.next_wakeup()
        if due is not None and not 0 <= peer.due <= due:
            peer.due = due
            heappush(self._heap, (due, number))

    def _wakeup(self, now: int) -> None:
        while self._heap and self._heap[0][0] <= now:
            due, number = heappop(self._heap)
            peer = self._peers.get(number)
            if peer is not None and peer.due == due:
                peer.due = -1
                self._obey(number, peer, peer.link.wakeup(now), now)
        machine = self.machine.next_wakeup()
        if machine is not None and machine <= now:
            self._events.append(Wakeup())


# --- the three kinds of process: who dials whom is no driver's affair ------------------------------------------------


def for_controller(machine: Machine, identity: int, lease: int) -> Endpoint:
    """Everybody comes to it; what it says to the dead is dropped."""
    return Endpoint(machine, peers.CONTROLLER, identity, lease, reach=lambda peer: "drop")


def for_host(machine: Machine, host: int, identity: int, lease: int) -> Endpoint:
    """It keeps a link to the controller, dials other hosts as it needs them, and waits for clients to come."""
    return Endpoint(
        machine, host, identity, lease,
        homes=(peers.CONTROLLER,), reach=lambda peer: "await" if peers.is_client(peer) else "dial",
    )  # fmt: skip


def for_client(machine: Machine, me: int, identity: int, lease: int) -> Endpoint:
    """It keeps a link to the controller, and dials hosts for contents. `me`: a number that nobody else has."""
    return Endpoint(machine, me, identity, lease, homes=(peers.CONTROLLER,))
