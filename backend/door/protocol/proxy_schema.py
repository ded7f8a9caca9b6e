"""The requests, responses and metadata of the IFRT proxy's service, in the language of .proto files.

ifrt_messages   makes classes of them
value_schema    the messages inside; what it says about missing fields holds here, too

Requests that the door refuses are empty here: their name is all that it needs.
"""

from __future__ import annotations

__all__ = ["PROXY"]

PROXY = """
package xla.ifrt.proxy;

message GrpcGetVersionRequest {
  IfrtProxyVersion min_version = 1;
  IfrtProxyVersion max_version = 2;
}
message GrpcGetVersionResponse { IfrtProxyVersion version = 1; }
message GrpcIfrtSessionMetadata {
  IfrtProxyVersion version = 1;
  AttributeMapProto initialization_data = 2;
}
message GrpcHostBufferStoreMetadata {
  fixed64 session_id = 1;
  fixed64 handle = 2;
  int64 buffer_size = 3;
}
message GrpcHostBufferStoreRequest { bytes data = 1; }
message GrpcHostBufferStoreResponse {}
message GrpcHostBufferReadFromDiskRequest {}
message GrpcHostBufferReadFromDiskResponse {}
message GrpcHostBufferLookupRequest { fixed64 session_id = 1; fixed64 handle = 2; }
message GrpcHostBufferLookupResponse { bytes data = 1; }
message GrpcHostBufferDeleteRequest { fixed64 session_id = 1; fixed64 handle = 2; }
message GrpcHostBufferDeleteResponse {}

message IfrtProxyVersion { int32 protocol_version = 1; int32 ifrt_serdes_version_number = 2; }
message IfrtRequest {
  RequestMetadata request_metadata = 1;
  oneof request {
    InitRequest init_request = 2;
    CheckFutureRequest check_future_request = 3;
    CheckValueReadyRequest check_value_ready_request = 8;
    MakeArrayFromHostBufferRequest make_array_from_host_buffer_request = 4;
    MakeArraysFromHostBufferShardsRequest make_arrays_from_host_buffer_shards_request = 25;
    MakeErrorArraysRequest make_error_arrays_request = 26;
    AssembleArrayFromSingleDeviceArraysRequest assemble_array_from_single_device_arrays_request = 5;
    RemapArraysRequest remap_arrays_request = 23;
    BitcastArraysRequest bitcast_arrays_request = 34;
    ReshardArraysRequest reshard_arrays_request = 33;
    CopyToHostBufferRequest copy_to_host_buffer_request = 6;
    DisassembleIntoSingleDeviceArraysRequest disassemble_into_single_device_arrays_request = 7;
    DeleteArrayRequest delete_array_request = 9;
    CopyArraysRequest copy_arrays_request = 24;
    FullyReplicatedShardRequest fully_replicated_shard_request = 20;
    IsArrayDeletedRequest is_array_deleted_request = 11;
    DestructArrayRequest destruct_array_request = 12;
    CompileRequest compile_request = 13;
    LoadedExecutableMetadataRequest loaded_executable_metadata_request = 14;
    LoadedExecutableExecuteRequest loaded_executable_execute_request = 15;
    LoadedExecutableFetchExecuteResultRequest loaded_executable_fetch_execute_result_request = 32;
    LoadedExecutableCostAnalysisRequest loaded_executable_cost_analysis_request = 28;
    LoadedExecutableHumanReadableProgramTextRequest loaded_executable_human_readable_program_text_request = 29;
    LoadedExecutableDeleteRequest loaded_executable_delete_request = 16;
    LoadedExecutableIsDeletedRequest loaded_executable_is_deleted_request = 17;
    LoadedExecutableDestructRequest loaded_executable_destruct_request = 18;
    LoadedExecutableMpmdMetadataRequest loaded_executable_mpmd_metadata_request = 30;
    LoadedExecutableMpmdCostAnalysisRequest loaded_executable_mpmd_cost_analysis_request = 31;
    LoadedHostCallbackPollRequest loaded_host_callback_poll_request = 21;
    LoadedHostCallbackReturnRequest loaded_host_callback_return_request = 22;
    GetDefaultDeviceAssignmentRequest get_default_device_assignment_request = 19;
    GetDefaultLayoutRequest get_default_layout_request = 27;
  }
}
message IfrtResponse {
  ResponseMetadata response_metadata = 1;
  oneof response {
    InitResponse init_response = 2;
    CheckFutureResponse check_future_response = 3;
    CheckValueReadyResponse check_value_ready_response = 8;
    MakeArrayFromHostBufferResponse make_array_from_host_buffer_response = 4;
    MakeArraysFromHostBufferShardsResponse make_arrays_from_host_buffer_shards_response = 25;
    MakeErrorArraysResponse make_error_arrays_response = 26;
    AssembleArrayFromSingleDeviceArraysResponse assemble_array_from_single_device_arrays_response = 5;
    RemapArraysResponse remap_arrays_response = 23;
    BitcastArraysResponse bitcast_arrays_response = 34;
    ReshardArraysResponse reshard_arrays_response = 33;
    CopyToHostBufferResponse copy_to_host_buffer_response = 6;
    DisassembleIntoSingleDeviceArraysResponse disassemble_into_single_device_arrays_response = 7;
    DeleteArrayResponse delete_array_response = 9;
    CopyArraysResponse copy_arrays_response = 24;
    FullyReplicatedShardResponse fully_replicated_shard_response = 20;
    IsArrayDeletedResponse is_array_deleted_response = 11;
    DestructArrayResponse destruct_array_response = 12;
    CompileResponse compile_response = 13;
    LoadedExecutableMetadataResponse loaded_executable_metadata_response = 14;
    LoadedExecutableExecuteResponse loaded_executable_execute_response = 15;
    LoadedExecutableFetchExecuteResultResponse loaded_executable_fetch_execute_result_response = 32;
    LoadedExecutableCostAnalysisResponse loaded_executable_cost_analysis_response = 28;
    LoadedExecutableHumanReadableProgramTextResponse loaded_executable_human_readable_program_text_response = 29;
    LoadedExecutableDeleteResponse loaded_executable_delete_response = 16;
    LoadedExecutableIsDeletedResponse loaded_executable_is_deleted_response = 17;
    LoadedExecutableDestructResponse loaded_executable_destruct_response = 18;
    LoadedExecutableMpmdMetadataResponse loaded_executable_mpmd_metadata_response = 30;
    LoadedExecutableMpmdCostAnalysisResponse loaded_executable_mpmd_cost_analysis_response = 31;
    LoadedHostCallbackPollResponse loaded_host_callback_poll_response = 21;
    LoadedHostCallbackReturnResponse loaded_host_callback_return_response = 22;
    GetDefaultDeviceAssignmentResponse get_default_device_assignment_response = 19;
    GetDefaultLayoutResponse get_default_layout_response = 27;
  }
}
message RequestMetadata { fixed64 op_id = 1; fixed64 user_context_id = 5; }
message ResponseMetadata {
  fixed64 op_id = 1;
  tensorflow.StatusProto status = 2;
  int64 seq_num = 3;
  repeated fixed64 destroyed_user_context_ids = 4;
}
message InitRequest {}
message InitResponse {
  message Device {
    int32 id = 1;
    int32 local_device_id = 9;
    int32 local_hardware_id = 2;
    string platform_name = 11;
    string device_kind = 3;
    optional int32 default_memory_id = 7;
    repeated int32 memory_ids = 8;
    string debug_string = 4;
    string to_string = 5;
    AttributeMapProto attributes = 10;
  }
  message Memory {
    int32 id = 1;
    string memory_space_kind = 2;
    int32 kind_id = 6;
    repeated int32 device_ids = 3;
    string debug_string = 4;
    string to_string = 5;
  }
  uint64 session_id = 8;
  string platform_name = 1;
  string platform_version = 2;
  uint64 platform_id = 3;
  uint64 process_index = 4;
  string runtime_type = 5;
  repeated Device all_devices = 6;
  repeated int32 primary_device_ids = 10;
  repeated int32 addressable_device_ids = 7;
  repeated Memory memories = 9;
  AttributeMapProto client_attributes = 11;
}
message CheckFutureRequest { fixed64 future_handle = 1; }
message CheckFutureResponse {}
message CheckValueReadyRequest { repeated fixed64 value_handles = 1 [packed = false]; }
message CheckValueReadyResponse {}
message MakeArrayFromHostBufferRequest {
  DTypeProto dtype = 1;
  ShapeProto shape = 2;
  ShardingProto sharding = 3;
  LayoutProto layout = 7;
  fixed64 host_buffer_handle = 4;
  optional proto.ByteStrides byte_strides = 5;
  optional fixed64 array_handle = 6;
}
message MakeArrayFromHostBufferResponse { fixed64 array_handle = 1; }
message MakeArraysFromHostBufferShardsRequest {
  message HostBuffer {
    DTypeProto dtype = 1;
    ShapeProto shape = 2;
    fixed64 host_buffer_handle = 3;
    optional proto.ByteStrides byte_strides = 4;
  }
  message ShardIndices { repeated int64 indices = 1; }
  message MakeArraysFromHostBufferShardsSpec {
    repeated ShardIndices addressable_shard_indices = 1;
    repeated HostBuffer host_buffers = 2;
    ArraySpecProto array_spec = 3;
  }
  repeated MakeArraysFromHostBufferShardsSpec specs = 1;
  repeated fixed64 array_handles = 2;
}
message MakeArraysFromHostBufferShardsResponse { repeated fixed64 array_handles = 1; }
message MakeErrorArraysRequest {
  tensorflow.StatusProto error = 1;
  repeated ArraySpecProto array_specs = 2;
  repeated fixed64 array_handles = 3;
}
message MakeErrorArraysResponse { repeated fixed64 array_handles = 1; }
message AssembleArrayFromSingleDeviceArraysRequest {
  ShapeProto shape = 1;
  ShardingProto sharding = 2;
  repeated fixed64 single_device_array_handles = 3;
  proto.ArrayCopySemantics copy_semantics = 4;
  optional proto.SingleDeviceShardSemantics single_device_shard_semantics = 5;
  fixed64 result_handle = 6;
  optional DTypeProto dtype = 7;
}
message AssembleArrayFromSingleDeviceArraysResponse { fixed64 array_handle = 1; }
message RemapArraysRequest {
  RemapPlanProto plan = 1;
  repeated fixed64 array_handles = 2;
  proto.ArrayCopySemantics copy_semantics = 3;
  repeated fixed64 result_handles = 4;
}
message RemapArraysResponse { repeated fixed64 array_handles = 1; }
message BitcastArraysRequest {}
message BitcastArraysResponse {}
message ReshardArraysRequest {}
message ReshardArraysResponse {}
message CopyToHostBufferRequest {
  fixed64 array_handle = 2;
  optional proto.ByteStrides byte_strides = 3;
  fixed64 host_buffer_handle = 1;
}
message CopyToHostBufferResponse {}
message DisassembleIntoSingleDeviceArraysRequest {
  fixed64 array_handle = 1;
  proto.ArrayCopySemantics copy_semantics = 2;
  optional proto.SingleDeviceShardSemantics single_device_shard_semantics = 3;
  repeated fixed64 result_handles = 4;
}
message DisassembleIntoSingleDeviceArraysResponse { repeated fixed64 array_handles = 1; }
message CopyArraysRequest {
  repeated fixed64 array_handles = 1;
  repeated int32 device_ids = 2;
  optional string memory_kind = 3;
  proto.ArrayCopySemantics copy_semantics = 4;
  repeated fixed64 result_handles = 5;
}
message CopyArraysResponse { repeated fixed64 array_handles = 1; }
message FullyReplicatedShardRequest {
  fixed64 array_handle = 1;
  proto.ArrayCopySemantics copy_semantics = 2;
  fixed64 result_handle = 3;
}
message FullyReplicatedShardResponse { fixed64 array_handle = 1; }
message DeleteArrayRequest { repeated fixed64 array_handle = 2; }
message DeleteArrayResponse { fixed64 deletion_future_handle = 1; }
message IsArrayDeletedRequest { fixed64 array_handle = 1; }
message IsArrayDeletedResponse { bool deleted = 1; }
message DestructArrayRequest { repeated fixed64 array_handle = 2; }
message DestructArrayResponse {}
message CompileRequest {
  Serialized program = 1;
  Serialized compile_options = 2;
  repeated bytes host_callbacks = 3;
}
message CompileResponse {
  fixed64 loaded_executable_handle = 1;
  repeated fixed64 loaded_host_callback_handles = 8;
  string name = 2;
  int32 num_devices = 3;
  repeated int32 device_ids = 10;
  repeated int32 addressable_device_ids = 5;
  oneof fingerprint {
    bytes fingerprint_value = 6;
    tensorflow.StatusProto fingerprint_error = 7;
  }
  optional fixed64 ready_future_handle = 9;
}
message LoadedExecutableMetadataRequest { fixed64 loaded_executable_handle = 1; }
message LoadedExecutableMetadataResponse {
  message ShardingList { repeated OpSharding shardings = 1; }
  message LayoutList { repeated xla.LayoutProto layouts = 1; }
  message MemoryKindList { repeated string memory_kinds = 1; }
  message OutputMemoryKind {
    tensorflow.StatusProto status = 1;
    repeated MemoryKindList memory_kind_lists = 2;
  }
  message DonatedInputIndices { repeated fixed32 donated_input_indices = 1; }
  optional ShardingList parameter_shardings = 1;
  optional ShardingList output_shardings = 2;
  oneof parameter_layouts {
    LayoutList parameter_layouts_list = 4;
    tensorflow.StatusProto parameter_layouts_error = 5;
  }
  oneof output_layouts {
    LayoutList output_layouts_list = 6;
    tensorflow.StatusProto output_layouts_error = 7;
  }
  OutputMemoryKind output_memory_kinds = 3;
  oneof donated_input_indices_oneof {
    DonatedInputIndices donated_input_indices = 8;
    tensorflow.StatusProto donated_input_indices_error = 9;
  }
  oneof compiled_memory_stats_oneof {
    CompiledMemoryStatsProto compiled_memory_stats = 10;
    tensorflow.StatusProto compiled_memory_stats_error = 11;
  }
  int64 size_of_generated_code_in_bytes = 12;
}
message LoadedExecutableCostAnalysisRequest { fixed64 loaded_executable_handle = 1; }
message LoadedExecutableCostAnalysisResponse {
  oneof result {
    tensorflow.StatusProto status = 1;
    AttributeMapProto attributes = 2;
  }
}
message LoadedExecutableHumanReadableProgramTextRequest { fixed64 loaded_executable_handle = 1; }
message LoadedExecutableHumanReadableProgramTextResponse {
  oneof result {
    tensorflow.StatusProto status = 1;
    string human_readable_program_text = 2;
  }
}
message LoadedExecutableExecuteRequest {
  fixed64 loaded_executable_handle = 1;
  repeated fixed64 args_handles = 2;
  ExecuteOptionsProto execute_options = 3;
  repeated int32 device_ids = 4;
  repeated fixed64 result_array_handle = 5;
  fixed64 result_status_handle = 6;
}
message LoadedExecutableExecuteResponse {
  message Output {
    DTypeProto dtype = 1;
    ShapeProto shape = 2;
    ShardingProto sharding = 3;
    fixed64 array_handle = 4;
  }
  fixed64 status_handle = 1;
  repeated Output outputs = 2;
}
message LoadedExecutableFetchExecuteResultRequest { fixed64 result_status_handle = 1; }
message LoadedExecutableFetchExecuteResultResponse { map<string, double> device_time = 1; }
message LoadedExecutableDeleteRequest { fixed64 loaded_executable_handle = 1; }
message LoadedExecutableDeleteResponse { fixed64 future_handle = 1; }
message LoadedExecutableIsDeletedRequest { fixed64 loaded_executable_handle = 1; }
message LoadedExecutableIsDeletedResponse { bool is_deleted = 1; }
message LoadedExecutableDeleteOptionsProto { int64 deletion_stream_id = 1; }
message LoadedExecutableDestructRequest {
  fixed64 loaded_executable_handle = 1;
  LoadedExecutableDeleteOptionsProto delete_options = 2;
}
message LoadedExecutableDestructResponse {}
message LoadedExecutableMpmdMetadataRequest {}
message LoadedExecutableMpmdMetadataResponse {}
message LoadedExecutableMpmdCostAnalysisRequest {}
message LoadedExecutableMpmdCostAnalysisResponse {}
message LoadedHostCallbackPollRequest {}
message LoadedHostCallbackPollResponse {}
message LoadedHostCallbackReturnRequest {}
message LoadedHostCallbackReturnResponse {}
message GetDefaultDeviceAssignmentRequest { fixed64 num_replicas = 1; fixed64 num_partitions = 2; }
message GetDefaultDeviceAssignmentResponse { DeviceAssignmentProto device_assignment = 1; }
message GetDefaultLayoutRequest {
  DTypeProto dtype = 1;
  repeated int64 dims = 2;
  int32 device_id = 3;
  string memory_kind = 4;
}
message GetDefaultLayoutResponse { bytes serialized_pjrt_layout = 1; }
"""
