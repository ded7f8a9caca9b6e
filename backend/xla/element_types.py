"""Types of elements, by XLA's name, numpy's (which is core's) and MLIR's text.

`core_dtype(mlir)` is what core calls it. A sub-byte type (int4, float4) takes one byte an element in host memory, as
in ml_dtypes. Neighbours: `ifrt_messages`, `stablehlo_reading`.
"""

# XLA's, numpy's, MLIR's
ELEMENT_TYPES = (
    ("PRED", "bool", "i1"),
    ("S2", "int2", "i2"), ("S4", "int4", "i4"), ("S8", "int8", "i8"), ("S16", "int16", "i16"),
    ("S32", "int32", "i32"), ("S64", "int64", "i64"),
    ("U2", "uint2", "ui2"), ("U4", "uint4", "ui4"), ("U8", "uint8", "ui8"), ("U16", "uint16", "ui16"),
    ("U32", "uint32", "ui32"), ("U64", "uint64", "ui64"),
    ("S1", "int1", "si1"), ("U1", "uint1", "ui1"),
    ("F16", "float16", "f16"), ("F32", "float32", "f32"), ("F64", "float64", "f64"), ("BF16", "bfloat16", "bf16"),
    ("C64", "complex64", "complex<f32>"), ("C128", "complex128", "complex<f64>"),
    *((f"F{name.upper()}".replace("_", ""), f"float{name}", f"f{name.upper()}".replace("_", "")) for name in (
        "8_e3m4", "8_e4m3", "8_e4m3fn", "8_e4m3b11fnuz", "8_e4m3fnuz", "8_e5m2", "8_e5m2fnuz", "8_e8m0fnu",
        "4_e2m1fn", "6_e2m3fn", "6_e3m2fn",
    )),
)  # fmt: skip

_CORE = {mlir: numpy for _, numpy, mlir in ELEMENT_TYPES}


def core_dtype(mlir: str) -> str | None:
    """Core's name of elements of this type; None: unknown."""
    return _CORE.get(mlir)
