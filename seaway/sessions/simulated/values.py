"""Contents of arrays in a simulation: none, computed on this machine's CPU, or stand-ins that the user gives.

The simulation itself moves no contents, so `Values` holds them beside it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core.model import Arg
from core.protocol import Blame

from ...errors import NoContents, nearest, run_error
from ...graph import CallNode, Graph
from ...specs import avals
from ..arguments import has_contents
from ..array_groups import ClientBuffer
from ..arrays import Array


class Values:
    """The contents of one session's arrays. `values="shapes"`: these have shapes, types and times, and no contents."""

    def put(self, buffer: ClientBuffer, content: Any) -> None: ...

    def ran(self, graph: Graph, args: Sequence[Any], results: Sequence[Array]) -> None: ...

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        return NoContents(f"{buffer.aval!r}, {buffer.label},")

    def contents(self, buffer: ClientBuffer) -> Any:
        return np.array(buffer.content, buffer.about.aval.numpy_dtype)

    def sizes(self, client: str, run: int, node: int) -> tuple[int, ...] | None:
        """Rows that an irregular node of this run made, if known."""
        return None


class RaisedValue:
    """Stands for a result of a computation that raised."""

    def __init__(self, blame: Blame) -> None:
        self.blame = blame


class Compute(Values):
    """`values="compute"`: each computation runs on this machine's CPU when it is called. Its time is still modelled."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, int, int], tuple[int, ...]] = {}  # (client, run, node) -> rows

    def put(self, buffer: ClientBuffer, content: Any) -> None:
        if has_contents(content):
            buffer.content = _own(content, buffer.aval)
        else:
            cause = f"{buffer.label} was given as a shape without contents, and values='compute' needs them"
            buffer.content = RaisedValue(Blame("user", cause))

    def ran(self, graph: Graph, args: Sequence[Any], results: Sequence[Array]) -> None:
        known = [
            arg._buffer.content if type(arg) is Array else _own(arg, aval)
            for arg, aval in zip(args, graph.args, strict=True)
        ]
        made: list[list[Any]] = []
        for number, node in enumerate(graph.nodes):
            refs = node.inputs if isinstance(node, CallNode) else (node.input,)
            inputs = [known[ref.index] if isinstance(ref, Arg) else made[ref.node][ref.output] for ref in refs]
            made.append(self._evaluate(graph, node, inputs))
            run = results[0].run if results else None
            if isinstance(node, CallNode) and node.signature.irregular and run is not None:
                rows = tuple(len(each) if hasattr(each, "__len__") else 0 for each in made[-1])
                self._sizes[run._caller.name, run.number, number] = rows
        for ref, array in zip(graph.made, results, strict=False):
            array._group.buffer(array._name).content = made[ref.node][ref.output]

    def _evaluate(self, graph: Graph, node: Any, inputs: list[Any]) -> list[Any]:
        is_call = isinstance(node, CallNode)
        outputs = len(node.signature.outputs) if is_call else 1
        for content in inputs:
            if isinstance(content, RaisedValue):
                return [content] * outputs
        name = node.signature.name if is_call else node.name
        evaluate = node.signature.evaluate if is_call else node.evaluate
        try:
            return evaluate(inputs) if is_call else [evaluate(*inputs)]
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            return [RaisedValue(Blame("user", cause, graph.name, name))] * outputs

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        return run_error(buffer.content.blame) if isinstance(buffer.content, RaisedValue) else None

    def sizes(self, client: str, run: int, node: int) -> tuple[int, ...] | None:
        return self._sizes.pop((client, run, node), None)


class StandIns(Values):
    """`values={...}`: contents by the name of a program, computation or result, or by both joined with a dot:
    {"loss": 0.5, "train.loss": lambda n: 1 / (n + 1), "step.0": [3.0, 2.0, 1.0]}. A function is called with the
    number of the run, from 0; a list has one entry a run."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = {str(name): value for name, value in given.items()}
        self._runs: dict[tuple[str, str], int] = {}
        self._names: dict[str, None] = {}

    def put(self, buffer: ClientBuffer, content: Any) -> None:
        buffer.content = _own(content, buffer.aval) if has_contents(content) else None

    def ran(self, graph: Graph, args: Sequence[Any], results: Sequence[Array]) -> None:
        if not results:
            return
        count = (results[0]._group.caller.name, graph.name)
        run = self._runs[count] = self._runs.get(count, -1) + 1
        paths = [path for ref, path in zip(graph.results, graph.out_names, strict=True) if ref in graph.made]
        for number, (ref, path, array) in enumerate(zip(graph.made, paths, results, strict=True)):
            node = graph.nodes[ref.node]
            name = node.signature.name if isinstance(node, CallNode) else node.name
            inner = node.signature.out_names[ref.output] if isinstance(node, CallNode) else ""
            names = [f"{graph.name}.{path}", f"{graph.name}.{number}", f"{name}.{inner}", f"{name}.{ref.output}", path,
                     graph.name, name]  # fmt: skip
            self._names.update(dict.fromkeys(each for each in names if each and not each.endswith(".")))
            key = next((each for each in names if each in self._given), None)
            if key is not None:
                buffer = array._buffer
                buffer.content = self._made_up(key, run, buffer)

    def _made_up(self, key: str, run: int, buffer: ClientBuffer) -> Any:
        value = self._given[key]
        if callable(value):
            value = value(run)
        elif isinstance(value, Iterator):
            value = next(value, None)
        elif isinstance(value, list):
            if run >= len(value):
                cause = f"values[{key!r}] has {len(value)} entries, and this is run {run}"
                return RaisedValue(Blame("user", cause))
            value = value[run]
        cause = f"values[{key!r}] has come to its end at run {run}"
        if value is not None:
            try:
                return np.broadcast_to(np.asarray(value, buffer.aval.numpy_dtype), buffer.aval.shape)
            except ValueError as error:
                cause = f"values[{key!r}] does not fit {buffer.aval!r}: {error}"
        return RaisedValue(Blame("user", cause))

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        if isinstance(buffer.content, RaisedValue):
            return run_error(buffer.content.blame)
        if buffer.content is not None:
            return None
        unknown = [name for name in self._given if name not in self._names]
        hint = f" `values` has nothing for {buffer.label}"
        if unknown:
            hint += f"; its {unknown[0]!r} is not the name of a program or result{nearest(unknown[0], self._names)}"
        return NoContents(f"{buffer.aval!r}, {buffer.label},", hint)


def _own(content: Any, aval: avals.Aval) -> Any:
    """A copy of canonical type, since the user may write to the original."""
    return content if aval.dtype == avals.KEY else np.array(content, aval.numpy_dtype)


def values_of(what: Any) -> Values:
    if isinstance(what, Values):
        return what
    if isinstance(what, Mapping):
        return StandIns(what)
    kinds: dict[str, Callable[[], Values]] = {"shapes": Values, "compute": Compute}
    if not isinstance(what, str) or what not in kinds:
        raise ValueError(f"values={what!r}: 'shapes', 'compute', or a dict of stand-ins{nearest(str(what), kinds)}")
    return kinds[what]()
