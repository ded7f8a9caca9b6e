"""`sw.pipeline`: a model cut into stages on slices of their own, trained micro-batch by micro-batch, as one program.

    stages = [sw.stage(embed, slice0), sw.stage(body, slice1), sw.stage(loss, slice2)]
    step = sw.pipeline(stages, microbatches=8, schedule="1f1b")
    value, gradients = step(parameters, inputs, targets)         # one pytree of parameters, and of gradients, a stage

Each stage but the last is `fn(parameters, x) -> y`; the last is `fn(parameters, x, *targets) -> loss`, a scalar. What
comes back are means over the micro-batches. A stage's forward pass is computed again in its backward pass, so that only
what crosses between stages is kept. Neighbours: `jitted` makes the computations, `programs` traces them, `schedules`
says in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..specs import Slice, as_slice, whole
from ..wording import plural
from . import schedules
from .jitted import JitComputation, jit
from .programs import Program, program

Tree = Any


class Stage(NamedTuple):
    """See `stage`."""

    fn: Callable[..., Any]
    slice: Slice
    parameters: Any
    data: Any
    name: str


def stage(
    fn: Callable[..., Any], devices: Slice | int, *, parameters: Any = None, data: Any = None, name: str | None = None
) -> Stage:
    """Make a stage of a pipeline: `fn` on a slice.

    parameters: PartitionSpecs of its parameters, as a tree like theirs, or one for all. data: that of what flows in and
    out, whose first dimension is the micro-batch. Without them, everything is replicated.

        >>> first = sw.stage(lambda w, x: x * w, sw.slice(devices=2), name="first")
        >>> first.name
        'first'
    """
    called = name or str(getattr(fn, "__name__", type(fn).__name__))
    return Stage(fn, as_slice(devices, f"sw.stage({called})"), parameters, data, called)


class Pipeline:
    """Call it with a list of parameters, inputs, and targets. See `pipeline`."""

    def __init__(self, stages: Sequence[Stage], schedule: str, microbatches: int, name: str) -> None:
        self.stages, self.schedule, self.microbatches, self.name = tuple(stages), schedule, microbatches, name
        self.order = list(schedules.merged(schedules.SCHEDULES[schedule](len(stages), microbatches)))
        self._cut_inputs = self._cutter(self.stages[0], "inputs")
        self._cut_targets = self._cutter(self.stages[-1], "targets")
        self._forward = [self._of(each, "forward", each.fn, "pd", "d") for each in self.stages[:-1]]
        self._backward = [self._backwards(number) for number in range(len(self.stages) - 1)]
        self._last: dict[int, JitComputation[Any]] = {}  # the last stage's, by how many targets it takes
        self._add = [self._of(each, "add", _add, "pp", "p", donate_argnums=0) for each in self.stages]
        self._mean = [self._of(each, "mean", self._divided, "p", "p", donate_argnums=0) for each in self.stages]
        mean = lambda losses: sum(losses) / microbatches  # noqa: E731
        self._mean_loss = jit(mean, devices=self.stages[-1].slice, name=f"{name} loss")
        self.program: Program[..., tuple[Any, list[Tree]]] = program(self._step, name=name)

    def __call__(self, parameters: Sequence[Tree], inputs: Tree, *targets: Tree) -> tuple[Any, list[Tree]]:
        """(the mean loss, a list of gradients): each on its stage's slice."""
        if len(parameters) != len(self.stages):
            raise ValueError(
                f"{self.name}(): {plural(len(self.stages), 'stage')} take as many trees of parameters, in a list; "
                f"{len(parameters)} were given"
            )
        return self.program(list(parameters), inputs, targets)

    def __repr__(self) -> str:
        names = " -> ".join(each.name for each in self.stages)
        return f"<sw.pipeline {self.name}: {names}; {self.schedule}, micro-batches: {self.microbatches}>"

    # --- the program ------------------------------------------------------------------------------------------

    def _step(self, parameters: list[Tree], inputs: Tree, targets: tuple[Tree, ...]) -> tuple[Any, list[Tree]]:
        """Traced once: calls in the order of the schedule are the order of each stage's devices."""
        last = len(self.stages) - 1
        reads: dict[tuple[int, int], Tree] = {(0, m): x for m, x in enumerate(self._cut_inputs(inputs))}
        wants = self._cut_targets(targets) if targets else [()] * self.microbatches
        comes_back: dict[tuple[int, int], Tree] = {}  # to a stage: the gradient of what it made
        sums: list[Tree | None] = [None] * len(self.stages)
        losses = []
        of_last = self._last_of(len(targets))
        for kind, number, micro in self.order:
            x = reads[number, micro]
            if kind == "forward":
                if number < last:  # the last stage's forward pass is part of its backward pass
                    reads[number + 1, micro] = self._forward[number](parameters[number], x)
                continue
            if number == last:
                loss, gradient, back = of_last(parameters[number], x, *wants[micro])
                losses.append(loss)
            else:
                gradient, back = self._backward[number](parameters[number], x, comes_back.pop((number, micro)))
            if number:
                comes_back[number - 1, micro] = back
            del reads[number, micro]
            known = sums[number]
            sums[number] = gradient if known is None else self._add[number](known, gradient)
        means = [mean(total) for mean, total in zip(self._mean, sums, strict=True)]
        return self._mean_loss(losses), means

    # --- its computations ---------------------------------------------------------------------------------------

    def _of(
        self, of: Stage, what: str, fn: Callable[..., Any], takes: str, gives: str, **options: Any
    ) -> JitComputation[Any]:
        """`takes`, `gives`: p a tree of parameters, d data, - replicated; an argument, a result each."""
        known = {"p": of.parameters, "d": of.data, "-": None}
        results = tuple(known[each] for each in gives)
        return jit(
            fn, devices=of.slice, name=f"{self.name} {of.name} {what}",
            in_shardings=tuple(known[each] for each in takes) or None,
            out_shardings=results if len(results) > 1 else results[0], **options,
        )  # fmt: skip

    def _backwards(self, number: int) -> JitComputation[Any]:
        of, back = self.stages[number], "d" if number else "-"
        return self._of(of, "backward", _backward(of.fn, differentiate=number > 0), "pdd", f"p{back}")

    def _last_of(self, targets: int) -> JitComputation[Any]:
        """Forward and backward at once."""
        found = self._last.get(targets)
        if found is None:
            of, several = self.stages[-1], len(self.stages) > 1
            backward, takes = _last_backward(of.fn, differentiate=several), "pd" + "d" * targets
            found = self._last[targets] = self._of(of, "backward", backward, takes, "-pd" if several else "-p-")
        return found

    def _cutter(self, of: Stage, what: str) -> JitComputation[Any]:
        count = self.microbatches

        def cut(tree: Tree) -> list[Tree]:
            import jax

            for leaf in jax.tree.leaves(tree):
                if not leaf.shape or leaf.shape[0] % count:
                    raise ValueError(
                        f"{self.name}(): {what} of shape {tuple(leaf.shape)} do not divide into {count} micro-batches "
                        "along their first dimension"
                    )
            return [
                jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:])[at], tree)  # noqa: B023 - called here
                for at in range(count)
            ]

        return jit(cut, devices=of.slice, name=f"{self.name} cut {what}", out_shardings=of.data)

    def _divided(self, total: Tree) -> Tree:
        import jax

        return jax.tree.map(lambda leaf: leaf / self.microbatches, total)


def _add(total: Tree, gradient: Tree) -> Tree:
    import jax

    return jax.tree.map(lambda one, other: one + other, total, gradient)


def _backward(fn: Callable[..., Any], differentiate: bool) -> Callable[..., Any]:
    """The gradient of the parameters, and of what came in unless nobody is in front of it."""

    def backward(parameters: Tree, x: Tree, wanted: Tree) -> tuple[Tree, Tree]:
        import jax

        if not differentiate:
            _, back = jax.vjp(lambda each: fn(each, x), parameters)
            return back(wanted)[0], ()
        found: tuple[Tree, Tree] = jax.vjp(fn, parameters, x)[1](wanted)
        return found

    return backward


def _last_backward(fn: Callable[..., Any], differentiate: bool) -> Callable[..., Any]:
    def backward(parameters: Tree, x: Tree, *targets: Tree) -> tuple[Any, Tree, Tree]:
        import jax

        if not differentiate:
            loss, gradient = jax.value_and_grad(fn)(parameters, x, *targets)
            return loss, gradient, ()
        loss, (gradient, gradient_of_x) = jax.value_and_grad(fn, argnums=(0, 1))(parameters, x, *targets)
        return loss, gradient, gradient_of_x

    return backward


def pipeline(
    stages: Sequence[Stage | tuple[Callable[..., Any], Slice]], *, microbatches: int, schedule: str = "1f1b",
    name: str = "pipeline",
) -> Pipeline:  # fmt: skip
    """Make one training step of a model in stages: `loss, gradients = step(parameters, inputs, *targets)`.

    stages: a list of `sw.stage(fn, slice)`, or of pairs of those two. microbatches: parts into which inputs and targets
    are cut along their first dimension.
    schedule: "1f1b" keeps few micro-batches at a time; "gpipe" runs all forward first.

        >>> first = sw.stage(lambda w, x: x * w, sw.slice(devices=2))
        >>> last = sw.stage(lambda w, x, y: ((x * w - y) ** 2).mean(), sw.slice(devices=2))
        >>> step = sw.pipeline([first, last], microbatches=2)
        >>> with sw.simulate("B", hosts=2, values="compute"):
        ...     loss, gradients = step((np.float32(2), np.float32(3)), np.ones(4, np.float32), np.ones(4, np.float32))
        ...     print(float(loss), len(gradients))
        25.0 2
    """
    made = [each if isinstance(each, Stage) else stage(*each) for each in stages]
    if not made:
        raise ValueError(f"sw.pipeline({name!r}): no stages")
    if schedule not in schedules.SCHEDULES:
        raise ValueError(f"sw.pipeline(schedule={schedule!r}): {' or '.join(map(repr, schedules.SCHEDULES))}")
    if not whole(microbatches):
        raise ValueError(f"sw.pipeline(microbatches={microbatches!r}): a whole number, at least 1")
    return Pipeline(made, schedule, microbatches, name)
