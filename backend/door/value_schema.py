"""The messages inside requests (arrays, shardings, layouts, compile options), in the language of .proto files.

ifrt_messages   makes classes of them
proxy_schema    the requests themselves

A message may lack fields that the wheel's has: what the door does not read is not here. It may not differ otherwise;
tests/backend/door/test_ifrt_messages.py compares each field with the installed jaxlib's.
"""

from __future__ import annotations

__all__ = ["VALUES"]

VALUES = """
package tensorflow.error;
enum Code {
  OK = 0; CANCELLED = 1; UNKNOWN = 2; INVALID_ARGUMENT = 3; DEADLINE_EXCEEDED = 4; NOT_FOUND = 5;
  ALREADY_EXISTS = 6; PERMISSION_DENIED = 7; UNAUTHENTICATED = 16; RESOURCE_EXHAUSTED = 8;
  FAILED_PRECONDITION = 9; ABORTED = 10; OUT_OF_RANGE = 11; UNIMPLEMENTED = 12; INTERNAL = 13;
  UNAVAILABLE = 14; DATA_LOSS = 15;
  DO_NOT_USE_RESERVED_FOR_FUTURE_EXPANSION_USE_DEFAULT_IN_SWITCH_INSTEAD_ = 20;
}

package tensorflow;
message StatusProto {
  error.Code code = 1;
  string message = 2;
}

package xla;
enum PrimitiveType {
  PRIMITIVE_TYPE_INVALID = 0; PRED = 1; S1 = 30; S2 = 26; S4 = 21; S8 = 2; S16 = 3; S32 = 4; S64 = 5;
  U1 = 31; U2 = 27; U4 = 22; U8 = 6; U16 = 7; U32 = 8; U64 = 9; F16 = 10; F32 = 11; BF16 = 16; F64 = 12;
  F8E5M2 = 19; F8E4M3 = 28; F8E4M3FN = 20; F8E4M3B11FNUZ = 23; F8E3M4 = 29; F8E5M2FNUZ = 24;
  F8E4M3FNUZ = 25; F4E2M1FN = 32; F8E8M0FNU = 33; F6E3M2FN = 35; F6E2M3FN = 36; C64 = 15; C128 = 18;
  TUPLE = 13; OPAQUE_TYPE = 14; TOKEN = 17; BUFFER = 34;
}
message TileProto { repeated int64 dimensions = 1; }
message LayoutProto {
  repeated int64 minor_to_major = 1;
  repeated TileProto tiles = 6;
  int64 tail_padding_alignment_in_elements = 16;
  int64 element_size_in_bits = 7;
  int64 memory_space = 8;
}
message ShapeProto {
  PrimitiveType element_type = 2;
  repeated int64 dimensions = 3;
  repeated bool is_dynamic_dimension = 6;
  repeated ShapeProto tuple_shapes = 4;
  LayoutProto layout = 5;
}
message DeviceAssignmentProto {
  message ComputationDevice { repeated int64 replica_device_ids = 1; }
  int32 replica_count = 1;
  int32 computation_count = 2;
  repeated ComputationDevice computation_devices = 3;
}
message OpSharding {
  enum Type {
    REPLICATED = 0; MAXIMAL = 1; TUPLE = 2; OTHER = 3; MANUAL = 4; UNKNOWN = 5; UNREDUCED = 6;
  }
  enum ShardGroupType {
    AS = 0; LIKE = 1;
  }
  Type type = 1;
  repeated int64 tile_assignment_dimensions = 3;
  repeated int64 tile_assignment_devices = 4;
  repeated OpSharding tuple_shardings = 5;
  bool replicate_on_last_tile_dim = 6;
  repeated Type last_tile_dims = 8;
  repeated int64 iota_reshape_dims = 9;
  repeated int32 iota_transpose_perm = 10;
  bool is_shard_group = 11;
  int64 shard_group_id = 12;
  ShardGroupType shard_group_type = 13;
}
message CompiledMemoryStatsProto {
  int64 generated_code_size_in_bytes = 1;
  int64 argument_size_in_bytes = 2;
  int64 output_size_in_bytes = 3;
  int64 alias_size_in_bytes = 4;
  int64 temp_size_in_bytes = 5;
  int64 peak_memory_in_bytes = 14;
  int64 total_size_in_bytes = 15;
  int64 total_allocation_bytes = 16;
  int64 indefinite_allocations = 17;
  int64 peak_unpadded_heap_bytes = 18;
  int64 host_generated_code_size_in_bytes = 7;
  int64 host_argument_size_in_bytes = 8;
  int64 host_output_size_in_bytes = 9;
  int64 host_alias_size_in_bytes = 10;
  int64 host_temp_size_in_bytes = 11;
  bytes serialized_buffer_assignment = 13;
}
message ExecutionOptions {
  enum EffortLevel {
    EFFORT_UNKNOWN = 0; EFFORT_O0 = 9; EFFORT_O1 = 19; EFFORT_O2 = 29; EFFORT_O3 = 39;
  }
}
message ExecutableBuildOptionsProto {
  int64 device_ordinal = 1;
  ShapeProto result_layout = 2;
  int64 num_replicas = 4;
  int64 num_partitions = 5;
  bool use_spmd_partitioning = 6;
  ExecutionOptions.EffortLevel optimization_level = 24;
  ExecutionOptions.EffortLevel memory_fitting_level = 25;
  DeviceAssignmentProto device_assignment = 9;
  bool alias_passthrough_params = 10;
  repeated bool allow_spmd_sharding_propagation_to_parameters = 18;
  repeated bool allow_spmd_sharding_propagation_to_output = 12;
  bool use_shardy_partitioner = 19;
  int64 process_index = 22;
  int64 process_count = 23;
}
message OptionOverrideProto {
  oneof value {
    string string_field = 1;
    bool bool_field = 2;
    int64 int_field = 3;
    double double_field = 4;
  }
}
message CompileOptionsProto {
  repeated ShapeProto argument_layouts = 1;
  bool parameter_is_tupled_arguments = 2;
  ExecutableBuildOptionsProto executable_build_options = 3;
  bool compile_portable_executable = 4;
  int64 profile_version = 5;
  map<string, OptionOverrideProto> env_option_overrides = 7;
  bool allow_in_place_mlir_modification = 9;
  repeated int32 individually_defined_output_indices = 12;
}

package xla.ifrt;
message Serialized { string type_name = 1; bytes data = 2; }
message DTypeProto {
  enum Kind {
    KIND_UNSPECIFIED = 0; KIND_PRED = 1; KIND_S1 = 32; KIND_S2 = 26; KIND_S4 = 21; KIND_S8 = 2;
    KIND_S16 = 3; KIND_S32 = 4; KIND_S64 = 5; KIND_U1 = 33; KIND_U2 = 27; KIND_U4 = 22; KIND_U8 = 6;
    KIND_U16 = 7; KIND_U32 = 8; KIND_U64 = 9; KIND_F16 = 10; KIND_F32 = 11; KIND_F64 = 12; KIND_BF16 = 16;
    KIND_C64 = 15; KIND_C128 = 18; KIND_TOKEN = 17; KIND_OPAQUE = 14; KIND_F8E3M4 = 29; KIND_F8E4M3 = 28;
    KIND_F8E4M3FN = 20; KIND_F8E4M3B11FNUZ = 23; KIND_F8E4M3FNUZ = 25; KIND_F8E5M2 = 19;
    KIND_F8E5M2FNUZ = 24; KIND_F8E8M0FNU = 31; KIND_F4E2M1FN = 30; KIND_F6E2M3FN = 34; KIND_F6E3M2FN = 35;
    KIND_STRING = 99;
  }
  int32 version_number = 2;
  Kind kind = 1;
}
message ShapeProto { int32 version_number = 2; repeated int64 dims = 1; }
message DeviceListProto { int32 version_number = 2; repeated int32 device_ids = 1; }
message AttributeMapProto {
  message Value {
    message Int64List { repeated sfixed64 elements = 1; }
    oneof value {
      bytes string_value = 1;
      bool bool_value = 2;
      sfixed64 int64_value = 3;
      Int64List int64_list_value = 4;
      float float_value = 5;
    }
  }
  int32 version_number = 2;
  map<string, Value> attributes = 1;
}
message ShardingProto { Serialized serialized_sharding = 1; }
message SingleDeviceShardingProto {
  int32 version_number = 3;
  int32 device_id = 1;
  optional string memory_kind = 2;
}
message ConcreteEvenShardingProto {
  int32 version_number = 6;
  DeviceListProto devices = 1;
  optional string memory_kind = 4;
  ShapeProto shape = 2;
  ShapeProto shard_shape = 3;
  bool is_fully_replicated = 5;
}
message HloShardingProto {
  int32 version_number = 4;
  DeviceListProto devices = 1;
  optional string memory_kind = 3;
  OpSharding xla_op_sharding = 2;
}
message LayoutProto { Serialized serialized_layout = 1; }
message CompactLayoutProto { int32 version_number = 2; repeated int32 major_to_minor = 1; }
message PjRtLayoutProto { int32 version_number = 2; xla.LayoutProto xla_layout = 1; }
message ArraySpecProto {
  int32 version_number = 5;
  DTypeProto dtype = 1;
  ShapeProto shape = 2;
  ShardingProto sharding = 3;
  optional bytes layout = 4;
}
message RemapPlanProto {
  message MappingProto {
    int32 in_array = 1;
    int32 out_array = 2;
    repeated int64 from_start = 3;
    repeated int64 from_end = 4;
    repeated int64 from_step = 5;
    repeated int64 to_start = 6;
    repeated int64 to_end = 7;
    repeated int64 to_step = 8;
  }
  message InputDevices { int32 in_array = 1; DeviceListProto device_list = 2; }
  message InputDevicesForOutput { int32 out_array = 1; repeated InputDevices input_devices = 2; }
  int32 version_number = 4;
  repeated ArraySpecProto input_specs = 1;
  repeated ArraySpecProto output_specs = 2;
  repeated MappingProto mappings = 3;
  repeated InputDevicesForOutput input_devices_for_output = 5;
}
message ExecuteOptionsProto {
  int32 version_number = 12;
  bool untuple_result = 2;
  int32 launch_id = 3;
  repeated int32 non_donatable_input_indices = 7;
  bool fill_status = 9;
  int64 execution_stream_id = 11;
  AttributeMapProto custom_options = 10;
}
message XlaCompileOptionsProto {
  int32 version_number = 3;
  CompileOptionsProto compile_options = 1;
  repeated int32 outputs_bundle_slice_sizes = 2;
}

package xla.ifrt.proto;
enum ArrayCopySemantics {
  ARRAY_COPY_SEMANTICS_UNSPECIFIED = 0; ARRAY_COPY_SEMANTICS_ALWAYS_COPY = 1;
  ARRAY_COPY_SEMANTICS_REUSE_INPUT = 2; ARRAY_COPY_SEMANTICS_DONATE_INPUT = 3;
}
enum SingleDeviceShardSemantics {
  SINGLE_DEVICE_SHARD_SEMANTICS_UNSPECIFIED = 0; SINGLE_DEVICE_SHARD_SEMANTICS_ADDRESSABLE_SHARDS = 1;
  SINGLE_DEVICE_SHARD_SEMANTICS_ALL_SHARDS = 2;
}
message ByteStrides { repeated int64 strides = 1; }
message StringArrayContents { repeated bytes strings = 1; }
"""
