"""What XLA's own messages and names mean, without JAX: for the door, which speaks them, and for agents.

schema            the classes of messages; protos/: what they are
compile_options   which of a client's compile options are passed on
element_types     types of elements, by their names
"""

from .compile_options import DEVICE_COUNT, UnsafeOptions, assigned_to, flags_of, safe_options, xla_flags
from .element_types import ELEMENT_TYPES, core_dtype
from .schema import StatusCode, StatusError, message_classes
