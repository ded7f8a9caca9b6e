"""What all events and commands are made of, and those of any machine that has peers.

Start with `effects`, which has the words. Neighbours: `host_effects`, `controller_effects` and `client_effects`.
"""

from __future__ import annotations

import msgspec

Cause = tuple[str, int]


class Event(msgspec.Struct, frozen=True, gc=False):
    """What a machine is told has happened."""


class Command(msgspec.Struct, frozen=True, gc=False):
    """What a machine tells its driver to do, or to pass on."""


# Where one machine drives another, what the one commands, the other is told. `Received` and `Sent` are both: the
# executor is told of them, and the driver is shown them.
Effect = Event | Command


# --- any machine -> its driver or its neighbours -----------------------------------------------------------------


class Send(Command, frozen=True):
    """Send one message to each of these peers. The driver encodes it once."""

    peers: tuple[int, ...]
    message: msgspec.Struct
    causes: tuple[Cause, ...] = ()


class Close(Command, frozen=True):
    """Close the connection to this peer. If the peer can still be reached, it has been sent `reason` before."""

    peer: int
    reason: str
    breach: str = "protocol"  # the rule that the peer broke; "" if none


class LogLine(Command, frozen=True):
    """A line for the controller's log. Only people read it."""

    text: str
    passing: bool = False  # it describes a state that may have ended by the time it is read
    alarm: bool = False  # nothing goes on until the operator acts


# --- connections (every machine that has peers) --------------------------------------------------------------------


class Connected(Event, frozen=True):
    peer: int


class Disconnected(Event, frozen=True):
    """The link to this peer has ended for good: its lease ran out, or the peer closed it or began a new one."""

    peer: int
    reason: str = ""
    anew: bool = False  # a new link to the peer begins at once


class MessageReceived(Event, frozen=True):
    """A message from a peer has arrived, decoded. Messages of a peer come in the order in which it sent them."""

    peer: int
    message: msgspec.Struct


class Malformed(Event, frozen=True):
    """A peer has sent bytes that are not a message."""

    peer: int
    reason: str


class Wakeup(Event, frozen=True):
    """The time that `next_wakeup()` named has come."""
