"""Compiles a computation for devices that this machine does not have. `compiling` starts it as a process of its own.

    python -P child.py FOLDER

FOLDER holds `request.json` and `computation`, the bytes of jax.export. This program adds `hlo.txt` and `result.json`,
or `error.json`. It imports nothing of Seaway, and JAX only after the environment is set.
"""

import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    try:
        result = compile_for(request, (folder / "computation").read_bytes(), folder)
    except BaseException as error:  # the parent reports every error
        text = {"kind": type(error).__name__, "stage": STAGE[0], "text": str(error)}
        (folder / "error.json").write_text(json.dumps(text))
        os._exit(3)
    (folder / "result.json").write_text(json.dumps(result))
    os._exit(0)  # the nodes of `cpu_devices` would wait for each other to leave


STAGE = ["start"]
"""What the program is doing, for `error.json`."""


def compile_for(request: dict[str, Any], blob: bytes, folder: Path) -> dict[str, Any]:
    import numpy as np
    from jax import export
    from jax.sharding import AxisType, Mesh

    jax: Any = importlib.import_module("jax")  # untyped: its types differ between its versions

    STAGE[0] = "devices"
    devices = DEVICES[request["platform"]](request)
    sizes = [size for _, size, _ in request["axes"]]
    if prod(sizes) > len(devices):
        raise ValueError(f"{prod(sizes)} devices are asked for; there are {len(devices)}")
    names = tuple(name for name, _, _ in request["axes"])
    chosen = np.array(devices[: prod(sizes)]).reshape(sizes)
    mesh = Mesh(chosen, names, axis_types=tuple(AxisType[kind] for _, _, kind in request["axes"]))
    STAGE[0] = "compilation"
    if request["dumped"]:
        (folder / "dump").mkdir()
    exported = export.deserialize(bytearray(blob))
    inputs = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding or jax.NamedSharding(mesh, jax.P()))
        for aval, sharding in zip(exported.in_avals, exported.in_shardings_jax(mesh), strict=True)
    ]
    started = time.perf_counter()
    jitted = jax.jit(exported.call, donate_argnums=tuple(request["donated"]))
    compiled = jitted.lower(*inputs).compile()
    seconds = time.perf_counter() - started
    STAGE[0] = "analysis"
    (folder / "hlo.txt").write_text(compiled.as_text() or "")
    if before := sorted((folder / "dump").glob(f"*{request['dumped']}*.txt")) if request["dumped"] else []:
        before[-1].replace(folder / "before.txt")
    return {"seconds": seconds, "cost": costs_of(compiled), "memory": memory_of(compiled), "of": len(devices)}


def tpu_devices(request: dict[str, Any]) -> list[Any]:
    from jax.experimental import topologies

    given = request["options"].items()
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in given}
    found = topologies.get_topology_desc(platform="tpu", topology_name=request["topology"], **options)
    return list(found.devices)


def cpu_devices(request: dict[str, Any]) -> list[Any]:
    import jax

    if request["nodes"] > 1:
        bridge: Any = importlib.import_module("jax._src.xla_bridge")
        client, factories = clients(request)[0], bridge._backend_factories
        factories["cpu"] = replace(factories["cpu"], factory=lambda: client)
    return list(jax.devices("cpu"))


def clients(request: dict[str, Any]) -> list[Any]:
    """XLA's clients for CPUs, one a node, all of them in this process. Each compiles for the devices of all nodes.

    A client has 2048 devices at most. Nothing is executed, so the nodes only tell each other what devices they have.
    """
    inside: Any = importlib.import_module("jaxlib._jax")
    nodes = request["nodes"]
    devices = -(-prod(size for _, size, _ in request["axes"]) // nodes)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    KEPT.append(inside.get_distributed_runtime_service(address, nodes))

    def client(node: int) -> Any:
        joined = inside.get_distributed_runtime_client(address, node)
        joined.connect()
        exchange = inside.make_gloo_tcp_collectives(distributed_client=joined, hostname="127.0.0.1")
        return inside.get_tfrt_cpu_client(
            distributed_client=joined, node_id=node, num_nodes=nodes, collectives=exchange, num_devices=devices
        )

    with ThreadPoolExecutor(nodes) as threads:
        KEPT.extend(threads.map(client, range(nodes)))
    return KEPT[1:]


KEPT: list[Any] = []
"""The service that the nodes meet at, and the nodes' clients."""
DEVICES: dict[str, Callable[[dict[str, Any]], list[Any]]] = {"tpu": tpu_devices, "cpu": cpu_devices}


def costs_of(compiled: Any) -> dict[str, float]:
    found = compiled.cost_analysis()
    found = found[0] if isinstance(found, list) else found
    keys = ("flops", "bytes accessed", "optimal_seconds", "transcendentals")
    return {key: float(found[key]) for key in keys if found and key in found}


def memory_of(compiled: Any) -> dict[str, int]:
    found = compiled.memory_analysis()
    keys = ("argument", "output", "alias", "temp", "generated_code", "peak_memory")
    sizes = (getattr(found, f"{key}_size_in_bytes", getattr(found, f"{key}_in_bytes", None)) for key in keys)
    return {key: int(size) for key, size in zip(keys, sizes, strict=True) if size is not None}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
