"""What a client of the IFRT proxy and the door say to each other.

ifrt_messages    the messages, as classes, and types of elements
ifrt_shardings   how an array lies on devices, as the protocol has it

Neighbours: every other package of the door speaks in these messages; this one needs none of them.
"""

from .ifrt_messages import (
    MLIR,
    STRING,
    TOKEN,
    ArrayCopySemantics,
    CompactLayoutProto,
    CompiledMemoryStatsProto,
    CompileOptionsProto,
    DTypeProto,
    GrpcGetVersionRequest,
    GrpcGetVersionResponse,
    GrpcHostBufferDeleteRequest,
    GrpcHostBufferLookupRequest,
    GrpcHostBufferStoreMetadata,
    GrpcHostBufferStoreRequest,
    GrpcIfrtSessionMetadata,
    IfrtIrCompileOptionsProto,
    IfrtIrProgramProto,
    IfrtProxyVersion,
    IfrtRequest,
    IfrtResponse,
    ObjectStoreDumpProto,
    OpSharding,
    StatusCode,
    StringArrayContents,
    XlaCompileOptionsProto,
    XlaLayoutProto,
    dtype_of,
    kind_of_mlir,
    kind_of_xla,
    name_of,
)
from .ifrt_shardings import (
    REPLICATED,
    Box,
    ShardingError,
    ShardSpec,
    Tiles,
    cells_of,
    checked_devices,
    cut_otherwise,
    op_sharding,
    tiles_of,
)
