"""The messages inside requests (arrays, shardings, layouts), in the language of .proto files.

ifrt_messages   makes classes of them, and of XLA's own (`backend.xla.xla_schema`), which these have inside
proxy_schema    the requests themselves

A message may lack fields that the wheel's has: what the door does not read is not here. It may not differ otherwise;
tests/backend/door/protocol/test_ifrt_messages.py compares each field with the installed jaxlib's.
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
