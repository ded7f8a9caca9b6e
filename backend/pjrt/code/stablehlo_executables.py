"""StableHLO made executables of, through jaxlib alone; and what jaxlib says of them and of its devices.

    compile_program(client, artifact, options, devices)    an executable, which this process can run
    serialized(client, executable), load_program(...)      the same as bytes, for another process of this machine
    about_executable(executable), about_platform(devices)  answers for clients (`contents.stablehlo_code`)

`options` are a CompileOptionsProto whose device ids are JAX's. Neighbours: `stablehlo_codes`, `executable_cache`.
"""

import importlib
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jaxlib import _jax

from ...contents import AboutError, CompiledAbout, PlatformAbout, PlatformDevice
from ...xla import StatusCode, StatusError
from .stablehlo_reading import MainFacts, module_of, numbered

log = logging.getLogger("seaway.pjrt")
native: Any = _jax
T = TypeVar("T")
RELEASE = ".".join(importlib.import_module("jaxlib").__version__.split(".")[:2])
SERDES = {"0.10": 3, "0.12": 6}  # by RELEASE: which serialized forms of shardings it writes
# Handlers that make arrays check them, and in this version refuse results of one device.
UNCHECKED = {"_skip_checks": True} if RELEASE == "0.10" else {}
ATTRIBUTES = ("coords", "core_on_chip", "slice_index")  # of devices, which JAX's meshes read
MEMORY_STATS = (
    "generated_code_size_in_bytes", "argument_size_in_bytes", "output_size_in_bytes", "alias_size_in_bytes",
    "temp_size_in_bytes", "peak_memory_in_bytes", "total_size_in_bytes", "total_allocation_bytes",
    "indefinite_allocations", "peak_unpadded_heap_bytes", "host_generated_code_size_in_bytes",
    "host_argument_size_in_bytes", "host_output_size_in_bytes", "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",
)  # fmt: skip
CODE = re.compile(r"([A-Z][A-Z_]+): ?")
LONGEST_ERROR = 2000  # characters


def compile_program(
    client: Any, artifact: bytes, options: bytes, devices: Sequence[Any], called: Sequence[Callable[..., Any]] = ()
) -> Any:
    """`devices`: those of the options' device assignment, in its order; some may be other processes'. `called`: for
    each of the program's callbacks, what is called."""
    place = native.DeviceList(tuple(devices))
    if not called:
        return client.compile_and_load(artifact, place, _parsed(options))
    with module_of(artifact) as module:
        numbered(module)
        return client.compile_and_load(module, place, _parsed(options), list(called))


def own_options() -> bytes:
    """Compile options of a program of this process, with XLA's flags as they are here."""
    found = native.CompileOptions()
    _ = found.executable_build_options.debug_options  # makes them
    return bytes(found.SerializeAsString())


def serialized(client: Any, executable: Any, main: MainFacts, devices: Sequence[Any]) -> bytes:
    """Nothing if it has no such form on this platform. `main`: what it was compiled of."""
    if RELEASE == "0.10" and len(devices) > 1 and None in main.results:
        return b""  # of a program with tokens, this version would end the process
    try:
        return bytes(client.serialize_executable(executable))
    except Exception as error:
        log.info("an executable has no form for other processes: %.300s", error)
        return b""


def load_program(
    client: Any, executable: bytes, options: bytes, devices: Sequence[Any], called: Sequence[Callable[..., Any]] = ()
) -> Any:
    """`executable` must be of a process of ours: loading it may run anything that is in it."""
    more = (list(called),) if called else ()
    return client.deserialize_executable(executable, native.DeviceList(tuple(devices)), _parsed(options), *more)


def _parsed(options: bytes) -> Any:
    return native.CompileOptions.ParseFromString(options)


# --- answers ------------------------------------------------------------------------------------------------------


def about_executable(executable: Any) -> CompiledAbout:
    kinds = _tried(lambda: tuple(map(str, executable.get_output_memory_kinds()[0])))
    stats = _tried(executable.get_compiled_memory_stats)
    return CompiledAbout(
        bytes(executable.fingerprint or b""),
        _shardings(executable.get_parameter_shardings()),
        _shardings(executable.get_output_shardings()),
        _tried(lambda: tuple(map(_layout_text, executable.get_parameter_layouts()))),
        _tried(lambda: tuple(map(_layout_text, executable.get_output_layouts()))),
        kinds,
        {
            name: int(getattr(stats, name))
            for name in MEMORY_STATS
            if not isinstance(stats, AboutError) and hasattr(stats, name)
        },
        int(executable.size_of_generated_code_in_bytes() or 0),
    )


def _shardings(shardings: Any) -> tuple[bytes, ...] | None:
    return None if shardings is None else tuple(each.SerializeToString() for each in shardings)


def _layout_text(layout: Any) -> str:
    text = layout.__getstate__()[0]
    return text.decode() if isinstance(text, bytes) else str(text)


def _tried(question: Callable[[], T]) -> T | AboutError:
    try:
        return question()
    except Exception as error:
        code, text = status_of(error)
        return AboutError(code, text[:LONGEST_ERROR])


def status_of(error: BaseException) -> tuple[int, str]:
    """The code and the text of an error: XLA's begin with the name of their code."""
    if isinstance(error, StatusError):
        return error.code, error.text
    text = str(error).strip() or type(error).__name__
    found = CODE.match(text)
    if found is not None and found[1] in StatusCode.keys():  # noqa: SIM118 (an enumeration's names)
        return StatusCode.Value(found[1]), text[found.end() :]
    wrong = isinstance(error, ValueError | TypeError)
    return StatusCode.INVALID_ARGUMENT if wrong else StatusCode.INTERNAL, text


def costs_of(executable: Any) -> dict[str, float]:
    found = executable.cost_analysis()
    return dict(found[0] if isinstance(found, list) else found)


def default_layout(device: Any, dtype: Any, shard: tuple[int, ...]) -> str:
    return _layout_text(device.client.get_default_layout(dtype, shard, device))


def about_platform(devices: Sequence[Any]) -> PlatformAbout:
    client = devices[0].client
    return PlatformAbout(
        platform_name(devices[0]), str(client.platform_version), str(client.runtime_type), serdes(),
        tuple(map(_about_device, devices)),
    )  # fmt: skip


def platform_name(device: Any) -> str:
    return "cuda" if device.platform == "gpu" else str(device.platform)


def serdes() -> int:
    """Which version of serialized forms this XLA writes; -1: unknown."""
    return SERDES.get(RELEASE, -1)


def _about_device(device: Any) -> PlatformDevice:
    memories = tuple(memory.kind for memory in device.addressable_memories())
    default = memories.index(device.default_memory().kind)
    return PlatformDevice(str(device.device_kind), memories, default, repr(device), str(device), attributes_of(device))


def attributes_of(device: Any) -> dict[str, Any]:
    """Those that JAX's meshes read."""
    return {
        name: tuple(value) if isinstance(value, list | tuple) else value
        for name in ATTRIBUTES
        if (value := getattr(device, name, None)) is not None
    }
