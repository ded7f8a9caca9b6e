"""Code that is raw StableHLO with compile options, as blobs that travel by their hash; and what hosts say of it.

A computation's code is what `jax.export` writes (see `pjrt.code`), or a `StableHLOCode`, whose first bytes say so. The
host that has a program's first device answers its `question`, unread by core (`ProgramTold.about`):

    question    program, options    answer
    ""          compiled            CompiledAbout: what one must know to run it
    "text"      compiled            the compiled program as text: `text_of`
    "costs"     compiled            a JSON object, what `cost_analysis` says: `costs_of`
    "platform"  none                PlatformAbout: the devices at the node's place

An array of a program may be a *stack*: the shards of all devices, one after the other along the first dimension, as
core's array of another shape than the program's. A client says so by a mesh whose first axis has one device.

Neighbours: `pjrt` compiles and answers; `door` asks. This module imports neither JAX nor protobuf.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from core.model import Layout, Sharding

MAGIC = b"seaway/stablehlo/1\0"
QUESTIONS = ("", "text", "costs", "platform")
ABOUT_LIMIT = 1 << 20  # bytes of an answer, as core has it
LONGEST_TEXT = 64 << 20  # characters of a program's text, unpacked
T = TypeVar("T")
CUT = "\n... (the rest of the text is left out)\n"


class MalformedCode(ValueError):
    """Bytes that are no StableHLOCode, or no answer to its question."""


class StableHLOCode(msgspec.Struct, frozen=True, array_like=True):
    """`program`: a portable artifact of StableHLO. `options`: a CompileOptionsProto, whose device assignment names the
    devices of the node's place by their position there: 0, 1, ... `callbacks`: the key of the session whose client
    answers the program's calls into Python; "": nobody does."""

    program: bytes
    options: bytes
    question: str = ""
    callbacks: str = ""

    def encode(self) -> bytes:
        return MAGIC + msgspec.msgpack.encode(self)

    @property
    def compiled(self) -> bool:
        """Whether there is a program to compile."""
        return self.question != "platform"


def is_stablehlo(blob: bytes) -> bool:
    return blob.startswith(MAGIC)


def decode(blob: bytes) -> StableHLOCode:
    """Raises MalformedCode."""
    if not is_stablehlo(blob):
        raise MalformedCode("it does not begin as StableHLO code does")
    found = _decoded(memoryview(blob)[len(MAGIC) :], StableHLOCode)
    if found.question not in QUESTIONS:
        raise MalformedCode(f"it asks {found.question[:40]!r}; known are {', '.join(map(repr, QUESTIONS))}")
    return found


def stacked(rank: int, count: int) -> Sharding:
    """The sharding of a stack of the shards of so many devices."""
    return Sharding(((1,), *((),) * (rank - 1)), (1, count))


def is_stack(layout: Layout) -> bool:
    return len(layout.mesh) == 2 and layout.mesh[0] == 1 and layout.mesh[1] > 1


# --- answers ------------------------------------------------------------------------------------------------------


class AboutError(msgspec.Struct, frozen=True):
    """What the compiler says instead of an answer. `code`: of the status, as numbered by gRPC and XLA."""

    code: int
    text: str


class CompiledAbout(msgspec.Struct, frozen=True, array_like=True):
    """What only compilation tells. Shardings are serialized OpShardings over the devices of the device assignment;
    None: the compiler has none. A layout is XLA's text of it. `memory_stats` has XLA's names."""

    fingerprint: bytes
    parameter_shardings: tuple[bytes, ...] | None
    output_shardings: tuple[bytes, ...] | None
    parameter_layouts: tuple[str, ...] | AboutError
    output_layouts: tuple[str, ...] | AboutError
    output_memory_kinds: tuple[str, ...] | AboutError
    memory_stats: Mapping[str, int]
    code_size: int


class PlatformDevice(msgspec.Struct, frozen=True, array_like=True):
    """One device, in the order of the place. `memories`: their kinds; `default_memory`: an index of them. `repr` and
    `text` are what Python's repr() and str() of it are on its host, with the number that it has there. `attributes`:
    those that JAX's meshes read, such as `coords`."""

    kind: str
    memories: tuple[str, ...]
    default_memory: int
    repr: str
    text: str
    attributes: Mapping[str, bool | int | float | str | tuple[int, ...]]


class PlatformAbout(msgspec.Struct, frozen=True, array_like=True):
    """`name`: "cpu", "cuda", "tpu". `serdes`: the version of serialized forms that this XLA writes; -1: unknown."""

    name: str
    version: str
    runtime: str
    serdes: int
    devices: tuple[PlatformDevice, ...]


def encode_about(about: CompiledAbout | PlatformAbout) -> bytes:
    return msgspec.msgpack.encode(about)


def compiled_about(about: bytes) -> CompiledAbout:
    """Raises MalformedCode, as the next ones do."""
    return _decoded(about, CompiledAbout)


def platform_about(about: bytes) -> PlatformAbout:
    return _decoded(about, PlatformAbout)


def encode_costs(costs: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(costs)).encode()


def costs_of(about: bytes) -> dict[str, Any]:
    try:
        found = json.loads(about)
    except ValueError as error:
        raise MalformedCode(f"the costs cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise MalformedCode("the costs are no JSON object")
    return found


def encode_text(text: str) -> bytes:
    """Packs a text. A text that does not fit into an answer is cut at a line's end, and says so."""
    found, size = _packed(text), len(text)
    while len(found) > ABOUT_LIMIT:
        size = size * 3 // 4
        found = _packed(text[: text.rfind("\n", 0, size) + 1 or size] + CUT)
    return found


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode(errors="replace"))


def text_of(about: bytes) -> str:
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(about, LONGEST_TEXT)
    except zlib.error as error:
        raise MalformedCode(f"the program's text cannot be read: {error}") from error
    if not unpacking.eof and not unpacking.unconsumed_tail:
        raise MalformedCode("the program's text ends too early")
    return found.decode(errors="replace")


def _decoded(data: bytes | memoryview, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise MalformedCode(f"it cannot be read: {error}") from error
