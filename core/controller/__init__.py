"""The controller: the one place where what happens on all islands is decided. One module a decision:

controller     the machine: one event in, all that follows decided, one message an island and a client out
modules        makes all below, from the ground up: each calls those that stand under it here, and none above

clients        sessions and their calls; a breach of the protocol closes that peer
accounts       whose clients are, what they may have together;  usage: what they have used
meters         what metrics show: how long runs and gangs took, what islands and clients have
membership     which hosts an island has, in epochs: trees, seats, fences
recovery       what a restarted controller rebuilds from the hosts and clients that reconnect
failures       what dies with a host, a device or a launch
runs           a run's way from the call to its admission;  registrations: programs before their first run
puts           buffers that clients make;  views: arrays whose shards are shards of other arrays
completion     when a step is over, and settled, and what follows from that
dispatch       which step may enter an island's order
outcomes       how runs end, exactly once each, and what becomes of buffers' contents
gets           contents from hosts to clients
admission      memory for a whole run at once, before it is ordered; making room
results        buffers for what a run makes;  buffer_refs: who holds which buffer, and what is done when nobody does
in_flight      what is in an order and not over, and what of it is late
run_waits      what runs wait for, and since when
relocation     slices go to other devices, or to host memory and back;  array_copies: names stand for copies
drains         hosts get no new slices, or are emptied and leave;  slice_calls: who asks for all that
compilation    plans and their code: which hosts know it, and what is compiled where
watch          every wait has a soft and a hard bound
outbox         what one turn says;  trace_rows: what is recorded for the trace

state          the tables, and the turn's agenda: what a module must tell one above it
records        rows of the tables;  plan_rows: what is derived from a plan;  config: what may be set
observations   what is said to those who check it
stalls         what waits and stalls now;  snapshot: what may be shown;  live_view: the same in a bounded size
policy_news    that a policy failed, and which devices it keeps free
"""

from .accounts import AccountView
from .config import ON_DEVICES, Config
from .controller import Controller
from .live_view import live_view
from .observations import Observation
from .policy_news import KeptDevices
from .records import BOUNDS, Stall
from .snapshot import ClientView, DrainView, IslandView, OperationView, RunView, Snapshot
from .usage import HOUR
from .watch import Bounds
