"""Mixture of experts with data-dependent routing: dense layers on one slice, and experts on another.

Each micro-batch is routed, sent to the experts that its tokens chose, computed there, sent back and combined. The
router is an irregular node: the number of rows for each expert is known only when it has run. So later nodes are
dispatched when it has ended, and the exchange ends when progress tracking shows that all rows have arrived. `sparse`
sends the chosen rows, and the experts take as long as the fullest one. `padded` is the static alternative: every expert
gets room for `capacity` times its even share, full or not, and tokens beyond that are dropped. With more micro-batches
in a call, the exchange and the dispatch are hidden behind other micro-batches' computation. This goes beyond the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from core.model import (
    Arg,
    Computation,
    Exchange,
    Hosts,
    Layout,
    Node,
    Out,
    Program,
    Ref,
    Sharding,
    SliceSpec,
    Value,
)
from sim.hardware import Kernel

from .framework import Option, Point, Values, grid
from .framework.figures import beside, doublings, line
from .micro import common
from .micro.clients import Failed, Loop
from .micro.programs import Task

if TYPE_CHECKING:
    import pandas as pd

NAME = "moe"
TITLE = "Mixture of experts over two slices: sparse exchange against padded"
OPTIONS = (
    Option("routing", ("sparse", "padded"), "send chosen rows, or room for `capacity`", choices=("sparse", "padded")),
    Option("microbatches", (1, 2, 4), "micro-batches in a call", least=1),
    Option("skew", (0.0, 0.5, 1.0), "skew of popularity: expert k is chosen in proportion to 1 / k ** skew", least=0),
    Option("experts", 16, "devices with an expert each", least=1),
    Option("dense", 16, "devices of the dense layers", least=1),
    Option("tokens", 16_384, "tokens in a micro-batch", least=1),
    Option("width", 2048, "numbers of a token, two bytes each", least=1),
    Option("capacity", 1.25, "room of an expert, as a multiple of its even share of the tokens", least=0.1),
    Option("dense_ms", 2.0, "milliseconds of a micro-batch in the dense layers", least=0.001),
    Option("expert_ms", 2.0, "milliseconds of a micro-batch in the experts, if all are equally full", least=0.001),
    Option("hosts", 16, "hosts of the island", least=1),
    Option("cluster", "B", "set-up"),
    Option("ahead", 1, "calls that the client does not wait for", least=0),
    common.WINDOW, common.POLICY, common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
PANELS, SIZE = (1, 2), (10.4, 4.2)
CALLS = 5


def points(options: dict[str, Values]) -> list[Point]:
    return grid(options)


def measure(point: Point) -> dict[str, Any]:
    setup = common.island(point["cluster"], point["hosts"])
    sim = common.simulated(setup, point)
    chosen = choices(point)
    room = point["capacity"] * point["tokens"] / point["experts"]
    sparse = point["routing"] == "sparse"
    fullest = float(chosen.sum(axis=0).max()) if sparse else room
    expert_ms = point["expert_ms"] * fullest * point["experts"] / point["tokens"]
    client = Loop(sim, "client", program(point, expert_ms), ahead=point["ahead"], calls=CALLS, chained=False)
    if sparse:
        sim.rows_of = chosen_rows(chosen, point["tokens"], 2 * point["width"])
    sim.run(until=lambda: client.done)
    if client.failures:
        raise Failed(client.failures[0])
    ends = [end for _, end in client.ends]
    step = (ends[-1] - ends[1]) / (len(ends) - 2)
    kept = 1.0 if sparse else float(np.minimum(chosen.sum(axis=0), room).sum() / point["tokens"])
    return {
        "tokens_per_s": point["microbatches"] * point["tokens"] * kept * 1e9 / step, "step_ms": step / 1e6,
        "dropped": 1 - kept, "fullest_expert": float(chosen.sum(axis=0).max() * point["experts"] / point["tokens"]),
        "experts_busy": point["microbatches"] * expert_ms * 1e6 / step,
        "sent_mb_per_step": sim.contents.moved / len(ends) / 1e6,
    }  # fmt: skip


def choices(point: Point) -> Any:
    """Numbers of tokens, by the shard that has them and the expert they chose."""
    rng = np.random.default_rng(point["seed"])
    popularity = 1 / np.arange(1, point["experts"] + 1) ** point["skew"]
    popularity = rng.permutation(popularity) / popularity.sum()
    return rng.multinomial(point["tokens"] // point["dense"], popularity, size=point["dense"])


def chosen_rows(chosen: Any, tokens: int, token_bytes: int) -> Any:
    """A function that gives the bytes each host sends, from the dense slice (with as many rows as tokens) or back."""

    def rows(
        host: int, source: Layout | None, target: Layout, hosts: Hosts
    ) -> tuple[tuple[int, int, int], ...]:
        if source is None:
            return ()
        counts = chosen if source.shape[0] == tokens else chosen.T
        here = set(hosts.devices_of(host))
        found = [
            (hosts.host_of(target.place.device(at)), shard * target.place.size + at, int(count) * token_bytes)
            for shard, row in enumerate(counts)
            if source.place.device(shard) in here
            for at, count in enumerate(row)
            if count
        ]
        return tuple(sorted(found))

    return rows


def program(point: Point, expert_ms: float) -> Task:
    """embed -> route -> exchange -> experts -> exchange -> combine, for each micro-batch.

    All are routed before any is combined: devices run in program order, and a combine waits for its experts.
    """
    dense, experts = SliceSpec("dense", point["dense"]), SliceSpec("experts", point["experts"])
    times = {
        "embed": 0.1,
        "route": point["dense_ms"] / 2,
        "experts": expert_ms,
        "combine": point["dense_ms"] / 2,
    }
    kernels = {name: Kernel(name, max(1, round(ms * 1e6))) for name, ms in times.items()}
    computations = tuple(Computation(name, name, kernel.duration) for name, kernel in kernels.items())
    sparse = point["routing"] == "sparse"
    scalar, width = Value((), "float32", 0), point["width"]
    batch = Value((point["tokens"], width), "bfloat16", 0, Sharding(((0,), ())))
    inbox = Value((4 * point["tokens"], width), "bfloat16", 1, Sharding(((0,), ())))
    packed, full = padded(point)
    nodes: list[Node | Exchange] = []

    def add(node: Node | Exchange) -> Ref:
        nodes.append(node)
        return Out(len(nodes) - 1)

    backs: list[tuple[Ref, Value]] = []
    for micro in range(point["microbatches"]):
        x = add(Node(f"embed {micro}", 0, 0, (Arg(0),), (scalar,), (batch,)))
        if sparse:
            routed = add(Node(f"route {micro}", 1, 0, (x,), (batch,), (batch,), irregular=True))
            there = add(Exchange(f"to experts {micro}", routed, inbox))
            done = add(Node(f"experts {micro}", 2, 1, (there,), (inbox,), (inbox,)))
            backs.append((add(Exchange(f"back {micro}", done, batch)), batch))
        else:
            routed = add(Node(f"route {micro}", 1, 0, (x,), (batch,), (packed,)))
            backs.append((add(Node(f"experts {micro}", 2, 1, (routed,), (full,), (full,))), packed))
    results = [
        add(Node(f"combine {micro}", 3, 0, (back,), (wanted,), (batch,)))
        for micro, (back, wanted) in enumerate(backs)
    ]  # fmt: skip
    made = Program("experts", (dense, experts), computations, (scalar,), tuple(nodes), tuple(results))
    return Task(made, kernels, point["microbatches"])


def padded(point: Point) -> tuple[Value, Value]:
    """Values of shape (expert, row, width), split by rows in the dense slice and by expert in the other."""
    share = point["tokens"] * point["capacity"] / point["experts"] / point["dense"]
    shape = (point["experts"], max(1, round(share)) * point["dense"], point["width"])
    return (
        Value(shape, "bfloat16", 0, Sharding(((), (0,), ()))),
        Value(shape, "bfloat16", 1, Sharding(((0,), (), ()))),
    )


def draw(frame: pd.DataFrame, axes: Any) -> None:
    for panel, column, label in (
        (axes[0], "tokens_per_s", "million tokens a second"),
        (axes[1], "experts_busy", "experts busy (padded: the same for any skew)"),
    ):
        skews = sorted(set(frame["skew"]))
        for (routing, skew), mine in frame.groupby(["routing", "skew"], sort=False):
            mine = mine.drop_duplicates("microbatches").sort_values("microbatches")
            values = mine[column] / (1e6 if column == "tokens_per_s" else 1.0)
            line(panel, mine["microbatches"], values, f"{routing}, skew {skew:g}", skews.index(skew),
                 linestyle="-" if routing == "sparse" else "--")  # fmt: skip
        doublings(panel, frame["microbatches"], log=False)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("micro-batches in a call")
        panel.set_ylabel(label)
    beside(axes[1])


def findings(frame: pd.DataFrame) -> str:
    lines = []
    most = frame[frame["microbatches"] == frame["microbatches"].max()]
    for skew, mine in most.groupby("skew", sort=True):
        parts = []
        for _, row in mine.iterrows():
            dropped = f", {row['dropped']:.0%} of the tokens dropped" if row["dropped"] > 0.0005 else ""
            parts.append(f"{row['routing']} {row['tokens_per_s']:,.0f} tokens a second{dropped}")
        full = mine["fullest_expert"].iloc[0]
        lines.append(f"- Skew {skew:g} (the fullest expert has x{full:.2f} its share): {'; '.join(parts)}.")
    for routing, mine in frame.groupby("routing", sort=False):
        mine = mine[mine["skew"] == mine["skew"].min()].sort_values("microbatches")
        rise = mine["tokens_per_s"].iloc[-1] / mine["tokens_per_s"].iloc[0]
        lines.append(
            f"- {routing}: {mine['microbatches'].iloc[-1]} micro-batches in a call instead of "
            f"{mine['microbatches'].iloc[0]} make it x{rise:.2f}."
        )
    return "\n".join(lines)
