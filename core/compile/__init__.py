"""From a location-free `Program` to a `Plan`: a few small passes, each a pure function from draft to draft.

    bind       slices become places, references become slots
    moves      where an input lies otherwise than its reader wants it: a move, or a resharding gang
    fuse       on request: back-to-back nodes of one slice become one gang
    number     slots in the order of their makers; what fusion made superfluous goes
    lifetimes  who reads a slot last, who sends it, which output takes over whose memory
    codes      what hosts must compile, each thing once
    order      which steps must have entered an order before a step may

One entry a node from end to end, so time and size follow the program and not its devices. `cut` then takes
out what the hosts of one island need; `Lowerings` keeps plans while the device map stands.
"""

from __future__ import annotations

from .bind import home
from .cache import Lowerings
from .cut import BLANK_SLOT, cut
from .passes import lower

__all__ = [
    "BLANK_SLOT",
    "Lowerings",
    "cut",
    "home",
    "lower",
]
