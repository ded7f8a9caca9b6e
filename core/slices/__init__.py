"""Binds the slices of all sessions to devices, shared or exclusive, and moves them when devices are lost.

resources    the slices of all sessions: bind, release, move
bindings     what is known of a slice
subslices    slices that are some of the devices of another
search       finds where a slice could be
placing      chooses the devices of a slice among those that are free
inventory    keeps which devices of an island are free
grids        writes lists of devices as few grids
refusal_texts   the error text for a slice that cannot fit;  refusals: processes that were refused as hosts
waiting_texts   the reason for which a slice waits
"""

from . import grids
from .bindings import FIRST, LEFT, UNDECIDED, Binding, BoundSlice, MustWait
from .placing import fits
from .refusals import Refusal
from .resources import Resources
from .subslices import Key, part
