"""Real devices through JAX's PJRT: an agent drives `PjrtDevices`. Importing it imports JAX: set JAX's environment
first.

Modules: `pjrt_devices` (which thread does what); `world` (collective worlds, joined and left) and `gloo` (their
connections), `compiled_codes` (all code), `launchable_code` and `blobs` (code that `jax.export` wrote),
`stablehlo_codes`, `stablehlo_launchable`, `stablehlo_reading` and `stablehlo_executables` (raw StableHLO),
`executable_cache`, `launcher` (enqueues gangs in order), `completions` (waits for them in order), `store` and
`device_arrays` (buffers), `rows` (sparse exchanges), `jax_errors`, `worker_thread` and `compile_threads` (threads).
For clients that are not trusted: `checked` (the same devices behind a gate), `code_gate`, `checker_process`,
`checker_pipes` and `checker` (a child process), `inspection` and `targets`, `verdicts`.
"""

from . import checked, checker_pipes, inspection, stablehlo_executables, stablehlo_reading
from .checker_process import TRIES, CheckerChild, Died, Late, NotStarted
from .launchable_code import wake_lapack
from .pjrt_devices import PjrtDevices
from .stablehlo_reading import ArrayFacts, MainFacts
