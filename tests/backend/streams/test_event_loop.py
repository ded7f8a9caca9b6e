"""Every process of ours takes what it needs of the system, and disturbs itself as little as it can."""

from __future__ import annotations

import subprocess
import sys


def test_what_a_process_has_imported_is_never_looked_at_again_and_new_cycles_still_are() -> None:
    code = """
import gc, weakref
from backend.streams import collect_rarely
from backend.streams.event_loop import COLLECTING
collect_rarely()
assert gc.get_threshold() == COLLECTING
assert gc.get_freeze_count() > 10_000
class Cycle: pass
one = Cycle(); one.me = one
gone = weakref.ref(one)
del one
gc.collect()
assert gone() is None
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
