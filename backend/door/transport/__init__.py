"""gRPC calls over HTTP/2, without sockets and clocks: bytes in, events out.

http2_frames   frames, settings and states of HTTP/2
header_blocks  headers of HTTP/2, read and written
http2          a connection: windows, headers, streams
grpc_calls     messages, metadata and how calls end

Neighbours: `server` reads the sockets and takes the calls.
"""

from .grpc_calls import (
    INVALID_ARGUMENT,
    OK,
    PREFIX,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    Call,
    CallHandler,
    GrpcConnection,
    RpcRefused,
)
