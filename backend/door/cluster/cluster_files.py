"""Arrays of a cluster to files, and back: programs of computations that hosts do with their files.

    save      export(request, arrays ...) -> token, then seal(request, token) -> token
    restore   import(request) -> token, then load(token) -> arrays

They are those of `backend.checkpoint.documents`: contents go between devices and files, and do not come here. A program
is registered for one run. Neighbours: `cluster_executables`, `cluster_devices`.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from backend.checkpoint import ArrayEntry, CheckpointError, Document, Request, chunk_of, documents, zarr2
from backend.contents import hash_of
from core.model import Arg, Computation, Node, Out, Program, Value

from ..protocol import DTypeProto, ShardSpec
from ..session import ArrayFiles, ArrayType, invalid, unsupported
from .cluster_layouts import cut_by_a_mesh, value_of
from .cluster_programs import Places

BANDWIDTH = 10  # nanoseconds that a byte takes on its way to a file, or from it: assumed
LOOK_NS = 1_000_000  # that each of these takes besides: assumed
U8, S32 = DTypeProto.KIND_U8, DTypeProto.KIND_S32


class FilesProgram(NamedTuple):
    """`blobs`: the code of its computations. `request`: its first argument, of type `parameters[0]`."""

    program: Program
    blobs: tuple[bytes, ...]
    request: np.ndarray[Any, Any]
    parameters: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]


def saving(places: Places, files: ArrayFiles) -> FilesProgram:
    """Raises StatusError."""
    made = _Making(places, files, chunked=True)
    export = made.node("export", (Arg(0), *map(Arg, range(1, len(files.names) + 1))), (made.asked, *made.values), ())
    made.node("seal", (Arg(0), export), (made.asked, made.token), ())
    return made.program("save", files.types, (made.token_type,))


def restoring(places: Places, files: ArrayFiles) -> FilesProgram:
    """Raises StatusError."""
    made = _Making(places, files, chunked=False)
    token = made.node("import", (Arg(0),), (made.asked,), ())
    made.node("load", (token,), (made.token,), made.values)
    return made.program("restore", (), files.types)


class _Making:
    def __init__(self, places: Places, files: ArrayFiles, *, chunked: bool) -> None:
        devices = files.types[0].sharding.devices
        spec = places.of(devices)
        self._slices = places.slices(devices)
        self._at, self._mesh = self._slices.index(spec), spec.mesh_shape
        self._request = documents.as_array(
            Request(files.folder, nonce=os.urandom(8).hex(), within=files.root, seconds=files.seconds)
        )
        everywhere = ShardSpec(devices)
        self.asked_type = ArrayType(U8, self._request.shape, everywhere)
        self.token_type = ArrayType(S32, (1,), everywhere)
        self.asked, self.token, *self.values = (
            value_of(each, self._at) for each in (self.asked_type, self.token_type, *files.types)
        )
        for name, each in zip(files.names, files.types, strict=True):
            if not cut_by_a_mesh(each):
                raise unsupported(
                    f"array {name!r} is cut as no mesh of its devices cuts it: jax.device_put it with a NamedSharding"
                )
        self._entries = tuple(self._entry(*each, chunked) for each in zip(files.names, self.values, strict=True))
        self._nodes: list[Node] = []
        self._computations: list[Computation] = []
        self._blobs: list[bytes] = []

    def _entry(self, name: str, value: Value, chunked: bool) -> ArrayEntry:
        mesh, dims = value.sharding.mesh, value.sharding.dims
        try:
            zarr2.type_of(value.dtype)
        except CheckpointError as error:
            raise invalid(str(error)) from None
        chunk = chunk_of(value.shape, value.dtype, dims, mesh or self._mesh) if chunked else ()
        return ArrayEntry(name, value.dtype, value.shape, dims, chunk, mesh)

    def node(
        self, kind: documents.Kind, inputs: tuple[Arg | Out, ...], expects: tuple[Value, ...], makes: Sequence[Value]
    ) -> Out:
        """`makes`: (), for a token."""
        blob = documents.encode(Document(kind, self._mesh, self._entries))
        name, code = f"checkpoint.{kind}", hash_of(blob)
        nbytes = 0 if kind == "seal" else sum(each.nbytes for each in self.values) // self._slices[self._at].devices
        self._blobs.append(blob)
        self._computations.append(Computation(name, code, LOOK_NS + nbytes * BANDWIDTH, 0, False, code))
        self._nodes.append(Node(
            name, len(self._nodes), self._at, inputs, expects, tuple(makes) or (self.token,), irregular=kind != "load"
        ))  # fmt: skip
        return Out(len(self._nodes) - 1)

    def program(self, name: str, given: Sequence[ArrayType], results: tuple[ArrayType, ...]) -> FilesProgram:
        """Its results are those of the last node."""
        last = len(self._nodes) - 1
        parameters = (self.asked_type, *given)
        program = Program(
            name=f"checkpoint.{name}", slices=self._slices, computations=tuple(self._computations),
            args=tuple(value_of(each, self._at) for each in parameters), nodes=tuple(self._nodes),
            results=tuple(Out(last, number) for number in range(len(results))),
        )  # fmt: skip
        return FilesProgram(program, tuple(self._blobs), self._request, parameters, results)
