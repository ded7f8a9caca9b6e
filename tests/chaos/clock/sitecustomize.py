"""Moves the wall clock of a Python process by the seconds in the file CHAOS_CLOCK, at any time.

Python imports this first, from PYTHONPATH. Only what Python asks is moved, `time.time` and `time.time_ns`. Monotonic
clocks are those of the machine, as they are where a clock is set.
"""

import mmap
import os
import struct
import time

if _path := os.environ.get("CHAOS_CLOCK"):
    with open(_path, "rb") as _file:
        _moved = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + struct.unpack("d", _moved)[0]
    time.time_ns = lambda: _time_ns() + int(struct.unpack("d", _moved)[0] * 1e9)
