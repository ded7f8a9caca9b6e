"""The list of experiments, and the protocol of their modules. A name is also a module's name in experiments/."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, cast

from .options import BadOption, Option, Point, Values, nearest

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENTS = {
    "fig5": "dispatch overhead: computations a second against hosts, beside JAX, TF1 and Ray",
    "fig6": "the smallest computation that hides the single controller",
    "fig7": "parallel against sequential dispatch, over the stages of a pipeline",
    "fig8": "time-multiplexing: aggregate throughput of many clients",
    "fig9": "proportional share between four clients, 1:1:1:1 and 1:2:4:8: traces",
    "fig10": "a pipeline over four islands against one island",
    "fig11": "one client cannot fill the island with small computations, several can: traces",
    "fig12": "data parallelism over two islands",
    "table1": "T5 training throughput, multi-controller JAX against a single controller",
    "table2": "a 3B language model: SPMD against pipelines",
    "published": "training throughput published by others, predicted without fitting anything",
}


class Experiment(Protocol):
    """A module of experiments/. Optional attributes, with their defaults:

    PANELS = (1, 1)         rows and columns of the figure; `draw` gets one Axes, or an array of them
    SIZE = (7.0, 4.5)       the figure's size in inches
    TITLE = "..."           the figure's title, or a function of the frame
    EXTRA = ("intervals",)  long tables beside the tidy one: lists of rows that `measure` returns under these names
    """

    NAME: str
    OPTIONS: tuple[Option, ...]

    def points(self, options: dict[str, Values]) -> list[Point]: ...
    def measure(self, point: Point) -> dict[str, Any]: ...
    def draw(self, frame: pd.DataFrame, axes: Any) -> None: ...
    def findings(self, frame: pd.DataFrame) -> str: ...


def names() -> list[str]:
    return [name for name in EXPERIMENTS if find_spec(f"experiments.{name}") is not None]


def load(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise BadOption(f"no experiment {name!r}; {nearest(name, names())}")
    return cast(Experiment, import_module(f"experiments.{name}"))


def named(name: str, found: list[Point]) -> list[Point]:
    if not found:
        raise BadOption(f"{name}: these options leave no configurations to run")
    return [{"experiment": name, **point} for point in found]


def measured(point: Point) -> dict[str, Any]:
    """Measure a point, as the experiment does that it names. Returns the point and its results as one row."""
    experiment = load(point["experiment"])
    return {**point, **experiment.measure({name: point[name] for name in point if name != "experiment"})}
