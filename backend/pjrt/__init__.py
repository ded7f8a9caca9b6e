"""Real devices through JAX's PJRT: an agent drives `PjrtDevices`. Importing it imports JAX: set JAX's environment
first.

Modules: `devices` (the interface, and which thread does what); `world` (collective worlds, joined and left),
`code` and `blobs` (what is compiled), `launcher` (enqueues gangs in order), `completions` (waits for them in
order), `store` and `arrays` (buffers), `rows` (sparse exchanges), `blames`, `worker_thread` (threads). For clients
that are not trusted: `checked` (the same devices behind a gate), `code_gate`, `checker_process`, `checker_pipes` and
`checker` (a child process), `inspection` and `targets`, `verdicts`.
"""

from . import checked, checker_pipes, inspection
from .checker_process import CheckerChild, Died, Late
from .launchable_code import wake_lapack
from .pjrt_devices import PjrtDevices

__all__ = [
    "CheckerChild",
    "Died",
    "Late",
    "PjrtDevices",
    "checked",
    "checker_pipes",
    "inspection",
    "wake_lapack",
]
