"""What time it is for the devices: seconds, in a simulation of its own time, which passes while the program waits.

    begun = clock.now(); jax.block_until_ready(step(x)); print(clock.now() - begun)

Devices that exist have this machine's clock, `time.perf_counter`. A simulated door answers a plug-in program, as Orbax
and pathwaysutils have them; `backend.door.session.ops.plugin_programs` is the other end.
"""

import importlib
import time
from typing import Any

import jax
import numpy as np

QUESTION = '{"clockRequest": {}}'
_asked: dict[Any, Any] = {}  # the last client, and its executable; None: its clock is this machine's


def now() -> float:
    device = jax.devices()[0]
    if device.client not in _asked:
        _asked.clear()
        _asked[device.client] = _executable(device.client)
    executable = _asked[device.client]
    if executable is None:
        return time.perf_counter()
    pxla: Any = importlib.import_module("jax.interpreters.pxla")
    look = jax.core.ShapedArray((2,), np.dtype(np.uint32))
    handlers = pxla.global_avals_to_results_handler([look], [jax.sharding.SingleDeviceSharding(device)], True).handlers
    (found,) = executable.execute_sharded([]).consume_with_handlers(handlers)
    return int(np.asarray(found).view("<u8")[0]) / 1e9


def _executable(client: Any) -> Any:
    if not client.runtime_type.startswith("proxy"):
        return None
    programs: Any = importlib.import_module("jax.extend.ifrt_programs").ifrt_programs
    question, options = programs.make_plugin_program(QUESTION), programs.make_plugin_compile_options()
    try:
        return client.compile_ifrt_program(question, options)
    except jax.errors.JaxRuntimeError as error:
        if "UNIMPLEMENTED" in str(error):
            return None
        raise
