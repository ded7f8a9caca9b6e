"""The messages of the IFRT proxy protocol, as classes: what a client sends, and what it is answered.

backend.xla     makes them of text, and has XLA's own
value_schema    the messages inside requests
proxy_schema    requests, responses and metadata

The classes are made when the module is imported (some milliseconds), by `protobuf`'s C code. Names are the protocol's
own, but for three that it has twice: `XlaLayoutProto` and `XlaShapeProto` are package xla's, and `StatusCode` is
tensorflow.error.Code. Nested ones are attributes: `InitResponse.Device`, `DTypeProto.KIND_F32`.
"""

from __future__ import annotations

from typing import Any

from backend.xla import XLA, message_classes

from .proxy_schema import PROXY
from .value_schema import VALUES

__all__ = [
    "ArrayCopySemantics",
    "ArraySpecProto",
    "AssembleArrayFromSingleDeviceArraysRequest",
    "AssembleArrayFromSingleDeviceArraysResponse",
    "AttributeMapProto",
    "ByteStrides",
    "CheckFutureRequest",
    "CheckFutureResponse",
    "CheckValueReadyRequest",
    "CheckValueReadyResponse",
    "CompactLayoutProto",
    "CompileOptionsProto",
    "CompileRequest",
    "CompileResponse",
    "CompiledMemoryStatsProto",
    "ConcreteEvenShardingProto",
    "CopyArraysRequest",
    "CopyArraysResponse",
    "CopyToHostBufferRequest",
    "CopyToHostBufferResponse",
    "DTypeProto",
    "DeleteArrayRequest",
    "DeleteArrayResponse",
    "DestructArrayRequest",
    "DestructArrayResponse",
    "DeviceAssignmentProto",
    "DeviceListProto",
    "DisassembleIntoSingleDeviceArraysRequest",
    "DisassembleIntoSingleDeviceArraysResponse",
    "ExecutableBuildOptionsProto",
    "ExecuteOptionsProto",
    "ExecutionOptions",
    "FullyReplicatedShardRequest",
    "FullyReplicatedShardResponse",
    "GetDefaultDeviceAssignmentRequest",
    "GetDefaultDeviceAssignmentResponse",
    "GetDefaultLayoutRequest",
    "GetDefaultLayoutResponse",
    "GrpcGetVersionRequest",
    "GrpcGetVersionResponse",
    "GrpcHostBufferDeleteRequest",
    "GrpcHostBufferDeleteResponse",
    "GrpcHostBufferLookupRequest",
    "GrpcHostBufferLookupResponse",
    "GrpcHostBufferReadFromDiskRequest",
    "GrpcHostBufferReadFromDiskResponse",
    "GrpcHostBufferStoreMetadata",
    "GrpcHostBufferStoreRequest",
    "GrpcHostBufferStoreResponse",
    "GrpcIfrtSessionMetadata",
    "HloShardingProto",
    "IfrtProxyVersion",
    "IfrtRequest",
    "IfrtResponse",
    "InitRequest",
    "InitResponse",
    "IsArrayDeletedRequest",
    "IsArrayDeletedResponse",
    "LayoutProto",
    "LoadedExecutableCostAnalysisRequest",
    "LoadedExecutableCostAnalysisResponse",
    "LoadedExecutableDeleteOptionsProto",
    "LoadedExecutableDeleteRequest",
    "LoadedExecutableDeleteResponse",
    "LoadedExecutableDestructRequest",
    "LoadedExecutableDestructResponse",
    "LoadedExecutableExecuteRequest",
    "LoadedExecutableExecuteResponse",
    "LoadedExecutableFetchExecuteResultRequest",
    "LoadedExecutableFetchExecuteResultResponse",
    "LoadedExecutableHumanReadableProgramTextRequest",
    "LoadedExecutableHumanReadableProgramTextResponse",
    "LoadedExecutableIsDeletedRequest",
    "LoadedExecutableIsDeletedResponse",
    "LoadedExecutableMetadataRequest",
    "LoadedExecutableMetadataResponse",
    "MakeArrayFromHostBufferRequest",
    "MakeArrayFromHostBufferResponse",
    "MakeArraysFromHostBufferShardsRequest",
    "MakeArraysFromHostBufferShardsResponse",
    "MakeErrorArraysRequest",
    "MakeErrorArraysResponse",
    "OpSharding",
    "PjRtLayoutProto",
    "PrimitiveType",
    "RemapArraysRequest",
    "RemapArraysResponse",
    "RemapPlanProto",
    "RequestMetadata",
    "ResponseMetadata",
    "Serialized",
    "ShapeProto",
    "ShardingProto",
    "SingleDeviceShardSemantics",
    "SingleDeviceShardingProto",
    "StatusCode",
    "StatusProto",
    "StringArrayContents",
    "TileProto",
    "XlaCompileOptionsProto",
    "XlaLayoutProto",
    "XlaShapeProto",
]

_classes = message_classes(XLA, VALUES, PROXY)

StatusCode: Any = _classes["tensorflow.error.Code"]

StatusProto: Any = _classes["tensorflow.StatusProto"]

PrimitiveType: Any = _classes["xla.PrimitiveType"]
TileProto: Any = _classes["xla.TileProto"]
XlaLayoutProto: Any = _classes["xla.LayoutProto"]
XlaShapeProto: Any = _classes["xla.ShapeProto"]
DeviceAssignmentProto: Any = _classes["xla.DeviceAssignmentProto"]
OpSharding: Any = _classes["xla.OpSharding"]
CompiledMemoryStatsProto: Any = _classes["xla.CompiledMemoryStatsProto"]
ExecutionOptions: Any = _classes["xla.ExecutionOptions"]
ExecutableBuildOptionsProto: Any = _classes["xla.ExecutableBuildOptionsProto"]
CompileOptionsProto: Any = _classes["xla.CompileOptionsProto"]

Serialized: Any = _classes["xla.ifrt.Serialized"]
DTypeProto: Any = _classes["xla.ifrt.DTypeProto"]
ShapeProto: Any = _classes["xla.ifrt.ShapeProto"]
DeviceListProto: Any = _classes["xla.ifrt.DeviceListProto"]
AttributeMapProto: Any = _classes["xla.ifrt.AttributeMapProto"]
ShardingProto: Any = _classes["xla.ifrt.ShardingProto"]
SingleDeviceShardingProto: Any = _classes["xla.ifrt.SingleDeviceShardingProto"]
ConcreteEvenShardingProto: Any = _classes["xla.ifrt.ConcreteEvenShardingProto"]
HloShardingProto: Any = _classes["xla.ifrt.HloShardingProto"]
LayoutProto: Any = _classes["xla.ifrt.LayoutProto"]
CompactLayoutProto: Any = _classes["xla.ifrt.CompactLayoutProto"]
PjRtLayoutProto: Any = _classes["xla.ifrt.PjRtLayoutProto"]
ArraySpecProto: Any = _classes["xla.ifrt.ArraySpecProto"]
RemapPlanProto: Any = _classes["xla.ifrt.RemapPlanProto"]
ExecuteOptionsProto: Any = _classes["xla.ifrt.ExecuteOptionsProto"]
XlaCompileOptionsProto: Any = _classes["xla.ifrt.XlaCompileOptionsProto"]

ArrayCopySemantics: Any = _classes["xla.ifrt.proto.ArrayCopySemantics"]
SingleDeviceShardSemantics: Any = _classes["xla.ifrt.proto.SingleDeviceShardSemantics"]
ByteStrides: Any = _classes["xla.ifrt.proto.ByteStrides"]
StringArrayContents: Any = _classes["xla.ifrt.proto.StringArrayContents"]

GrpcGetVersionRequest: Any = _classes["xla.ifrt.proxy.GrpcGetVersionRequest"]
GrpcGetVersionResponse: Any = _classes["xla.ifrt.proxy.GrpcGetVersionResponse"]
GrpcIfrtSessionMetadata: Any = _classes["xla.ifrt.proxy.GrpcIfrtSessionMetadata"]
GrpcHostBufferStoreMetadata: Any = _classes["xla.ifrt.proxy.GrpcHostBufferStoreMetadata"]
GrpcHostBufferStoreRequest: Any = _classes["xla.ifrt.proxy.GrpcHostBufferStoreRequest"]
GrpcHostBufferStoreResponse: Any = _classes["xla.ifrt.proxy.GrpcHostBufferStoreResponse"]
GrpcHostBufferReadFromDiskRequest: Any = _classes["xla.ifrt.proxy.GrpcHostBufferReadFromDiskRequest"]
GrpcHostBufferReadFromDiskResponse: Any = _classes["xla.ifrt.proxy.GrpcHostBufferReadFromDiskResponse"]
GrpcHostBufferLookupRequest: Any = _classes["xla.ifrt.proxy.GrpcHostBufferLookupRequest"]
GrpcHostBufferLookupResponse: Any = _classes["xla.ifrt.proxy.GrpcHostBufferLookupResponse"]
GrpcHostBufferDeleteRequest: Any = _classes["xla.ifrt.proxy.GrpcHostBufferDeleteRequest"]
GrpcHostBufferDeleteResponse: Any = _classes["xla.ifrt.proxy.GrpcHostBufferDeleteResponse"]
IfrtProxyVersion: Any = _classes["xla.ifrt.proxy.IfrtProxyVersion"]
IfrtRequest: Any = _classes["xla.ifrt.proxy.IfrtRequest"]
IfrtResponse: Any = _classes["xla.ifrt.proxy.IfrtResponse"]
RequestMetadata: Any = _classes["xla.ifrt.proxy.RequestMetadata"]
ResponseMetadata: Any = _classes["xla.ifrt.proxy.ResponseMetadata"]
InitRequest: Any = _classes["xla.ifrt.proxy.InitRequest"]
InitResponse: Any = _classes["xla.ifrt.proxy.InitResponse"]
CheckFutureRequest: Any = _classes["xla.ifrt.proxy.CheckFutureRequest"]
CheckFutureResponse: Any = _classes["xla.ifrt.proxy.CheckFutureResponse"]
CheckValueReadyRequest: Any = _classes["xla.ifrt.proxy.CheckValueReadyRequest"]
CheckValueReadyResponse: Any = _classes["xla.ifrt.proxy.CheckValueReadyResponse"]
MakeArrayFromHostBufferRequest: Any = _classes["xla.ifrt.proxy.MakeArrayFromHostBufferRequest"]
MakeArrayFromHostBufferResponse: Any = _classes["xla.ifrt.proxy.MakeArrayFromHostBufferResponse"]
MakeArraysFromHostBufferShardsRequest: Any = _classes["xla.ifrt.proxy.MakeArraysFromHostBufferShardsRequest"]
MakeArraysFromHostBufferShardsResponse: Any = _classes[
    "xla.ifrt.proxy.MakeArraysFromHostBufferShardsResponse"
]
MakeErrorArraysRequest: Any = _classes["xla.ifrt.proxy.MakeErrorArraysRequest"]
MakeErrorArraysResponse: Any = _classes["xla.ifrt.proxy.MakeErrorArraysResponse"]
AssembleArrayFromSingleDeviceArraysRequest: Any = _classes[
    "xla.ifrt.proxy.AssembleArrayFromSingleDeviceArraysRequest"
]
AssembleArrayFromSingleDeviceArraysResponse: Any = _classes[
    "xla.ifrt.proxy.AssembleArrayFromSingleDeviceArraysResponse"
]
RemapArraysRequest: Any = _classes["xla.ifrt.proxy.RemapArraysRequest"]
RemapArraysResponse: Any = _classes["xla.ifrt.proxy.RemapArraysResponse"]
CopyToHostBufferRequest: Any = _classes["xla.ifrt.proxy.CopyToHostBufferRequest"]
CopyToHostBufferResponse: Any = _classes["xla.ifrt.proxy.CopyToHostBufferResponse"]
DisassembleIntoSingleDeviceArraysRequest: Any = _classes[
    "xla.ifrt.proxy.DisassembleIntoSingleDeviceArraysRequest"
]
DisassembleIntoSingleDeviceArraysResponse: Any = _classes[
    "xla.ifrt.proxy.DisassembleIntoSingleDeviceArraysResponse"
]
CopyArraysRequest: Any = _classes["xla.ifrt.proxy.CopyArraysRequest"]
CopyArraysResponse: Any = _classes["xla.ifrt.proxy.CopyArraysResponse"]
FullyReplicatedShardRequest: Any = _classes["xla.ifrt.proxy.FullyReplicatedShardRequest"]
FullyReplicatedShardResponse: Any = _classes["xla.ifrt.proxy.FullyReplicatedShardResponse"]
DeleteArrayRequest: Any = _classes["xla.ifrt.proxy.DeleteArrayRequest"]
DeleteArrayResponse: Any = _classes["xla.ifrt.proxy.DeleteArrayResponse"]
IsArrayDeletedRequest: Any = _classes["xla.ifrt.proxy.IsArrayDeletedRequest"]
IsArrayDeletedResponse: Any = _classes["xla.ifrt.proxy.IsArrayDeletedResponse"]
DestructArrayRequest: Any = _classes["xla.ifrt.proxy.DestructArrayRequest"]
DestructArrayResponse: Any = _classes["xla.ifrt.proxy.DestructArrayResponse"]
CompileRequest: Any = _classes["xla.ifrt.proxy.CompileRequest"]
CompileResponse: Any = _classes["xla.ifrt.proxy.CompileResponse"]
LoadedExecutableMetadataRequest: Any = _classes["xla.ifrt.proxy.LoadedExecutableMetadataRequest"]
LoadedExecutableMetadataResponse: Any = _classes["xla.ifrt.proxy.LoadedExecutableMetadataResponse"]
LoadedExecutableCostAnalysisRequest: Any = _classes["xla.ifrt.proxy.LoadedExecutableCostAnalysisRequest"]
LoadedExecutableCostAnalysisResponse: Any = _classes["xla.ifrt.proxy.LoadedExecutableCostAnalysisResponse"]
LoadedExecutableHumanReadableProgramTextRequest: Any = _classes[
    "xla.ifrt.proxy.LoadedExecutableHumanReadableProgramTextRequest"
]
LoadedExecutableHumanReadableProgramTextResponse: Any = _classes[
    "xla.ifrt.proxy.LoadedExecutableHumanReadableProgramTextResponse"
]
LoadedExecutableExecuteRequest: Any = _classes["xla.ifrt.proxy.LoadedExecutableExecuteRequest"]
LoadedExecutableExecuteResponse: Any = _classes["xla.ifrt.proxy.LoadedExecutableExecuteResponse"]
LoadedExecutableFetchExecuteResultRequest: Any = _classes[
    "xla.ifrt.proxy.LoadedExecutableFetchExecuteResultRequest"
]
LoadedExecutableFetchExecuteResultResponse: Any = _classes[
    "xla.ifrt.proxy.LoadedExecutableFetchExecuteResultResponse"
]
LoadedExecutableDeleteRequest: Any = _classes["xla.ifrt.proxy.LoadedExecutableDeleteRequest"]
LoadedExecutableDeleteResponse: Any = _classes["xla.ifrt.proxy.LoadedExecutableDeleteResponse"]
LoadedExecutableIsDeletedRequest: Any = _classes["xla.ifrt.proxy.LoadedExecutableIsDeletedRequest"]
LoadedExecutableIsDeletedResponse: Any = _classes["xla.ifrt.proxy.LoadedExecutableIsDeletedResponse"]
LoadedExecutableDeleteOptionsProto: Any = _classes["xla.ifrt.proxy.LoadedExecutableDeleteOptionsProto"]
LoadedExecutableDestructRequest: Any = _classes["xla.ifrt.proxy.LoadedExecutableDestructRequest"]
LoadedExecutableDestructResponse: Any = _classes["xla.ifrt.proxy.LoadedExecutableDestructResponse"]
GetDefaultDeviceAssignmentRequest: Any = _classes["xla.ifrt.proxy.GetDefaultDeviceAssignmentRequest"]
GetDefaultDeviceAssignmentResponse: Any = _classes["xla.ifrt.proxy.GetDefaultDeviceAssignmentResponse"]
GetDefaultLayoutRequest: Any = _classes["xla.ifrt.proxy.GetDefaultLayoutRequest"]
GetDefaultLayoutResponse: Any = _classes["xla.ifrt.proxy.GetDefaultLayoutResponse"]
