"""What arrays are, without their contents, in JAX's words: nothing here runs.

avals      shapes and types
trees      pytrees
slices     virtual devices that a user asks for
shardings  how an array lies on a slice, in core's words and as a NamedSharding that knows its slice
operand    what stands for an array in a call: an `Array`, or a value under trace
"""

from . import avals, shardings, trees
from .avals import Aval, aval, dtype_name, jax_dtype
from .operand import Operand
from .shardings import WHOLE, is_sharding, partition_spec, resolve, slice_of_sharding
from .slices import ElasticSlice, Slice, as_slice, elastic_of, slice, whole  # noqa: A004
