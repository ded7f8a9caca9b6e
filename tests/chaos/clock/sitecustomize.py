"""Moves the wall clock of a Python process by the seconds in the file CHAOS_CLOCK, at any time.

Python imports this first, from PYTHONPATH. Only what Python asks is moved, `time.time` and `time.time_ns`. Monotonic
clocks are those of the machine, as they are where a clock is set. gRPC, which compares Python's time with C++'s, gets
the true one.
"""

import mmap
import os
import struct
import sys
import time

if _path := os.environ.get("CHAOS_CLOCK"):
    with open(_path, "rb") as _file:
        _offset = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _time, _time_ns = time.time, time.time_ns

    def _moved() -> float:
        name = sys._getframe(2).f_globals.get("__name__", "")
        return 0.0 if name.startswith("grpc.") else struct.unpack("d", _offset)[0]

    time.time = lambda: _time() + _moved()
    time.time_ns = lambda: _time_ns() + int(_moved() * 1e9)
