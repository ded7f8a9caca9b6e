"""The door for unmodified JAX programs: a server of the IFRT proxy protocol, whose client is in every jaxlib.

    sockets        door_server     who may connect; bytes
    HTTP/2         http2           frames, windows, headers (http2_frames: numbers, events, states)
    gRPC           grpc_calls      messages, metadata, how calls end
    the service    ifrt_service    versions, sessions, host buffers
                   session_port    what the session above and the service know of each other

    messages       ifrt_messages   classes (schema: how they are made; value_schema, proxy_schema: what they are)

All but `door_server` are without sockets and clocks.
"""

from __future__ import annotations

from .cluster_options import ClusterRefused, ServedCluster, session_devices_of
from .door_process import run_cluster_door, run_door, variables
from .door_server import ListenRefused, listen_for_clients
from .grpc_calls import PREFIX
from .ifrt_messages import GrpcIfrtSessionMetadata, IfrtProxyVersion, StatusCode
from .ifrt_service import SERVICE, SESSION_METADATA
from .session_devices import StatusError
from .session_port import SessionLink, Version
from .simulated_process import run_simulated_door
from .simulation_port import Describe, DescribedCode, ServedSimulation, SimulatedLine, SimulationPort

__all__ = [
    "PREFIX",
    "SERVICE",
    "SESSION_METADATA",
    "ClusterRefused",
    "Describe",
    "DescribedCode",
    "GrpcIfrtSessionMetadata",
    "IfrtProxyVersion",
    "ListenRefused",
    "ServedCluster",
    "ServedSimulation",
    "SessionLink",
    "SimulatedLine",
    "SimulationPort",
    "StatusCode",
    "StatusError",
    "Version",
    "listen_for_clients",
    "run_cluster_door",
    "run_door",
    "run_simulated_door",
    "session_devices_of",
    "variables",
]
