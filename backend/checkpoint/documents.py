"""A client's requests to hosts' file systems: the code of a computation that is no XLA program, and its argument.

    save     (request, arrays ...) -> token    write our part of these arrays
    commit   (request, tokens ...) -> token    all parts are written: make them a checkpoint
    read     (request) -> token                read our shards of these arrays into host memory
    load     (token) -> arrays                 ... and copy them to the devices
    latest   (request) -> number               the last complete step, plus one; 0: there is none

and for arrays that lie by themselves in a folder (`zarr2`), of which no step is made:

    export   (request, arrays ...) -> token    write our part of these arrays
    seal     (request, token) -> token         all parts are written: their checksums become the arrays'
    import   (request) -> token                read our shards of them; `load` copies them to the devices

Documents come from clients, so they are checked here; their runner checks them against the plan.
"""

import re
from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import msgspec
import numpy as np

from core.model import Layout, ProgramError, Sharding, SliceSpec, Value, validate_put

MAGIC = b"seaway-checkpoint 1\n"
Kind = Literal["save", "commit", "read", "load", "latest", "export", "seal", "import"]
BARE = ("export", "seal", "import", "load")  # of arrays that may have any names
NAME = re.compile(r"[A-Za-z0-9_%-][A-Za-z0-9_.%-]{0,199}")  # valid as a folder's name on any file system
CHUNK = re.compile(r"[0-9]+(\.[0-9]+)*")
NONCE = re.compile(r"[0-9a-f]{16}")
MOST = 100_000  # most arrays in one checkpoint
LAST = 2**31 - 2  # largest step
LEAST = 512  # fewest bytes of a request, as an array: rounded up, so that most have the same size
TOKEN = ("int32", (1,))  # type and shape of the output that marks completion


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or read. Its text names the folder."""


class Discarded(CheckpointError):
    """The files being written have been removed: another host's part failed, or a user has deleted them."""


class ArrayEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One array. `split`: the mesh axes that split each dimension. `chunk`: what one file holds; () when reading.
    `mesh`: () for the document's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    split: tuple[tuple[int, ...], ...] = ()
    chunk: tuple[int, ...] = ()
    mesh: tuple[int, ...] = ()


class Document(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A request's code. `mesh`: of the arrays' slice. A commit lists those of all slices, without their split."""

    kind: Kind
    mesh: tuple[int, ...] = ()
    entries: tuple[ArrayEntry, ...] = ()


class Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A request's argument. `nonce`: distinguishes two saves of one step. `keep`: how many steps remain; 0: all. Of an
    export or import, `within`: a folder that it must be in, whoever asks, and `seconds`: after which it is given up."""

    folder: str
    step: int = 0
    nonce: str = ""
    overwrite: bool = False
    keep: int = 0
    within: str = ""
    seconds: float = 0.0


def encode(document: Document) -> bytes:
    return MAGIC + msgspec.msgpack.encode(document)


def is_document(blob: bytes) -> bool:
    return blob.startswith(MAGIC)


def decode(blob: bytes) -> Document:
    """Decodes and checks a document. Raises CheckpointError."""
    try:
        found = msgspec.msgpack.decode(blob[len(MAGIC) :], type=Document)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"a checkpoint's document cannot be read: {error}") from None
    if len(found.entries) > MOST:
        raise CheckpointError(f"a checkpoint of {len(found.entries)} arrays; at most {MOST}")
    if len({entry.name for entry in found.entries}) < len(found.entries):
        raise CheckpointError("two arrays of one checkpoint have the same name")
    for entry in found.entries:
        if found.kind in BARE:
            check_name(entry.name)
        elif not NAME.fullmatch(entry.name) or entry.name == "zarr.json":
            raise CheckpointError(f"{entry.name[:80]!r} cannot be the name of an array in a checkpoint")
        chunked = found.kind in ("save", "commit", "export", "seal")
        _check(entry, entry.mesh or found.mesh or (1,), chunked=chunked)
    return found


def check_name(name: str) -> None:
    """Whether an array may be in this folder, or in these folders of each other, below one that a program names: names
    that begin with a dot are those of documents, and in an array's folder numbers are those of chunks. Raises
    CheckpointError."""
    first, *inner = name.split("/")
    good = name.isprintable() and not any(CHUNK.fullmatch(part) for part in inner)
    if not good or any(not part or part.startswith(".") or len(part.encode()) > 255 for part in (first, *inner)):
        raise CheckpointError(f"{name[:80]!r} cannot be the name of an array in a checkpoint")


def _check(entry: ArrayEntry, mesh: tuple[int, ...], *, chunked: bool) -> None:
    try:
        validate_put(
            Value(entry.shape, entry.dtype, 0, Sharding(entry.split)), SliceSpec("checkpoint", prod(mesh), mesh)
        )
    except ProgramError as error:
        raise CheckpointError(f"array {entry.name!r} of a checkpoint: {error}") from None
    if not chunked:
        return
    fits = len(entry.chunk) == len(entry.shape) and all(
        part >= 1 and size % part == 0 for part, size in zip(entry.chunk, entry.shape, strict=True)
    )
    if not fits:
        raise CheckpointError(f"array {entry.name!r} of shape {entry.shape} in chunks of {entry.chunk}")


def fits(document: Document, inputs: Sequence[Layout], outputs: Sequence[Layout]) -> None:
    """Checks that the computation's inputs and outputs in the plan fit the document. Raises CheckpointError."""
    kind, arrays = document.kind, [(entry.dtype, entry.shape) for entry in document.entries]
    takes, makes = ([(each.dtype, each.shape) for each in layouts] for layouts in (inputs, outputs))
    asked = bool(takes) and takes[0][0] == "uint8" and len(takes[0][1]) == 1
    right = {
        "save": asked and takes[1:] == arrays and makes == [TOKEN],
        "commit": asked and set(takes[1:]) <= {TOKEN} and makes == [TOKEN],
        "read": asked and len(takes) == 1 and makes == [TOKEN],
        "load": takes == [TOKEN] and makes == arrays,
        "latest": asked and len(takes) == 1 and makes == [TOKEN],
    }
    same = {"export": "save", "seal": "commit", "import": "read"}
    if not right[same.get(kind, kind)]:
        raise CheckpointError(f"a checkpoint's {kind!r} of {len(arrays)} arrays does not take {takes} and make {makes}")
    if kind in ("save", "export"):
        for layout, entry in zip(inputs[1:], document.entries, strict=True):
            if (layout.mesh, layout.sharding.dims) != (entry.mesh or document.mesh, entry.split):
                raise CheckpointError(f"array {entry.name!r} has another sharding than the document says")


# --- requests ---------------------------------------------------------------------------------------------------


def as_array(request: Request) -> np.ndarray[Any, Any]:
    """A request as contents that travel with a call."""
    told = msgspec.msgpack.encode(request)
    room = LEAST
    while room < len(told) + 4:
        room *= 2
    found = np.zeros(room, np.uint8)
    found[:4] = np.frombuffer(len(told).to_bytes(4, "little"), np.uint8)
    found[4 : 4 + len(told)] = np.frombuffer(told, np.uint8)
    return found


def request_of(array: np.ndarray[Any, Any]) -> Request:
    """Reads a request from an array. Raises CheckpointError."""
    raw = np.ascontiguousarray(array, np.uint8).tobytes()
    told = raw[4 : 4 + int.from_bytes(raw[:4], "little")]
    try:
        found = msgspec.msgpack.decode(told, type=Request)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"a checkpoint's request cannot be read: {error}") from None
    if not 0 <= found.step <= LAST:
        raise CheckpointError(f"checkpoint {found.folder}: step {found.step} is not from 0 to {LAST}")
    if found.keep < 0:
        raise CheckpointError(f"checkpoint {found.folder}: {found.keep} steps cannot be kept")
    if found.nonce and not NONCE.fullmatch(found.nonce):
        raise CheckpointError(f"checkpoint {found.folder}: {found.nonce!r} is no nonce")
    return found
