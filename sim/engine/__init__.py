"""The parts from which every simulation is made: simulated time, threads that do one thing at a time, and jitter.

clock     SimPy in integer nanoseconds: calls at a time, in an order that is always the same; whether any can still come
threads   work done one item at a time: threads of a process, or of a pool
jitter    random delays as a pure function of (seed, source, number)
"""

from . import jitter
from .clock import LATE, LATER, SimClock, Stuck, StuckWatch, Unannounced
from .jitter import Ints, Noise
from .threads import HELD, NOTHING, CoreShare, Order, SimThread, ThreadPool, TieBreak, Wave
