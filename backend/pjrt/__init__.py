"""Real devices through JAX's PJRT: an agent drives `PjrtDevices`. It imports JAX: set JAX's environment first.

pjrt_devices    which thread does what
world, gloo     collective worlds, joined and left; their connections
code            clients' code, compiled
launcher        enqueues gangs in order; completions waits for them in order; checkpoints: gangs that read and write
store           buffers (stored_buffers, device_arrays); rows: sparse exchanges
jax_errors      whose fault an error is
worker_thread   threads that do one thing after another

Neighbours: `sandbox`, the same devices behind a gate, for clients that are not trusted.
"""

from . import jax_errors
from .jax_errors import CompilerFault
from .pjrt_devices import PjrtDevices
from .world import WorldMembership, in_order
