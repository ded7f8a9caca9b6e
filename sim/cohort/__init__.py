"""The cohort fidelity: hosts of an island that behave alike share one executor, and their times are vectors.

    island       what enters and leaves an island: orders down, reports up; its hosts as their peers see them
    routes       the island's tree as index arrays: which hosts a message passes, and in which order it is written
    alike        one executor for many hosts that behave alike; which orders divide them
    shared_executor  an executor that can be copied, compared, and made another's
    parts        which hosts share an executor now: parts are divided by orders, and merge when their states are equal
    slice_parts  programs of one slice have executors of their own, so that slices that overlap divide nothing
    commands     what executors command, carried out for all hosts that do the same; contents, host by host
    event_times  when events happened at each host: commands happen after the last of their causes there
    host_times   such times as one number, a vector, or a pattern that is shifted
    gangs        gangs on devices: arrival, start, end
    order_times  how long an order takes to each host; stream_names: what the stream calls plans and runs
    history      what an island remembers, whose hosts will have to be simulated one by one
    climbs       reports of single hosts on their way up, one at a time
    controller_reports   reports as they reach the controller
    client_contents, host_contents   what clients put and get, and what moves from hosts to hosts, as vectors

The results equal those of the exact fidelity, to the nanosecond. Both draw the same jitter, and in neither does the
work on one path depend on when other paths are computed. An executor is told of an event as soon as the event is
certain, which may be before its time at the hosts: executors are confluent, so their commands do not depend on
that. The causes of a command say when each host carries it out.
"""

from .alike import AlikeHosts
from .gangs import CohortGang
from .history import Checkpoint, ContentsCame, Input, OrderLeft, PeerGone, Slowed, ThreadTimes, subject
from .host_contents import HostContents
from .island import CohortIsland
from .routes import one_root
from .shared_executor import SharedExecutor
from .stream_names import StreamNames
