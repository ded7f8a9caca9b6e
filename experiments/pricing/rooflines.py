"""Prices of a decoder's training step where no compiler's are committed: its parts as real JAX programs over a mesh.

The layers of a part are a scan, lowered for the devices of one stage (axes data and model). Matrices are split over the
axis model, and so is the sequence between them if the plan says so; every collective is the partitioner's. The lookup
of embeddings costs nothing.
"""

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

import msgspec

from seaway.costs import Cost, roofline_costs
from seaway.costs.hlo import HloCollective

from .shapes import Decoder, Part

Tree = Any


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is trained. `recompute`: what a backward pass computes again: whole layers, the scores and their sums
    ("selective"), or nothing. `overlapped`: gradients are reduced layer by layer in the backward pass, not at the end.
    `sharded`: each data-parallel replica keeps a part of the optimizer's state."""

    model: Decoder
    topology: str
    length: int
    data: int
    microbatch: int  # sequences of one replica
    tensor: int = 1
    stages: int = 1
    chunks: int = 1
    microbatches: int = 1
    schedule: str = "1f1b"
    recompute: Literal["full", "selective", "none"] = "full"
    sequence: bool = False
    overlapped: bool = False
    sharded: bool = False
    gradients: str = "bfloat16"  # the type in which they are reduced

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.stages

    @property
    def tokens(self) -> int:
        return self.data * self.microbatch * self.microbatches * self.length


def combined(name: str, *parts: tuple[Cost, int]) -> Cost:
    """One cost that is each of these so many times; a negative number takes away what another contains. Memory is left
    out, since rooflines only know the CPU compiler's."""
    counts, hidden = Counter[HloCollective](), Counter[HloCollective]()
    for cost, times in parts:
        for one in cost.collectives:
            kind = msgspec.structs.replace(one, count=1, hidden=0)
            counts[kind] += one.count * times
            hidden[kind] += one.count * times * one.hidden
    return msgspec.structs.replace(
        Cost.stated(max(1, sum(cost.duration * times for cost, times in parts)), name),
        collectives=tuple(
            msgspec.structs.replace(one, count=count, hidden=max(0, hidden[one] // count))
            for one, count in counts.items() if count > 0
        ),
    )  # fmt: skip


class Priced:
    """The costs of a plan's parts. `efficiency`: of the peak; None: as rooflines assume."""

    def __init__(self, plan: Plan) -> None:
        jax: Any = import_module("jax")  # late, since that takes a second
        P = jax.sharding.PartitionSpec  # noqa: N806
        self.plan, self._jax, self._np, self._spec = plan, jax, jax.numpy, P
        # a replica's activations have one axis more in front where each replica keeps gradients of its own
        lead = ("data",) if plan.overlapped else ("data", None)
        rows = (plan.data * plan.microbatch,) if plan.overlapped else (plan.data, plan.microbatch)
        self.x = self._struct((*rows, plan.length, plan.model.d_model))
        self.tokens = self._struct((*rows, plan.length), "int32")
        self.along = ("model",) if plan.sequence else ()
        self.apart = P(*lead, *self.along)

    def _struct(self, shape: tuple[int, ...], dtype: str = "bfloat16") -> Any:
        return self._jax.ShapeDtypeStruct(shape, dtype)

    def _roofline(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], takes: Any, gives: Any) -> Cost:
        plan = self.plan
        return roofline_costs(
            fn, args, topology=plan.topology, mesh={"data": plan.data, "model": plan.tensor},
            in_shardings=takes, out_shardings=gives, name=name,
        )  # fmt: skip

    def _each(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function (weights, activations...) of one replica, for all."""
        if self.plan.overlapped:
            return fn
        return lambda w, *x: self._jax.vmap(lambda *x: fn(w, *x), spmd_axis_name="data")(*x)

    def layers(self, count: int) -> tuple[Cost, Cost]:
        """(the forward pass of so many layers, their backward pass with what that computes again)."""
        if not count:
            return combined("forward"), combined("backward")
        shapes, lies = self._weights(count)

        def through(w: Tree, x: Any) -> Any:
            return self._jax.lax.scan(lambda x, w: (self._layer(w, x), None), x, w)[0]

        def both(w: Tree, x: Any, back: Any) -> tuple[Any, ...]:
            out, backward = self._jax.vjp(through, w, x)
            return (out, *backward(back))  # with `out`, nothing of the forward pass may be left out

        forward = self._roofline("forward", self._each(through), (shapes, self.x), (lies, self.apart), self.apart)

        again = self._roofline(
            "backward", self._each(both), (shapes, self.x, self.x), (lies, self.apart, self.apart),
            (self.apart, self._kept(lies), self.apart),
        )  # fmt: skip
        kept = [(forward, -1)] * (self.plan.recompute != "full")
        return combined("forward", (forward, 1)), combined("backward", (again, 1), *kept)

    def head(self) -> Cost:
        """The softmax and the loss, forward and backward."""
        model, jnp, lies = self.plan.model, self._np, self._spec(None, "model")

        def loss(w: Any, x: Any, wanted: Any) -> Any:
            logits = (self._within(x) @ w).astype("float32")
            right = jnp.take_along_axis(logits, wanted[..., None], axis=-1)[..., 0]
            return jnp.sum(self._jax.nn.logsumexp(logits, axis=-1) - right)

        return self._roofline(
            "head", self._each(self._jax.grad(loss, argnums=(0, 1))),
            (self._struct((model.d_model, model.vocabulary)), self.x, self.tokens),
            (lies, self.apart, self._spec("data")), (self._kept(lies), self.apart),
        )  # fmt: skip

    def update(self, part: Part) -> Cost:
        """The sum of gradients over the replicas, and Adam's step."""
        plan, P = self.plan, self._spec  # noqa: N806
        each = -(-part.parameters // (plan.tensor * plan.data)) * plan.data
        one, whole = self._struct((plan.tensor, each), "float32"), P("model")
        own = P("model", "data") if plan.sharded else whole
        rows = () if plan.overlapped else (plan.data,)

        def update(master: Any, mean: Any, square: Any, gradients: Any) -> Any:
            total = gradients if plan.overlapped else self._jax.lax.with_sharding_constraint(gradients.sum(0), own)
            total = total.astype("float32")
            mean, square = 0.9 * mean + 0.1 * total, 0.95 * square + 0.05 * total * total
            master = master - 1e-4 * mean / (self._np.sqrt(square) + 1e-8)
            return master, mean, square, master.astype("bfloat16")

        return self._roofline(
            "update", update, (one, one, one, self._struct((*rows, plan.tensor, each), plan.gradients)),
            (own, own, own, P(*["data"] * len(rows), "model")), (own, own, own, whole),
        )  # fmt: skip

    # --- the layer ------------------------------------------------------------------------------------------------

    def _kept(self, lies: Tree) -> Tree:
        """How gradients lie: each replica's own, unless they are reduced at once."""
        if self.plan.overlapped:
            return lies
        return self._jax.tree.map(
            lambda one: self._spec("data", *one), lies, is_leaf=lambda one: isinstance(one, self._spec)
        )

    def _weights(self, count: int) -> tuple[Tree, Tree]:
        """Shapes of layers' weights, and how they are split: queries beside their key and value, gate beside up."""
        of, P = self.plan.model, self._spec  # noqa: N806
        groups = of.kv_heads or of.heads
        shapes = {
            "mixed": (of.d_model, groups, of.heads // groups + 2, of.d_head), "out": (of.heads, of.d_head, of.d_model),
            "up": (of.d_model, 1 + of.gated, of.d_ff), "down": (of.d_ff, of.d_model),
        }  # fmt: skip
        axes = {"mixed": 1, "out": 0, "up": 2, "down": 0}
        lies = {name: P(*[None] * (1 + axis), "model") for name, axis in axes.items()}
        return {name: self._struct((count, *shape)) for name, shape in shapes.items()}, lies

    def _lies(self, x: Any, *dims: str | None) -> Any:
        """The same, lying like this behind the dimension of sequences."""
        first = "data" if self.plan.overlapped else None
        return self._jax.lax.with_sharding_constraint(x, self._spec(first, *dims))

    def _within(self, x: Any) -> Any:
        """Normalised, and whole on each device of a replica, for matrices to read."""
        wide = x.astype("float32")
        scaled = wide * self._jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
        return self._lies(self._lies(scaled.astype(x.dtype), *self.along))

    def _layer(self, w: Tree, x: Any) -> Any:
        jnp, nn, of = self._np, self._jax.nn, self.plan.model

        def between(x: Any) -> Any:  # what matrices write is a sum over the devices of a replica
            return self._lies(self._lies(x), *self.along)

        def attention(mixed: Any) -> Any:
            query, key, value = mixed[..., :-2, :], mixed[..., -2, :], mixed[..., -1, :]
            scores = jnp.einsum("bqgik,bsgk->bgiqs", query, key).astype("float32") * of.d_head**-0.5
            shares = nn.softmax(scores, axis=-1).astype(x.dtype)
            return jnp.einsum("bgiqs,bsgk->bqgik", shares, value)

        if self.plan.recompute == "selective":
            attention = self._jax.checkpoint(attention)
        mixed = self._lies(jnp.einsum("bsd,dgik->bsgik", self._within(x), w["mixed"]), None, "model")
        heads = self._lies(attention(mixed), None, "model").reshape(*x.shape[:2], of.heads, of.d_head)
        x = x + between(jnp.einsum("bshk,hkd->bsd", heads, w["out"]))
        hidden = self._lies(jnp.einsum("bsd,dzf->bszf", self._within(x), w["up"]), None, None, "model")
        active = nn.silu(hidden[..., 0, :]) * hidden[..., 1, :] if of.gated else nn.gelu(hidden[..., 0, :])
        return x + between(jnp.einsum("bsf,fd->bsd", active, w["down"]))
