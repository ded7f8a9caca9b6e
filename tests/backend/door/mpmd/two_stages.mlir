#sp = #ifrt.sharding_param<1x2 to [1, 0] on 2x2>
#sp1 = #ifrt.sharding_param<2x1 to [1, 0] on 2x2>
#sp2 = #ifrt.sharding_param<2x1 to [0] on 4>
#sp3 = #ifrt.sharding_param<2x2 to [0] on 4>
#sp4 = #ifrt.sharding_param< to [0] on 4>
"builtin.module"() <{sym_name = "jit_train"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2, "model"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 2 : i64}]}} : () -> ()
  "func.func"() <{arg_attrs = [{ifrt.donated}, {ifrt.donated}, {}, {}], function_type = (!ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, !ifrt.array<tensor<8x8xf32>, #sp2, [0, 1, 2, 3]>, !ifrt.array<tensor<8x4xf32>, #sp2, [4, 5, 6, 7]>) -> (!ifrt.array<tensor<f32>, #sp4, [4, 5, 6, 7]>, !ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>), res_attrs = [{jax.result_info = "result[0]"}, {jax.result_info = "result[1]"}, {jax.result_info = "result[2]"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg17: !ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, %arg18: !ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, %arg19: !ifrt.array<tensor<8x8xf32>, #sp2, [0, 1, 2, 3]>, %arg20: !ifrt.array<tensor<8x4xf32>, #sp2, [4, 5, 6, 7]>):
    %30:3 = "ifrt.Call"(%arg17, %arg19) <{callee = @p0_first_fwd.train::@main, devices = #ifrt<devices[0, 1, 2, 3]>, donated_input_indices = array<i32>, io_aliases = [], operandSegmentSizes = array<i32: 2, 0>}> {ifrt.mesh_name = "a"} : (!ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.array<tensor<8x8xf32>, #sp2, [0, 1, 2, 3]>) -> (!ifrt.array<tensor<8x16xf32>, #sp3, [0, 1, 2, 3]>, !ifrt.array<tensor<8x16xf32>, #sp3, [0, 1, 2, 3]>, !ifrt.control)
    %31:2 = "ifrt.CopyArrays"(%30#0) <{donated = false, operandSegmentSizes = array<i32: 1, 0>, reuse = false}> : (!ifrt.array<tensor<8x16xf32>, #sp3, [0, 1, 2, 3]>) -> (!ifrt.array<tensor<8x16xf32>, #sp3, [4, 5, 6, 7]>, !ifrt.control)
    %32:3 = "ifrt.Call"(%arg18, %31#0, %arg20) <{callee = @p1_second_fwd.train::@main, devices = #ifrt<devices[4, 5, 6, 7]>, donated_input_indices = array<i32>, io_aliases = [], operandSegmentSizes = array<i32: 3, 0>}> {ifrt.mesh_name = "b"} : (!ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, !ifrt.array<tensor<8x16xf32>, #sp3, [4, 5, 6, 7]>, !ifrt.array<tensor<8x4xf32>, #sp2, [4, 5, 6, 7]>) -> (!ifrt.array<tensor<f32>, #sp4, [4, 5, 6, 7]>, !ifrt.array<tensor<8x4xf32>, #sp2, [4, 5, 6, 7]>, !ifrt.control)
    %33:3 = "ifrt.Call"(%arg18, %31#0, %32#1, %32#2) <{callee = @p2_second_bwd.train::@main, devices = #ifrt<devices[4, 5, 6, 7]>, donated_input_indices = array<i32: 2>, io_aliases = [array<i32: 1, 1>], operandSegmentSizes = array<i32: 3, 1>}> {ifrt.mesh_name = "b"} : (!ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, !ifrt.array<tensor<8x16xf32>, #sp3, [4, 5, 6, 7]>, !ifrt.array<tensor<8x4xf32>, #sp2, [4, 5, 6, 7]>, !ifrt.control) -> (!ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, !ifrt.array<tensor<8x16xf32>, #sp3, [4, 5, 6, 7]>, !ifrt.control)
    %34:2 = "ifrt.CopyArrays"(%33#1) <{donated = false, operandSegmentSizes = array<i32: 1, 0>, reuse = false}> : (!ifrt.array<tensor<8x16xf32>, #sp3, [4, 5, 6, 7]>) -> (!ifrt.array<tensor<8x16xf32>, #sp3, [0, 1, 2, 3]>, !ifrt.control)
    %35:2 = "ifrt.Call"(%arg19, %30#1, %34#0, %30#2) <{callee = @p3_first_bwd.train::@main, devices = #ifrt<devices[0, 1, 2, 3]>, donated_input_indices = array<i32: 1, 2>, io_aliases = [], operandSegmentSizes = array<i32: 3, 1>}> {ifrt.mesh_name = "a"} : (!ifrt.array<tensor<8x8xf32>, #sp2, [0, 1, 2, 3]>, !ifrt.array<tensor<8x16xf32>, #sp3, [0, 1, 2, 3]>, !ifrt.array<tensor<8x16xf32>, #sp3, [0, 1, 2, 3]>, !ifrt.control) -> (!ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.control)
    %36:2 = "ifrt.Call"(%arg17, %35#0, %35#1) <{callee = @p4_update1_fwd.train::@main, devices = #ifrt<devices[0, 1, 2, 3]>, donated_input_indices = array<i32: 0>, io_aliases = [array<i32: 1, 0>], operandSegmentSizes = array<i32: 2, 1>}> {ifrt.mesh_name = "a"} : (!ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.control) -> (!ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.control)
    %37:2 = "ifrt.Call"(%arg18, %33#0, %33#2) <{callee = @p5_update2_fwd.train::@main, devices = #ifrt<devices[4, 5, 6, 7]>, donated_input_indices = array<i32: 0>, io_aliases = [array<i32: 1, 0>], operandSegmentSizes = array<i32: 2, 1>}> {ifrt.mesh_name = "b"} : (!ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, !ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, !ifrt.control) -> (!ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>, !ifrt.control)
    "func.return"(%32#0, %36#0, %37#0) : (!ifrt.array<tensor<f32>, #sp4, [4, 5, 6, 7]>, !ifrt.array<tensor<8x16xf32>, #sp, [0, 1, 2, 3]>, !ifrt.array<tensor<16x4xf32>, #sp1, [4, 5, 6, 7]>) -> ()
  }) {ifrt.function} : () -> ()
  "builtin.module"() <{sym_name = "p0_first_fwd.train", sym_visibility = "private"}> ({
    "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2, "model"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 2 : i64}]}} : () -> ()
    "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}], function_type = (tensor<8x16xf32>, tensor<8x8xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>), res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}], sym_name = "main"}> ({
    ^bb0(%arg15: tensor<8x16xf32>, %arg16: tensor<8x8xf32>):
      %24 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
      %25 = "stablehlo.dot_general"(%arg16, %arg15) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      %26 = "stablehlo.tanh"(%25) : (tensor<8x16xf32>) -> tensor<8x16xf32>
      %27 = "stablehlo.add"(%26, %24) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      %28 = "stablehlo.subtract"(%24, %26) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      %29 = "stablehlo.multiply"(%27, %28) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      "func.return"(%26, %29) : (tensor<8x16xf32>, tensor<8x16xf32>) -> ()
    }) {reserved_hbm_bytes = 0 : i64} : () -> ()
  }) : () -> ()
  "builtin.module"() <{sym_name = "p1_second_fwd.train", sym_visibility = "private"}> ({
    "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2, "model"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 2 : i64}]}} : () -> ()
    "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}], function_type = (tensor<16x4xf32>, tensor<8x16xf32>, tensor<8x4xf32>) -> (tensor<f32>, tensor<8x4xf32>), res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, []>}, {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}], sym_name = "main"}> ({
    ^bb0(%arg10: tensor<16x4xf32>, %arg11: tensor<8x16xf32>, %arg12: tensor<8x4xf32>):
      %14 = "stablehlo.constant"() <{value = dense<2.000000e+00> : tensor<8x4xf32>}> : () -> tensor<8x4xf32>
      %15 = "stablehlo.constant"() <{value = dense<3.200000e+01> : tensor<f32>}> : () -> tensor<f32>
      %16 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
      %17 = "stablehlo.dot_general"(%arg11, %arg10) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
      %18 = "stablehlo.subtract"(%17, %arg12) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
      %19 = "stablehlo.multiply"(%18, %18) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
      %20 = "stablehlo.multiply"(%18, %14) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
      %21 = "stablehlo.reduce"(%19, %16) <{dimensions = array<i64: 0, 1>}> ({
      ^bb0(%arg13: tensor<f32>, %arg14: tensor<f32>):
        %23 = "stablehlo.add"(%arg13, %arg14) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        "stablehlo.return"(%23) : (tensor<f32>) -> ()
      }) : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
      %22 = "stablehlo.divide"(%21, %15) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "func.return"(%22, %20) : (tensor<f32>, tensor<8x4xf32>) -> ()
    }) {reserved_hbm_bytes = 0 : i64} : () -> ()
  }) : () -> ()
  "builtin.module"() <{sym_name = "p2_second_bwd.train", sym_visibility = "private"}> ({
    "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2, "model"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 2 : i64}]}} : () -> ()
    "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>, tf.aliasing_output = 1 : i32}, {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}], function_type = (tensor<16x4xf32>, tensor<8x16xf32>, tensor<8x4xf32>) -> (tensor<16x4xf32>, tensor<8x16xf32>), res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}], sym_name = "main"}> ({
    ^bb0(%arg7: tensor<16x4xf32>, %arg8: tensor<8x16xf32>, %arg9: tensor<8x4xf32>):
      %9 = "stablehlo.constant"() <{value = dense<3.125000e-02> : tensor<8x4xf32>}> : () -> tensor<8x4xf32>
      %10 = "stablehlo.multiply"(%arg9, %9) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
      %11 = "stablehlo.dot_general"(%10, %arg8) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<8x4xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
      %12 = "stablehlo.transpose"(%11) <{permutation = array<i64: 1, 0>}> : (tensor<4x16xf32>) -> tensor<16x4xf32>
      %13 = "stablehlo.dot_general"(%10, %arg7) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<8x4xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
      "func.return"(%12, %13) : (tensor<16x4xf32>, tensor<8x16xf32>) -> ()
    }) {reserved_hbm_bytes = 68 : i64} : () -> ()
  }) : () -> ()
  "builtin.module"() <{sym_name = "p3_first_bwd.train", sym_visibility = "private"}> ({
    "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2, "model"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 2 : i64}]}} : () -> ()
    "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}, {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}], function_type = (tensor<8x8xf32>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>, res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}], sym_name = "main"}> ({
    ^bb0(%arg4: tensor<8x8xf32>, %arg5: tensor<8x16xf32>, %arg6: tensor<8x16xf32>):
      %6 = "stablehlo.multiply"(%arg6, %arg5) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      %7 = "stablehlo.dot_general"(%6, %arg4) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
      %8 = "stablehlo.transpose"(%7) <{permutation = array<i64: 1, 0>}> : (tensor<16x8xf32>) -> tensor<8x16xf32>
      "func.return"(%8) : (tensor<8x16xf32>) -> ()
    }) {reserved_hbm_bytes = 256 : i64} : () -> ()
  }) : () -> ()
  "builtin.module"() <{sym_name = "p4_update1_fwd.train", sym_visibility = "private"}> ({
    "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2, "model"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 2 : i64}]}} : () -> ()
    "func.func"() <{arg_attrs = [{jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>, tf.aliasing_output = 0 : i32}], function_type = (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>, res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}], sym_name = "main"}> ({
    ^bb0(%arg2: tensor<8x16xf32>, %arg3: tensor<8x16xf32>):
      %3 = "stablehlo.constant"() <{value = dense<1.000000e-01> : tensor<8x16xf32>}> : () -> tensor<8x16xf32>
      %4 = "stablehlo.multiply"(%arg3, %3) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      %5 = "stablehlo.subtract"(%arg2, %4) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      "func.return"(%5) : (tensor<8x16xf32>) -> ()
    }) {reserved_hbm_bytes = 128 : i64} : () -> ()
  }) : () -> ()
  "builtin.module"() <{sym_name = "p5_update2_fwd.train", sym_visibility = "private"}> ({
    "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2, "model"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 2 : i64}]}} : () -> ()
    "func.func"() <{arg_attrs = [{jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>, tf.aliasing_output = 0 : i32}], function_type = (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>, res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}], sym_name = "main"}> ({
    ^bb0(%arg0: tensor<16x4xf32>, %arg1: tensor<16x4xf32>):
      %0 = "stablehlo.constant"() <{value = dense<1.000000e-01> : tensor<16x4xf32>}> : () -> tensor<16x4xf32>
      %1 = "stablehlo.multiply"(%arg1, %0) : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
      %2 = "stablehlo.subtract"(%arg0, %1) : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
      "func.return"(%2) : (tensor<16x4xf32>) -> ()
    }) {reserved_hbm_bytes = 68 : i64} : () -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
