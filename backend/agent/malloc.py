"""Makes an agent keep the memory that it frees, so that its next gangs need no new pages.

glibc gives freed memory back to the system: all large blocks, and the end of each heap. The next allocation then gets
pages that were never used, and each costs a page fault, in which the system clears it. On CPU devices, a gang's
outputs are freed only after the controller has learnt that they are not needed, so the gangs behind it would
always write to new pages: products of matrices took 0.83 to 0.9 of the time without that, sums of arrays 0.71 to 0.75.
The kept memory grows to the largest amount in use at one time. Neighbour: `agent_cli`, which calls this once, before
there are other threads.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
SETTINGS = {
    MMAP_THRESHOLD: 32 << 20,  # smaller blocks come from a heap; this is the largest value that glibc allows
    TOP_PAD: 16 << 20,  # free memory at the top of a thread's heap that is kept
    TRIM_THRESHOLD: 1 << 30,  # free memory at the end of the first heap that is kept
}
OWN = ("MALLOC_", "GLIBC_TUNABLES")  # if a variable with such a name is set, the user's settings hold


def keep_what_is_freed(environment: Mapping[str, str] = os.environ) -> bool:
    """Applies to this process from now on. False: there is no glibc, or the user has set how memory is kept."""
    if any(name.startswith(OWN) for name in environment):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(what, value) == 1 for what, value in SETTINGS.items())
