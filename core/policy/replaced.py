"""What is said where fifo has taken over from a policy, read again: by whoever must tell a user that it is so.

A scheduler says it, once an island, in words for people; it is the one line among these that changes what a run
means, for all that enters from then on is ordered by fifo. So it is found again here, and shown where it is seen.
"""

from __future__ import annotations

import re

import msgspec

ISLAND = r"(?P<island>'.*?'|\".*?\")"
LINE = re.compile(rf"island {ISLAND}: policy (?P<policy>\S+) (?P<fault>.+); fifo has taken over", re.DOTALL)


class Replaced(msgspec.Struct, frozen=True):
    """`island`: as it is quoted. `fault`: what the policy did, as "raised KeyError: 'x' when asked to pick"."""

    island: str
    policy: str
    fault: str


def replaced(said: str) -> Replaced | None:
    """What this line tells of a policy that was replaced; None: it tells of something else."""
    found = LINE.fullmatch(said)
    return None if found is None else Replaced(**found.groupdict())
