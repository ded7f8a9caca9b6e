"""The devices of a Seaway cluster: each request becomes a call, a put, a get or a copy of core's client.

cluster_devices       what a session asks, for devices of a cluster
cluster_link          the client of core, and its thread
cluster_arrays        arrays and their shards; cluster_buffers: what holds them; copies, layouts
cluster_executables   compiled programs; cluster_programs: equal ones once
cluster_calls         calls, in order, and those that wait
cluster_answers       reads, and how they end
cluster_files         arrays to files, and back
cluster_opening       slices for a session, and its end

Neighbours: `session` above, `core.client` below.
"""

from .cluster_devices import ClusterDevices
from .cluster_executables import StepTimes
from .cluster_link import SessionLine
from .cluster_opening import (
    ClusterRefused,
    ClusterSessions,
    RemoteSource,
    ServedCluster,
    SessionSource,
    WatchOf,
    find_cluster,
    session_islands_of,
)
from .cluster_programs import SessionIsland
