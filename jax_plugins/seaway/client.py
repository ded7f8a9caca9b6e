"""What JAX's client says of the door's devices, where it says less than a user needs, or more.

- `device.memory_stats()` is None, as for JAX's CPU devices, and no error.
- `Lowered.cost_analysis()` asks the local CPU's client, which analyses what has not been compiled as the door's would.
- Errors that only the client can raise say what to do instead.
- A program that ends is no news: the client's warning, with a stack of C++, is left away.
"""

import atexit
import importlib
from contextlib import suppress
from typing import Any

import jax

from .replaced import replace

INSTEAD = {  # part of an error's text: what is added to it
    "Connection to IFRT proxy server was terminated": (
        "The door has ended, and the arrays of this session are lost. Start the program again; or call"
        " jax.extend.backend.clear_backends() and jax.clear_caches(), and make the arrays anew in a new session."
    ),
    "implemented for a PjRt-compatible backend only": (
        "The devices are a door's: the memory of their arrays has no address in this process, and np.asarray(array)"
        " reads it."
    ),
    "does not support `Serialize`": "The executable is a door's. jax.export writes programs, which are compiled again.",
}
FATAL = 3  # of absl's levels


def install() -> None:
    replace("jaxlib._jax:Device", "memory_stats", _memory_stats)
    replace("jaxlib._jax", "hlo_module_cost_analysis", _costs)
    replace("jax.errors:JaxRuntimeError", "__str__", _text)
    with suppress(ImportError, AttributeError):
        atexit.register(importlib.import_module("jaxlib.utils").absl_set_min_log_level, FATAL)


def _memory_stats(original: Any, device: Any) -> Any:
    return None if device.client.runtime_type.startswith("proxy") else original(device)


def _costs(original: Any, client: Any, module: Any) -> Any:
    if client.runtime_type.startswith("proxy"):
        client = jax.local_devices(backend="cpu")[0].client
    return original(client, module)


def _text(original: Any, error: Any) -> str:
    text: str = original(error)
    return "\n".join([text, *(more for sign, more in INSTEAD.items() if sign in text)])
