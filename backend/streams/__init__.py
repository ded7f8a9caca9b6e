"""Streams between our own processes: frames over a TCP connection or Unix socket, with TLS if there are certificates.

connection   one stream: written from any thread, read in the loop
lent_reading a stream that a working thread reads while it has nothing else to do
listener     the port of a process: who may open a stream here; a controller's gRPC on the same port
dialling     opens a stream to another process, or asks it one thing
sockets      connected, and listening
tls          mutual TLS 1.3, without a transport of asyncio's
grpc_pipe    hands what is not a stream to the gRPC server of this process
event_loop   the event loop of every process; one in a thread of its own
"""

from .connection import Connection, Load
from .dialling import StreamRefused, ask, dial
from .event_loop import LoopThread, collect_rarely, new_loop, run
from .grpc_pipe import GrpcPipe
from .lent_reading import LentReading
from .listener import Admit, Listener
from .sockets import listening, machine_of
from .tls import Tls
