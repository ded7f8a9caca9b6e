"""Plug-in programs: what pathwaysutils asks of Google's own servers, and our client half of this one, as JSON inside of
a program that is compiled.

    plugin_program(state, data)     REQUESTS has a function for each key, which returns a `SessionProgram`

The session carries them out itself, with the devices' help; no compiler sees them. They are described, run and waited
for as other executables are. What the JSON says comes from the client: each number and name in it is checked before it
is used. Neighbours: `executables`, `array_requests`; `persistence`, for arrays in files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...protocol import DTypeProto, ShardSpec
from ..session_arrays import ArrayValue
from ..session_devices import ArrayType, CompiledFacts, StatusError, invalid, unsupported
from ..session_state import Carried, SessionProgram, SessionState
from . import persistence
from .array_requests import DONATE_INPUT, moved
from .plugin_json import json_value, sharding_of

TYPE, OPTIONS = "xla::ifrt::PluginProgram", "xla::ifrt::PluginCompileOptions"
HEAD = b"__serialized_plugin_program "
MOST_BYTES = 1 << 24  # of JSON; an array of a reshardRequest takes some 300
ELSEWHERE = {
    "profile": "`opentelemetry-instrument seaway door` makes a span of each run; XLA's own profiles are not taken"
}


def plugin_program(state: SessionState, data: bytes) -> tuple[SessionProgram, CompiledFacts]:
    if len(data) > MOST_BYTES:
        raise invalid(
            f"a plug-in program has {len(data)} bytes, but at most {MOST_BYTES} are allowed: reshard fewer arrays"
        )
    try:
        asked = json.loads(data.removeprefix(HEAD))
    except (ValueError, RecursionError):
        asked = None
    if not data.startswith(HEAD) or not isinstance(asked, dict) or len(asked) != 1:
        raise invalid("a plug-in program is not JSON with one key, after its head")
    ((key, body),) = asked.items()
    read = REQUESTS.get(key)
    if read is None:
        hint = next((text for word, text in ELSEWHERE.items() if word in key.lower()), "")
        raise unsupported(f"this door has no plug-in program {key[:60]!r}, only {', '.join(REQUESTS)}. {hint}")
    program = read(state, json_value(dict, body, key))
    nothing = unsupported("a plug-in program has no layouts, and no memory of its own")
    facts = CompiledFacts(
        program.name, program.devices, hashlib.sha256(data).digest(), (None,) * program.parameters, (), None, None,
        nothing, nothing, nothing, program.donated, {}, 0,
    )  # fmt: skip
    return program, facts


# --- resharding ----------------------------------------------------------------------------------------------------


def _reshard(state: SessionState, body: Mapping[str, Any]) -> SessionProgram:
    """Arrays become arrays with other shardings. Their types are known when they come."""
    sources, targets = (
        [sharding_of(state, each) for each in json_value(list, body.get(name), name)]
        for name in ("inSharding", "outSharding")
    )
    if len(sources) != len(targets):
        raise invalid(f"{len(sources)} arrays cannot be resharded to {len(targets)} shardings")
    donate = json_value(bool, body.get("donateInput", False), "donateInput")

    def run(state: SessionState, values: list[ArrayValue], done: Callable[[Carried | StatusError], None]) -> None:
        types = []
        for value, source, target in zip(values, sources, targets, strict=True):
            kind, shape, spec = value.type
            if spec.devices != source.devices:
                raise invalid(
                    f"an array to reshard is on devices {spec.devices}, and was said to be on {source.devices}"
                )
            if not target.fits(shape):
                raise invalid(
                    f"an array of shape {list(shape)} cannot be cut into {list(target.tiles.grid)} equal shards"
                )
            types.append(ArrayType(kind, shape, target))
        done(Carried(moved(state, values, types, DONATE_INPUT if donate else 0), []))

    donated = tuple(range(len(sources))) if donate else ()
    return SessionProgram("reshard", sources[0].devices, len(sources), len(targets), donated, run)


# --- the clock -----------------------------------------------------------------------------------------------------


def _clock(state: SessionState, body: Mapping[str, Any]) -> SessionProgram:
    """One array: the nanoseconds of simulated time, as two words."""
    if state.devices.now() is None:
        raise unsupported("only simulated devices have a clock of their own: time.perf_counter() is that of these")

    def run(state: SessionState, values: list[ArrayValue], done: Callable[[Carried | StatusError], None]) -> None:
        words = np.array([state.devices.now() or 0], "<u8").view(np.uint32)
        look = ArrayType(U32, words.shape, ShardSpec((0,)))
        done(Carried([(look, state.devices.put(look, [words]), state.memory.take(words.nbytes))], []))

    return SessionProgram("clock", (0,), 0, 1, (), run)


U32 = DTypeProto.KIND_U32
REQUESTS: Mapping[str, Callable[[SessionState, dict[str, Any]], SessionProgram]] = {
    "reshardRequest": _reshard,
    "clockRequest": _clock,
    **persistence.REQUESTS,
}
