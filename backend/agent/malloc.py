"""What an agent frees it keeps, so that what its gangs make next has pages to lie in.

glibc gives what is freed back to the system: all that is large, and whatever ends a heap. Who asks for memory then is
given pages that nobody has touched, and each costs a fault, in which it is cleared. What a gang makes on CPU devices is
freed only when the controller has heard that nobody wants it any more, so the gangs behind it would always compute into
new pages. What is kept grows to what was in use at the same time. `python -m experiments.bench pages` says what that is
worth. Neighbours: `agent_cli`, which says so once, before there are other threads.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
SETTINGS = {
    MMAP_THRESHOLD: 32 << 20,  # what is smaller comes from a heap; the most that glibc takes
    TOP_PAD: 16 << 20,  # a thread's heap that is free but for less than this is kept beside the one in use
    TRIM_THRESHOLD: 1 << 30,  # of what is free at the end of the first heap
}
OWN = ("MALLOC_", "GLIBC_TUNABLES")  # whoever has set any of these knows better


def keep_what_is_freed(environment: Mapping[str, str] = os.environ) -> bool:
    """Of this process, from now on. False: there is no glibc here, or its user has said how memory is to be kept."""
    if any(name.startswith(OWN) for name in environment):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(what, value) == 1 for what, value in SETTINGS.items())
