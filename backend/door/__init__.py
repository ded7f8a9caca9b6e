"""The door for unmodified JAX programs: a server of the IFRT proxy protocol, whose client is in every jaxlib.

    simulated   simulated devices                      server      sockets, and which devices are served
    cluster     a cluster's devices                    local       the devices of this process
    program_facts  programs as sessions speak of them      session     one client: what it holds, what it asks
    transport   gRPC over HTTP/2                       protocol    the messages

An arrow goes down only: pyproject.toml has their order. All but `server` are without sockets and clocks.
"""

from .cluster import ClusterRefused, ServedCluster, SessionIsland, SessionLine, session_islands_of
from .protocol import GrpcIfrtSessionMetadata, IfrtProxyVersion, StatusCode
from .server import SERVICE, SESSION_METADATA, ListenRefused, listen_for_clients, run_cluster_door, run_door, variables
from .session import SessionCallbacks, SessionLink, StatusError, Version
from .simulated import Describe, DescribedCode, ServedSimulation, SimulatedLine, SimulationPort, run_simulated_door
from .transport import PREFIX
