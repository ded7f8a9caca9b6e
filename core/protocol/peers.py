"""What a machine calls those it talks to: small integers, the same on every machine.

    host h                   h           (0, 1, 2, ...)
    the controller          -1
    client number c         -1 - c       (c >= 1, so -2, -3, ...)

Messages of the data plane name their ends otherwise: a host by its number, client c by -c
(`messages.Grant`). There the controller cannot occur, since contents never pass through it; here it must
have a name that no client has. And the controller itself knows a client by the number of its connection
(any that is no host's), until it has given the client a number.
"""

from __future__ import annotations

CONTROLLER = -1


def client(number: int) -> int:
    """The peer that is client `number`."""
    return CONTROLLER - number


def is_client(peer: int) -> bool:
    return peer < CONTROLLER


def peer_of(end: int) -> int:
    """The peer that a data-plane message names as `end`: a host, or a client as its negative number."""
    return end if end >= 0 else end + CONTROLLER


def end_of(peer: int) -> int:
    """How data-plane messages name this peer."""
    return peer if peer >= 0 else peer - CONTROLLER
