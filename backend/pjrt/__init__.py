"""Real devices through JAX's PJRT: `PjrtDevices` is what an agent drives. Imports JAX, so set its environment before.

Rooms: `devices` (the interface, and which thread does what); `world` (collective worlds, joined and left), `code` and
`blobs` (what is compiled), `launcher`, `completions` (in order, from one thread and in another), `store` and
`arrays` (buffers), `rows` (sparse exchanges), `blames`, `worker_thread` (threads). For clients that are not trusted:
`checked` (the same devices behind a gate), `code_gate`, `checker_process` and `checker` (a child process), `inspection`
and `targets`, `verdicts`.
"""

from .devices import PjrtDevices

__all__ = [
    "PjrtDevices",
]
