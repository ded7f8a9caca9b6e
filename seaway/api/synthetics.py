"""`sw.synthetic`: a computation that is only its cost. It takes any arguments, and computes nothing."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from sim.hardware import Collective, Kernel, chips

from ..graph import Signature, collectives, leaf_aval, nbytes
from ..specs import Aval, Slice, as_slice, avals, trees
from ..units import Time
from ..units import duration as nanoseconds
from .computation import CallShape, Computation
from .jitted import is_entry, resolve
from .programs import as_numbers

TOKEN = avals.aval((), "float32")  # what it makes of no arguments: something to wait for


class SyntheticComputation(Computation[Any]):
    """See `synthetic`."""

    def __init__(
        self, name: str, home: Slice, kernel: Kernel, *, out: Any, in_shardings: Any, out_shardings: Any,
        irregular: bool, collective: bool, donate: Sequence[int], steps: int,
    ) -> None:  # fmt: skip
        super().__init__(name, home, donate=donate)
        self.kernel, self.steps = kernel, steps
        self._made, self._in, self._out = out, in_shardings, out_shardings
        self._irregular, self._collective = irregular, collective

    def __repr__(self) -> str:
        return f"<sw.synthetic {self.name}, {self.kernel.duration} ns, on {self.slice!r}>"

    def trace(self, shape: CallShape) -> Signature:
        args, kwargs = shape.fill(shape.leaves)
        where = f"sw.synthetic {self.name!r}"
        given = tuple(args) if not kwargs else (*args, kwargs)
        prefix = tuple(self._in) if isinstance(self._in, tuple | list) and not is_entry(self._in) else self._in
        entries = trees.spread(prefix, given, f"{where}: in_shardings", is_entry)
        expects = tuple(
            resolve(entry, self.slice, aval, f"{where}: in_shardings, leaf {number}")
            for number, (entry, aval) in enumerate(zip(entries, shape.leaves, strict=True))
        )
        made, tree = trees.flatten(self._output(given))
        outputs = tuple(leaf_aval(leaf, f"{where}: out") for leaf in made) or (TOKEN,)
        if not made:
            _, tree = trees.flatten(0)
        same = self._out is None and outputs == shape.leaves  # as they came in, so do they go out
        out_entries = trees.spread(self._out, tree.unflatten(outputs), f"{where}: out_shardings", is_entry)
        splits = expects if same else tuple(
            resolve(entry, self.slice, aval, f"{where}: out_shardings")
            for entry, aval in zip(out_entries, outputs, strict=True)
        )  # fmt: skip
        return Signature(
            name=self.name, home=self.slice, inputs=shape.leaves, expects=expects, outputs=outputs,
            out_shardings=splits, out_tree=tree, donate=self.donated(shape), irregular=self._irregular,
            collective=self._collective, kernel=self.kernel, key=self._key(),
            evaluate=partial(_pass, shape.leaves, outputs), steps=self.steps,
        )  # fmt: skip

    def _output(self, given: tuple[Any, ...]) -> Any:
        if self._made is None:
            return given[0] if len(given) == 1 else given
        return self._made(*given) if callable(self._made) else self._made

    def _key(self) -> str:
        digest = hashlib.blake2b(repr((self.kernel, self._collective)).encode(), digest_size=12)
        return f"{self.name}:{digest.hexdigest()}"


def _pass(inputs: Sequence[Aval], outputs: Sequence[Aval], contents: list[Any]) -> list[Any]:
    """What came in, where it looks like what goes out; else zeros."""
    if tuple(inputs) == tuple(outputs):
        return list(contents)
    return [np.zeros(aval.shape, aval.numpy_dtype) for aval in outputs]


def _by_kind(who: str, given: Mapping[str, Time]) -> tuple[tuple[str, int], ...]:
    """By kind of island. A chip has several names: an island of "v4" is one of "tpu-v4"."""
    found: dict[str, int] = {}
    for kind, time in given.items():
        one = chips.generation(kind) if chips.known(kind) else None
        names = (kind, one.chip.name, *one.aliases) if one else (kind,)
        found |= dict.fromkeys(names, nanoseconds(time, f"{who}: duration on {kind}"))
    return tuple(found.items())


def synthetic(
    name: str,
    *,
    devices: Slice | int | None = None,
    duration: Time | Mapping[str, Time] = 0,
    allreduce: int | str | list[int | str] | None = None,
    allgather: int | str | list[int | str] | None = None,
    reducescatter: int | str | list[int | str] | None = None,
    alltoall: int | str | list[int | str] | None = None,
    permute: int | str | list[int | str] | None = None,
    kernel: Kernel | None = None,
    temp: int | str = 0,
    out: Any | Callable[..., Any] = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] = (),
    irregular: bool = False,
    collective: bool | None = None,
    steps: int = 1,
) -> SyntheticComputation:
    """Make a computation that takes `duration` on each device, and what its collectives take where it runs.

    duration: a time, such as "330us"; or one for each kind of device, such as {"v4": "1ms", "v5e": "3ms"}: which one it
    takes is known when its slice has devices, and it runs on no others. allreduce and the like: bytes on each device
    ("4B", "64MiB"); a list for several.
    temp: scratch memory on each device. kernel: the whole cost at once (`sim.hardware.Kernel`).
    out: what it returns, as abstract values or a function of the arguments. Without it, what it returns is like its
    arguments. collective: whether its devices wait for one another; if there are several, they do.
    steps: how often all of that is done, one step right behind the other: as good as so many calls in a row, and one
    event. `run.stop()` ends it with the step under way, and so does a slice that is suspended or moved; `run.steps`
    then says how many were done, and a call with the rest goes on.

        >>> step = sw.synthetic("step", devices=8, duration="330us", allreduce="4B")
        >>> with sw.simulate("B", hosts=2):
        ...     print(step(np.zeros(4, np.float32)).block_until_ready().shape)
        (4,)
    """
    who = f"sw.synthetic({name!r})"
    if not isinstance(name, str):
        raise TypeError(f"sw.synthetic({name!r}, ...): its first argument is its name")
    home = as_slice(devices, who)
    if kernel is None:
        moved: tuple[Collective, ...] = collectives(
            who,
            {"allreduce": allreduce, "allgather": allgather, "reducescatter": reducescatter, "alltoall": alltoall,
             "permute": permute},
        )  # fmt: skip
        durations = _by_kind(who, duration) if isinstance(duration, Mapping) else ()
        longest = max((time for _, time in durations), default=0)
        own = longest if isinstance(duration, Mapping) else nanoseconds(duration, f"{who}: duration")
        kernel = Kernel(name, own, moved, nbytes(who, "temp", temp), durations=durations)
    if not kernel.duration and not kernel.collectives:
        raise ValueError(f"{who} takes no time; give it a duration, like '330us', or a collective, allreduce='4B'")
    waits = home.devices > 1 if collective is None else collective
    if type(steps) is not int or steps < 1:
        raise ValueError(f"{who}: steps={steps!r}; give a whole number of at least 1")
    return SyntheticComputation(
        name, home, kernel, out=out, in_shardings=in_shardings, out_shardings=out_shardings, irregular=irregular,
        collective=waits, donate=as_numbers(donate_argnums), steps=steps,
    )  # fmt: skip
