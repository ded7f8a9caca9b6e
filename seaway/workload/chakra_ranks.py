"""Reads Chakra execution traces: the nodes of each rank as plain values, checked.

Neighbours: `seaway.chakra_files` has the format; `chakra_steps` says what ranks do together; `chakra_playback`
plays it. The functions that matter: `load`, `RankFile.nodes`, `ChakraTrace.play`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import chakra_files
from ..chakra_files import COLLECTIVE, COMPUTE, GROUPS, METADATA, RECV, SEND
from ..file_reading import plain_bytes
from ..wording import plural
from .chakra_steps import ChakraNode, ChakraStep, Ranks, ordered, slices_of, steps_of

if TYPE_CHECKING:
    from sim.hardware import Kind

    from ..sessions import Session
    from .chakra_playback import PlayedChakra

LARGEST = 1 << 53  # of any number, and of all times of a rank
LONGEST = 200  # letters of a name
MOST_GROUPS = 1 << 24  # bytes of a file of groups
LOAD, STORE = 2, 3
COLLECTIVES: tuple[Kind, ...] = (  # by `comm_type`: itself, or what moves as much: reduce, gather, scatter, broadcast
    "all-reduce", "reduce-scatter", "all-gather", "all-gather", "reduce-scatter", "all-gather", "all-to-all",
    "reduce-scatter", "reduce-scatter", "all-reduce",
)  # fmt: skip
BROADCAST, BARRIER = 5, 9


class ChakraTrace:
    """What `sw.workload.chakra` reads."""

    def __init__(self, name: str, ranks: Sequence[Sequence[ChakraNode]]) -> None:
        self.name, self.ranks = name, ranks

    def __len__(self) -> int:
        """How many nodes all ranks have."""
        return sum(map(len, self.ranks))

    def __repr__(self) -> str:
        return f"<Chakra trace {self.name!r}: {plural(len(self.ranks), 'rank')}, {plural(len(self), 'node')}>"

    def slices(self, most: int = LARGEST) -> list[Ranks]:
        """Ranks that are on one slice: those that collectives join, and those that do the same, up to so many."""
        return slices_of(self.ranks, most)

    def steps(self, most: int = LARGEST) -> list[ChakraStep]:
        """Raises ValueError if a node has no counterpart on another rank, or ranks wait for one another in a circle."""
        return steps_of(self.ranks, self.slices(most))

    def play(self, *, chip: str = "", session: Session | None = None) -> PlayedChakra:
        """Play it in the current session, as the client of its name, and wait until all is over.

        Ranks are devices of slices: those that collectives join have one together, and so have those that do the same,
        if an island has so many. A computing node takes its duration;
        without one, what its `num_ops` and `tensor_size` need on the chip (of a session that is not simulated, `chip=`
        says which). Work of the host (`is_cpu_op`) takes no time: Seaway's own hosts do theirs. Collectives take what
        they do on the devices; in a session that is not simulated, their duration. Work that comes right behind a
        collective and does not wait for it is done beside it.

            >>> step = sw.synthetic("step", devices=8, duration="1ms", allreduce="1MiB")
            >>> with sw.simulate("B", hosts=2) as s:
            ...     _ = step(np.float32(0)).block_until_ready()
            ...     folder = s.trace.chakra("traces/step")
            >>> with sw.simulate("B", hosts=2):
            ...     print(sw.workload.chakra(folder).play().ranks)
            8
        """
        from .chakra_playback import play

        return play(self, chip, session)


# --- files ------------------------------------------------------------------------------------------------------------


def load(path: str | Path, groups: str | Path | Mapping[str, Sequence[int]] | None = None) -> ChakraTrace:
    """Read Chakra execution traces: FOLDER with NAME.RANK.et of all ranks, or FOLDER/NAME if it has several.

    groups: the ranks of each `pg_name`, or the JSON file that ASTRA-sim reads; without it, FOLDER/comm_group.json if it
    is there. Files may be packed by gzip. What is wrong with them is a ValueError that names the file and the node.
    """
    where = Path(path)
    folder, name = (where, "") if where.is_dir() else (where.parent, where.name)
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for file in sorted(folder.glob("*.et")):
        stem, _, rank = file.stem.rpartition(".")
        if rank.isascii() and rank.isdigit() and len(rank) < 8 and name in ("", stem):
            found[stem][int(rank)] = file
    if len(found) != 1:
        there = f"those of {', '.join(sorted(found))}: say which, as {folder / min(found)}" if found else "none"
        raise ValueError(f"sw.workload.chakra({str(path)!r}): it reads files NAME.RANK.et, and finds {there}")
    ((name, files),) = found.items()
    if missing := [rank for rank in range(max(files)) if rank not in files]:
        raise ValueError(f"{folder}: {name}.{missing[0]}.et is missing; there is {files[max(files)].name}")
    known = _groups(folder / GROUPS if groups is None else groups, groups is None, len(files))
    return ChakraTrace(name, [RankFile(files[rank], rank, known).nodes() for rank in range(len(files))])


def _groups(source: Any, may_lack: bool, ranks: int) -> dict[str, Ranks]:
    given: Any = source
    if may_lack and not Path(source).exists():
        given = {}
    elif not isinstance(source, Mapping):
        try:
            given = json.loads(plain_bytes(Path(source), MOST_GROUPS))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{source} cannot be read: {error}") from None
    if not isinstance(given, Mapping):
        raise ValueError(f"{source}: it says the ranks of each group, as {{'1': [0, 1]}}")
    for name, some in given.items():
        listed = (
            isinstance(some, list | tuple) and some and all(type(each) is int and 0 <= each < ranks for each in some)
        )
        if not listed or len(set(some)) != len(some):
            raise ValueError(f"{source}: group {name!r} is {some!r:.60}; give ranks of 0 to {ranks - 1}, each once")
    known: dict[Ranks, Ranks] = {}
    named = {"": range(ranks), "0": range(ranks), **{str(name): sorted(some) for name, some in given.items()}}
    return {name: known.setdefault(tuple(some), tuple(some)) for name, some in named.items()}


class RankFile:
    def __init__(self, path: Path, rank: int, groups: Mapping[str, Ranks]) -> None:
        self._path, self._rank, self._groups = path, rank, groups

    def nodes(self) -> list[ChakraNode]:
        """In an order in which each comes after those that it waits for; else as in the file."""
        _, *read = chakra_files.messages(self._path)
        at: dict[int, int] = {}
        for place, node in enumerate(read):
            if at.setdefault(node.id, place) != place:
                self._wrong(node, "has a number that another one has, too")
        after = []
        for node in read:
            waits = sorted({*node.data_deps, *node.ctrl_deps})
            if unknown := [each for each in waits if each not in at]:
                self._wrong(node, f"waits for node {unknown[0]}, which is not there")
            after.append([at[each] for each in waits])
        order = ordered(after, range(len(read)))
        if len(order) < len(read):
            left = set(range(len(read))).difference(order)
            self._wrong(read[min(left)], "waits for itself, by way of others")
        place_of = {old: new for new, old in enumerate(order)}
        found = [self._node(read[old], tuple(sorted(place_of[each] for each in after[old]))) for old in order]
        if sum(max(0, node.takes) for node in found) > LARGEST:
            raise ValueError(f"{self._path}: its nodes take more than {LARGEST:,} nanoseconds")
        return found

    def _wrong(self, node: Any, what: str) -> None:
        raise ValueError(f"{self._label(node)} {what}")

    def _label(self, node: Any) -> str:
        return f"{self._path}: node {node.id} ({node.name:.60})"

    def _node(self, node: Any, after: tuple[int, ...]) -> ChakraNode:
        said = {each.name: getattr(each, kind) for each in node.attr if (kind := each.WhichOneof("value"))}

        def number(name: str, usual: int = 0, most: int = LARGEST) -> int:
            if name not in said:
                return usual
            value = said[name]
            if not isinstance(value, int | float) or not isfinite(value) or not 0 <= value < most:
                self._wrong(node, f"has {name}={value!r:.40}; it is a number, not negative, less than {most:,}")
            return int(value)

        micros = node.duration_micros * 1000
        if micros >= LARGEST:
            self._wrong(node, f"takes {node.duration_micros:,} microseconds; less than {LARGEST // 1000:,} is possible")
        takes = number("duration_ns", micros or -1)
        made = ChakraNode(self._label(node), node.id, node.name[:LONGEST], node.type, after, takes)
        if node.type in (COMPUTE, LOAD, STORE):
            if said.get("is_cpu_op") and node.type == COMPUTE:
                return made._replace(kind=METADATA)
            return made._replace(kind=COMPUTE, work=(number("num_ops"), number("tensor_size")))
        if node.type in (SEND, RECV):
            mine, other = ("comm_src", "comm_dst") if node.type == SEND else ("comm_dst", "comm_src")
            ranks = len(self._groups[""])
            if (
                number(mine, self._rank) != self._rank
                or not 0 <= number(other, -1) < ranks
                or number(other) == self._rank
            ):
                self._wrong(
                    node, f"goes from {said.get('comm_src')} to {said.get('comm_dst')}, in the file of {self._rank}"
                )
            return made._replace(nbytes=number("comm_size"), peer=number(other), tag=number("comm_tag"))
        if node.type == COLLECTIVE:
            return self._collective(node, made, said, number)
        if node.type != METADATA:
            self._wrong(node, f"is of type {node.type}, which no node of version {chakra_files.VERSION} is")
        return made

    def _collective(self, node: Any, made: ChakraNode, said: dict[str, Any], number: Callable[..., int]) -> ChakraNode:
        which, name = number("comm_type", most=len(COLLECTIVES)), str(said.get("pg_name", ""))
        involved = said.get("involved_dim")
        if not all(getattr(involved, "values", ())):
            self._wrong(node, "is along some dimensions of a topology (involved_dim); say its group by pg_name")
        group = self._groups.get(name, ())
        if group[(at := bisect_left(group, self._rank)) : at + 1] != (self._rank,):
            self._wrong(
                node, f"is of group {name!r}, of which {GROUPS} (or groups=) does not say that it has this rank"
            )
        nbytes = 4 if which == BARRIER else number("comm_size") // (len(group) if which == BROADCAST else 1)
        if len(group) == 1:
            return made._replace(kind=METADATA)
        return made._replace(collective=COLLECTIVES[which], nbytes=nbytes, group=group)
