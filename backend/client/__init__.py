"""A client's machine in a user's process, and its streams to the controller and to hosts.

remote   the machine with its node: calls go out, contents come in
"""

from __future__ import annotations

from .remote import Head, Offer, Remote

__all__ = [
    "Head",
    "Offer",
    "Remote",
]
