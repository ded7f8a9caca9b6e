"""Records what happened: traces, event logs, and one hash for an order.

trace, tables, trimming    one row for each gang, transfer, run and client, in typed columns of bounded size
increments, looks          what is new in a trace since somebody last looked; what goes on, as plain data
eventlog, eventcodec       all events of a machine, from which it can be run again, command for command
orderhash                  a hash that is equal if the same gangs entered the same islands in the same sequence
durations, clocks          estimates how long gangs took, and how far another process's clock is from ours
"""

from . import durations, increments, looks, trace
from .clocks import MILLION, RATE, ClockExchange, Estimate, PeerClock, Reading, drift
from .durations import EndedGang, taken, typical
from .eventcodec import fingerprint
from .eventlog import MAGIC, Diverged, Log, LogAbout, LogError, LoggedMachine, Recorder, Replayable, decode, replayed
from .increments import Increment, TraceCursor, increment
from .looks import ClientLine, HostLine, IslandLine, LiveLook, LiveView, Look, QueueLine, RefusalLine, WaitLine
from .orderhash import OrderHash, token
from .tables import Lists
from .trace import ENDED, FAILED, LOST, PLACEHOLDER, STARTED, Trace, TracedPlace
from .trimming import NAMES
