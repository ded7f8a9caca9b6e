"""The small integers by which machines name their peers. They are the same on every machine.

    host h                   h           (0, 1, 2, ...)
    the controller          -1
    client number c         -1 - c       (c >= 1, so -2, -3, ...)

Messages of the data plane name their ends differently: a host by its number, client c by -c (`dataplane.Grant`).
Contents never pass through the controller, so it needs no number there. Until the controller has given a client
its number, it names the client by the number of the connection (any number that is no host's).
"""

from __future__ import annotations

CONTROLLER = -1


def client(number: int) -> int:
    """Return the peer of client `number`."""
    return CONTROLLER - number


def is_client(peer: int) -> bool:
    return peer < CONTROLLER


def peer_of(end: int) -> int:
    """Return the peer that a data-plane message names as `end`."""
    return end if end >= 0 else end + CONTROLLER


def end_of(peer: int) -> int:
    """Return the end by which data-plane messages name this peer."""
    return peer if peer >= 0 else peer - CONTROLLER
