"""What a client of the IFRT proxy and the door say to each other.

ifrt_messages    the messages, as classes
ifrt_shardings   how an array lies on devices, as the protocol has it
dtypes           types of elements, as the protocol has them

Neighbours: every other package of the door speaks in these messages; this one needs none of them.
"""

from __future__ import annotations

from .dtypes import MLIR, STRING, TOKEN, dtype_of, kind_of_mlir, name_of
from .ifrt_messages import (
    ArrayCopySemantics,
    CompactLayoutProto,
    CompiledMemoryStatsProto,
    CompileOptionsProto,
    GrpcGetVersionRequest,
    GrpcGetVersionResponse,
    GrpcHostBufferDeleteRequest,
    GrpcHostBufferLookupRequest,
    GrpcHostBufferStoreMetadata,
    GrpcHostBufferStoreRequest,
    GrpcIfrtSessionMetadata,
    IfrtProxyVersion,
    IfrtRequest,
    IfrtResponse,
    OpSharding,
    StatusCode,
    StringArrayContents,
    XlaCompileOptionsProto,
    XlaLayoutProto,
)
from .ifrt_shardings import REPLICATED, ShardingError, ShardSpec, Tiles, op_sharding, tiles_of
