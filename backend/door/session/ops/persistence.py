"""Arrays to files and back, as Orbax asks Google's own servers for it where ENABLE_PATHWAYS_PERSISTENCE=1 is set.

    REQUESTS    a plug-in program for each kind of request: of one array, or of many

Whoever has the devices has the files, too: contents do not pass through the door or the client. The client chooses the
folder, which must be below the one that the door was started with: whoever opens it looks where its links lead. What
is written there is on disk before the run's status is told.
Neighbours: `plugin_programs`; `backend.checkpoint`, what the files are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from backend.checkpoint import CheckpointError, check_name, folders

from ...protocol import dtype_of, kind_of_xla, name_of
from ..memory_meter import bytes_of
from ..session_arrays import ArrayValue
from ..session_devices import ArrayFiles, ArrayType, StatusError, invalid, unsupported
from ..session_state import Carried, SessionProgram, SessionState
from .plugin_json import json_value, numbers_of, sharding_of, text_of

HERE = "file://"
NOWHERE = (
    "this door writes and reads no files for programs: start it with --persist FOLDER, if it does not simulate, or let "
    "Orbax do so, without ENABLE_PATHWAYS_PERSISTENCE"
)
HOUR = 3600.0
LARGEST = 2**62  # elements of a dimension
Done = Callable[[Carried | StatusError], None]


class _Asked(NamedTuple):
    """Arrays in files. A request to write them does not say their types."""

    folder: str
    names: tuple[str, ...]
    kinds: tuple[int | None, ...]
    types: tuple[ArrayType, ...]
    seconds: float

    def files(self, state: SessionState, types: Sequence[ArrayType]) -> ArrayFiles:
        return ArrayFiles(
            self.folder, str(state.limits.persist), self.names, tuple(types), self.seconds, lambda: state.over
        )


def _asked(state: SessionState, bodies: list[Any]) -> _Asked:
    if state.limits.persist is None:
        raise unsupported(NOWHERE)
    folder = {text_of(json_value(dict, each, "a request").get("b64_location"), "b64_location") for each in bodies}
    if len(folder) > 1:
        raise invalid("the arrays of one request are in several folders")
    path = folder.pop().removeprefix(HERE)
    names, kinds, types = [], list[int | None](), []
    try:
        folders.plain(path)
        if not path.startswith("/"):
            raise CheckpointError(f"checkpoint {path[:200]!r}: give a folder of a file system, from / on")
        for body in bodies:
            names.append(text_of(body.get("b64_name"), "b64_name"))
            check_name(names[-1])
            kind, shape = _look(body.get("shape"))
            spec = sharding_of(state, body, "b64_hlo_sharding_string")
            if not spec.fits(shape) or not spec.exact or any(not 0 <= dim < LARGEST for dim in shape):
                raise invalid(f"array {names[-1]!r} of shape {list(shape)} cannot be cut as it is asked")
            kinds.append(kind)
            types.append(ArrayType(kind or 0, shape, spec))
    except CheckpointError as error:
        raise invalid(str(error)) from None
    if len(set(names)) < len(names):
        raise invalid("two arrays of one request have the same name")
    if len({each.sharding.devices for each in types}) > 1:
        raise invalid("the arrays of one request are on different devices: make a request for each row of devices")
    return _Asked(path, tuple(names), tuple(kinds), tuple(types), _seconds(bodies[0].get("timeout")))


def _seconds(given: Any) -> float:
    """What a program gives it, or an hour, as Orbax does."""
    found = given.get("seconds") if isinstance(given, dict) else None
    return float(found) if type(found) is int and 0 < found < LARGEST else HOUR


def _look(given: Any) -> tuple[int | None, tuple[int, ...]]:
    """The kind of the elements, if it is said, and the shape."""
    if type(given) is not dict:
        return None, numbers_of(given, "shape")
    name = json_value(str, given.get("xla_primitive_type_str"), "xla_primitive_type_str")
    kind = kind_of_xla(name)
    if kind is None:
        raise invalid(f"there is no type {name[:40]!r} of elements")
    return kind, numbers_of(given.get("dimensions"), "dimensions")


# --- writing ------------------------------------------------------------------------------------------------------


def _write(state: SessionState, bodies: list[Any]) -> SessionProgram:
    asked = _asked(state, bodies)

    def run(state: SessionState, values: list[ArrayValue], done: Done) -> None:
        for value, said, name in zip(values, asked.types, asked.names, strict=True):
            spec, wanted = value.type.sharding, said.sharding
            alike = value.type.shape == said.shape and spec.devices == wanted.devices
            if not alike or (spec.exact and not spec.cuts_as(wanted, said.shape)):
                raise invalid(
                    f"array {name!r} is {name_of(value.type.kind)}{list(value.type.shape)} on devices "
                    f"{value.type.sharding.devices}, and not what was said of it"
                )
            if dtype_of(value.type.kind) is None:
                raise unsupported(f"arrays of {name_of(value.type.kind)} have no files")
        types = [said._replace(kind=value.type.kind) for value, said in zip(values, asked.types, strict=True)]
        files = asked.files(state, types)
        state.devices.save(files, [value.ref for value in values], lambda refs: done(_or_fault(refs, [])))

    devices = asked.types[0].sharding.devices
    return SessionProgram("save", devices, len(asked.names), 0, (), run, waits=True)


def _or_fault(refs: Any, results: list[Any]) -> Carried | StatusError:
    return refs if isinstance(refs, StatusError) else Carried(results, list(refs))


# --- reading ------------------------------------------------------------------------------------------------------


def _read(state: SessionState, bodies: list[Any]) -> SessionProgram:
    asked = _asked(state, bodies)
    if None in asked.kinds:
        raise invalid("a request to read an array does not say its type")
    files = asked.files(state, asked.types)

    def run(state: SessionState, values: list[ArrayValue], done: Done) -> None:
        nbytes = list(map(bytes_of, files.types))
        state.memory.check(sum(nbytes))

        def came(refs: Any) -> None:
            if isinstance(refs, StatusError):
                done(refs)
                return
            try:
                memory = list(map(state.memory.take, nbytes))
            except StatusError as fault:
                done(fault)
            else:
                done(Carried(list(zip(files.types, refs, memory, strict=True)), []))

        state.devices.restore(files, came)

    devices = asked.types[0].sharding.devices
    return SessionProgram("restore", devices, 0, len(asked.names), (), run, waits=True)


# --- requests -----------------------------------------------------------------------------------------------------


def _many(body: Mapping[str, Any], key: str) -> list[Any]:
    return list(json_value(list, body.get(key), key))


REQUESTS: Mapping[str, Callable[[SessionState, dict[str, Any]], SessionProgram]] = {
    "persistenceWriteRequest": lambda state, body: _write(state, [body]),
    "persistenceReadRequest": lambda state, body: _read(state, [body]),
    "bulk_persistence_write_request": lambda state, body: _write(state, _many(body, "write_requests")),
    "bulk_persistence_read_request": lambda state, body: _read(state, _many(body, "read_requests")),
}
