"""Figure 7: parallel against sequential asynchronous dispatch.

It runs a chain of the simple computation on set-up B. Every stage is on the 4 cores of another host, and its output
goes over ICI to the next. In parallel dispatch, the host work of all stages is done at once, ahead of the data. In
sequential dispatch, a stage is dispatched when the previous one has been enqueued, so host work adds up along the
chain. In the paper, with more stages the client's fixed overhead is amortised first, then transfers decide, then the
scheduling's overhead is amortised. It prints no value. A scalar crosses ICI in microseconds here, so there is no phase
in which transfers decide; `--output 16M` has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.hardware import load

from .framework import Option, Point, Values, grid
from .framework.figures import doublings, line
from .micro import common
from .micro.clients import Failed, Loop, rate
from .micro.programs import simple, stages

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig7"
TITLE = "Parallel against sequential dispatch, over the stages of a chain"
OPTIONS = (
    Option("dispatch", ("parallel", "sequential"), "ahead of the data, or stage by stage",
           choices=("parallel", "sequential")),
    Option("stages", (1, 2, 4, 8, 16, 32, 64), "stages, each on another host", least=1),
    Option("cores", 4, "cores of a host", least=1),
    Option("cluster", "B", "set-up, with as many hosts as stages"),
    Option("compute_ms", 0.0, "milliseconds of a stage, besides AllReduce and add", least=0),
    Option("output", 4, "bytes that each core hands on to the next stage", least=4),
    Option("ahead", 0, "calls that the client does not wait for", least=0),
    common.WINDOW, common.POLICY, common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
CALLS = 8


def points(options: dict[str, Values]) -> list[Point]:
    return grid(options)


def measure(point: Point) -> dict[str, Any]:
    count, width = point["stages"], point["cores"]
    setup = load(point["cluster"], hosts=count, devices_per_host=width)
    sim = common.simulated(setup, point)
    task = stages(setup, simple(round(point["compute_ms"] * 1e6)), count, width, output=point["output"])
    client = Loop(sim, "client", task, ahead=point["ahead"], calls=CALLS + 2 * point["ahead"], chained=False,
                  dispatch=point["dispatch"])  # fmt: skip
    sim.run(until=lambda: client.done)
    if client.failures:
        raise Failed(client.failures[0])
    called, ended = client.ends[-1]
    return {"computations_per_s": rate(sim), "call_ms": (ended - called) / 1e6}


def draw(frame: pd.DataFrame, axes: Any) -> None:
    for number, (dispatch, mine) in enumerate(frame.groupby("dispatch", sort=False)):
        mine = mine.drop_duplicates("stages").sort_values("stages")
        line(axes, mine["stages"], mine["computations_per_s"], f"{dispatch} dispatch", number)
    doublings(axes, frame["stages"])
    axes.set_xlabel(f"stages, each on {frame['cores'].iloc[0]} cores of another host")
    axes.set_ylabel("computations a second")
    axes.legend(loc="upper left")


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """The ratio of parallel to sequential rates, by stages."""
    both = {name: mine.drop_duplicates("stages").set_index("stages") for name, mine in frame.groupby("dispatch")}
    found = both["parallel"]["computations_per_s"] / both["sequential"]["computations_per_s"]
    return found.dropna().sort_index().rename("ratio").reset_index()


def findings(frame: pd.DataFrame) -> str:
    if set(frame["dispatch"]) != {"parallel", "sequential"}:
        return "One kind of dispatch alone: nothing to compare."
    found = ratios(frame)
    first, last = found.iloc[0], found.iloc[-1]
    at_first = f"x{first['ratio']:.2f} at {int(first['stages'])}"
    lines = [f"- Parallel dispatch is x{last['ratio']:.2f} sequential at {int(last['stages'])} stages, {at_first}."]
    for name, mine in frame.groupby("dispatch", sort=False):
        mine = mine.drop_duplicates("stages").sort_values("stages")
        rise = mine["computations_per_s"].iloc[-1] / mine["computations_per_s"].iloc[0]
        lines.append(
            f"- {str(name).capitalize()}: x{rise:.1f} from {mine['stages'].iloc[0]} to {mine['stages'].iloc[-1]} "
            "stages, as what is fixed in a call is shared by more of them."
        )
    return "\n".join(lines)
