"""Lowers a `Program` to a `Plan` in a few small passes. Each pass is a pure function from draft to draft.

    bind       slices become places, values become slots
    moves      inserts a move or a resharding gang if an input is laid out differently than its reader expects
    number     numbers slots in the order of the steps that make them
    lifetimes  for each slot: its last reader, the moves that send it, the output that takes over its memory
    codes      the list of codes that hosts must compile, each once
    order      for each step: the steps that must have entered an order before it may enter

A plan has one entry for each node, so time and size follow the program and not the number of devices. `cut` takes
out of a plan what the hosts of one island need. `Lowerings` caches plans as long as slices keep their devices.
"""

from .bind import home
from .cut import BLANK_SLOT, cut
from .plan_cache import Lowerings, lower
