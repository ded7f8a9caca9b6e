"""Turns the arguments of a call into what core takes: names of buffers, or bytes that travel in the call.

Up to 4 KiB of host contents travel in the call itself. Beyond that, the largest arguments are put on devices first: for
this call only, or once for all calls if they are constants that the program captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from core.client import Blocked, Client, to_put
from core.model import Node, Program, Range, Sharding, SliceSpec, ranges

from ..errors import NotNow
from ..graph import Graph
from ..specs import Aval, ElasticSlice, Slice, avals
from ..units import Time, duration
from .array_groups import DescribedArray
from .arrays import Array, CallResults, grouped

if TYPE_CHECKING:
    from .caller import Caller

RETRIES = 100  # at most: a run that fails more often has a fault that retrying does not mend


class PlacedContents(NamedTuple):
    """Contents that a client has, and where they are to be. `label`: what messages call them."""

    leaf: Any
    aval: Aval
    home: Slice
    sharding: Sharding
    label: str = ""


class SliceNames:
    """The names that a client gives to slices: one without is named when it is first used, `slice0`, ..."""

    def __init__(self) -> None:
        self._names: dict[Slice | ElasticSlice, str] = {}
        self._taken: set[str] = set()

    def of(self, home: Slice | ElasticSlice) -> str:
        """The slice's name."""
        found = self._names.get(home)
        if found is None:
            found = home.name
            if not found:
                number = len(self._names)
                while f"slice{number}" in self._taken:
                    number += 1
                found = f"slice{number}"
            self._names[home] = found
            self._taken.add(found)
        return found

    def used(self, home: Slice | ElasticSlice) -> str:
        """Its name if it, or another one of that name, was used before; else nothing."""
        name = self._names.get(home, home.name)
        return name if name in self._taken else ""

    def forget(self, home: Slice) -> None:
        """It is not used any more, nor another one of its name."""
        self._taken.discard(self._names.pop(home, ""))


class ElasticState:
    """The slice that an elastic one is."""

    def __init__(self, home: ElasticSlice) -> None:
        self.home = home
        self.request = -1
        self.part: Slice | None = None  # the one that the user was told
        self.waits = False  # for the user to be told of another one
        self.told = False  # the user was told that one waits, and leaves its loop's body, even if it is taken back
        self.over = False  # it was released, or refused
        self.wrong = ""  # why

    def check(self, home: ElasticSlice, name: str) -> None:
        if (home.sizes, home.spec(name)) != (self.home.sizes, self.home.spec(name)):
            raise NotNow(
                f"session.resizes: this session's slice {name!r} is {self.home!r}; now it asks for {home!r}: release "
                "it first, or give one of them another name"
            )

    def refuse(self, why: str) -> None:
        self.over, self.wrong = True, why

    def may_become(self, spec: SliceSpec) -> None:
        self.waits = self.part is None or self.part.name != spec.name

    def move_on(self, name: str, client: Client, now: int) -> SliceSpec | Blocked | None:
        spec = client.move_on(name, now)
        if isinstance(spec, SliceSpec):
            if self.part is None or self.part.name != spec.name:
                self.part = Slice(spec, ("x",))
            self.waits = self.told = False  # if more has come before this, it is in that
        return spec


class BoundProgram:
    """A program as one client uses it: lowered, and registered with its first call."""

    __slots__ = ("avals", "constants", "graph", "ir", "keep", "number", "results", "steps")

    def __init__(self, graph: Graph, ir: Program) -> None:
        self.graph, self.ir = graph, ir
        self.number = 0  # 0 until it is registered
        self.keep = (False,) if graph.hidden else ()
        names = iter(graph.out_names)
        self.results = [DescribedArray(*graph.output(ref), _label(next(names, ""), graph.name)) for ref in graph.made]
        nodes = [node for node in ir.nodes if isinstance(node, Node)]
        self.steps = sum([ir.computations[node.computation].steps for node in nodes])
        self.avals = [about.aval for about in self.results]
        self.constants: dict[int, Array] = {}  # large captured constants that were put, by argument


def _label(path: str, program: str) -> str:
    return f"result {path!r} of {program!r}" if path else f"the result of {program!r}"


def arguments_of(
    caller: Caller, bound: BoundProgram, leaves: Sequence[Any], again: bool = False
) -> tuple[tuple[int | bytes | Range, ...], Sequence[Any], list[Array]]:
    """Returns the arguments as core takes them, their contents (or arrays), and the arrays put for this call only.

    `again`: arrays put here are kept, so that they can be put once more if they are lost.
    """
    graph = bound.graph
    if type(leaves) is CallResults and graph.all_used:
        group = leaves.group
        if group.caller is caller and not group.gone:
            return (Range(group.names[0], len(leaves)),), leaves, []
    # a batch often comes after the parameters: it is not worth trying these first then
    mixed = bool(leaves) and type(leaves[-1]) is not Array
    passed = [leaf for leaf in leaves if type(leaf) is Array] if mixed else leaves
    try:
        arrays, groups = grouped(passed, "pass")
    except AttributeError:
        arrays, groups = grouped([leaf for leaf in leaves if type(leaf) is Array], "pass")
    for group in groups:
        if group.caller is not caller:
            _check_own(caller, arrays)
    args: list[Any]
    if len(arrays) == len(leaves):
        args = [leaf._name for leaf in leaves]
        names = groups[0].names if groups else ()
        if graph.all_used and len(args) > 1 and tuple(args) == names:  # which are the very same objects
            return (Range(names[0], len(names)),), leaves, []
        return ranges.folded(args if graph.all_used else [args[at] for at in graph.used]), leaves, []
    args = [leaf._name if type(leaf) is Array else None for leaf in leaves]
    host = [at for at in graph.used if args[at] is None]
    without = [n for n, at in enumerate(host) if not has_contents(leaves[at])]
    large = {host[n] for n in to_put([graph.args[at].nbytes for at in host], without)}
    contents, temporary = list(leaves), list[Array]()
    for at in host:
        if at in large:
            contents[at] = placed = _placed(caller, bound, at, leaves[at], again)
            temporary.append(placed)
            args[at] = placed._name
        else:
            args[at] = avals.host_bytes(leaves[at], graph.args[at])
    return ranges.folded(args if graph.all_used else [args[at] for at in graph.used]), contents, temporary


def _placed(caller: Caller, bound: BoundProgram, at: int, leaf: Any, again: bool) -> Array:
    placed = bound.constants.get(at)
    if placed is None or placed._outcome.blame is not None:  # it was lost with its hosts
        graph = bound.graph
        home = graph.homes[at]
        assert home is not None, "`graph.used` has an argument that no node uses"
        (placed,) = caller.put([PlacedContents(leaf, graph.args[at], *home, f"argument {at} of {graph.name!r}")], again)
        if at >= len(graph.args) - len(graph.captured):
            bound.constants[at] = placed
    return placed


def _check_own(caller: Caller, arrays: Sequence[Array]) -> None:
    for array in arrays:
        owner = array._group.caller
        if owner.session is not caller.session:
            raise NotNow(
                f"{array._label} lies in another session{' that is closed' if owner.closed else ''}, and arrays do "
                f"not leave theirs: read it there (np.asarray) and pass what was read"
            )
        if owner is not caller:
            raise NotNow(
                f"{array._label} belongs to client {owner.name!r}, and {caller.name!r} calls: clients share "
                f"devices, not arrays; call in the owner's name, or read it and sw.put it here"
            )


def checked_live(function: str, live: object) -> None:
    """A page is asked for by True, or by its address."""
    if not isinstance(live, bool | str):
        raise TypeError(f"{function}(live={live!r}): True, or the address of the page, such as '127.0.0.1:29100'")


def checked_session(who: str, dispatch: object, retries: object) -> None:
    """What all kinds of sessions are given."""
    if dispatch not in ("parallel", "sequential"):
        raise ValueError(f"{who}(dispatch={dispatch!r}): 'parallel' (host work ahead of the data) or 'sequential'")
    if retries is None:
        raise ValueError(f"{who}(retries=None): a number; 0 for none")
    checked_retries(who, retries)


def checked_retries(who: str, retries: object) -> None:
    if retries is None or (isinstance(retries, int) and not isinstance(retries, bool) and 0 <= retries <= RETRIES):
        return
    raise ValueError(f"{who}(retries={retries!r}): how often a run may be submitted again, from 0 to {RETRIES}")


def seconds_of(who: str, name: str, given: Time) -> float:
    found = duration(given, f"{who}: {name}") / 1e9
    if not found:
        raise ValueError(f"{who}({name}={given!r}): more than no time, such as '10s'")
    return found


def has_contents(leaf: Any) -> bool:
    """A ShapeDtypeStruct has none."""
    return hasattr(leaf, "__array__") or isinstance(leaf, bool | int | float | complex)
