"""JAX calls `initialize` when it looks for plug-ins: the client's half of the door, in the user's process.

Where JAX does not know IFRT's proxy by itself (JAX 0.10), this makes it known, so that a program needs nothing but the
variables that `seaway door` prints. Where a program's devices are a door's, limits of JAX's client are lifted: each
module beside this one has an `install()`, which changes functions of JAX if they are there, and nothing else.
"""

from __future__ import annotations

import importlib
from typing import Any

PATIENCE_S = 60  # seconds until a door that does not answer is given up
LIFTS = ("arrays", "callbacks", "client")  # modules of this package


def initialize() -> None:
    import jax

    target = jax.config.read("jax_backend_target")  # type: ignore[no-untyped-call]
    platforms = getattr(jax.config, "jax_platforms", None) or "proxy"  # unset: the door is one of those that JAX tries
    if not target or "proxy" not in platforms.split(","):
        return
    bridge: Any = importlib.import_module("jax._src.xla_bridge")
    if "proxy" not in bridge._backend_factories:  # JAX 0.12 has it, and so does who uses pathwaysutils
        _register(target)
    for name in LIFTS:
        importlib.import_module(f"{__name__}.{name}").install()


def _register(target: str) -> None:
    from jax.extend.backend import ifrt_proxy, register_backend_factory

    def client() -> Any:
        options: Any = ifrt_proxy.ClientConnectionOptions()
        options.connection_timeout_in_seconds = PATIENCE_S
        return ifrt_proxy.get_client(target, options)

    register_backend_factory("proxy", client, priority=-1)
