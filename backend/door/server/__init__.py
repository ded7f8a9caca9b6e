"""Serves the door: sockets, who may connect, and which devices are behind it.

door_server    the listener: TLS, tokens, limits; bytes
ifrt_service   the IFRT service: versions, sessions, host buffers
door_process   `seaway door`: a door for the devices here, or for a cluster

Neighbours: `transport` carries; `session` answers; `local` and `cluster` are the devices.
"""

from .door_process import environment, machine_bytes, run_cluster_door, run_door, serve_until, told_to_stop, variables
from .door_server import ListenRefused, listen_for_clients
from .ifrt_service import SERVICE, SESSION_METADATA
