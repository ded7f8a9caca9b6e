"""XLA's own messages (shapes, shardings, compile options), in the language of .proto files.

schema            makes classes of them
compile_options   reads them

A message may lack fields that the wheel's has: what nothing reads is not here. It may not differ otherwise;
tests/backend/door/protocol/test_ifrt_messages.py compares each field with the installed jaxlib's.
"""

from __future__ import annotations

__all__ = ["XLA"]

XLA = """
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
"""
