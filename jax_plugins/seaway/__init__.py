"""JAX calls `initialize` when it looks for plug-ins: where it does not know IFRT's proxy by itself (JAX 0.10), this
makes it known, so that a program needs nothing but the variables that `seaway door` prints. What the proxy's client
cannot do, and its process can, is added: `callbacks`."""

from __future__ import annotations

import importlib
from typing import Any

from . import callbacks

PATIENCE_S = 60  # seconds until a door that does not answer is given up


def initialize() -> None:
    import jax
    from jax.extend.backend import ifrt_proxy, register_backend_factory

    bridge: Any = importlib.import_module("jax._src.xla_bridge")
    target = jax.config.read("jax_backend_target")  # type: ignore[no-untyped-call]
    if not target:
        return
    callbacks.install()
    if "proxy" in bridge._backend_factories:  # JAX 0.12 has it, and so does who uses pathwaysutils
        return

    def client() -> Any:
        options: Any = ifrt_proxy.ClientConnectionOptions()
        options.connection_timeout_in_seconds = PATIENCE_S
        return ifrt_proxy.get_client(target, options)

    register_backend_factory("proxy", client, priority=-1)
