"""A small experiment."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pandas as pd

from experiments.framework.options import Option, Point, Values, grid


def toy() -> ModuleType:
    """An experiment: doubles `hosts`, and knows the paper's value for four of them."""

    def points(options: dict[str, Values]) -> list[Point]:
        return grid(options)

    def measure(point: Point) -> dict[str, Any]:
        if point["hosts"] == 13:
            raise ValueError("thirteen hosts fell over")
        doubled = 2.0 * point["hosts"]
        paper = 10.0 if point["hosts"] == 4 else None
        return {
            "doubled": doubled, "paper": paper, "error": None if paper is None else doubled / paper - 1,
            "ticks": [{"at": tick, "seed": point["seed"]} for tick in range(point["hosts"])],
        }  # fmt: skip

    def draw(frame: pd.DataFrame, axes: Any, ticks: pd.DataFrame) -> None:
        axes.plot(frame["hosts"], frame["doubled"], label=f"{len(ticks)} ticks")

    def findings(frame: pd.DataFrame) -> str:
        return f"At {frame['hosts'].max()} hosts it is {frame['doubled'].max():.0f}."

    module = ModuleType("experiments.toy")
    contents: dict[str, Any] = {
        "NAME": "toy", "EXTRA": ("ticks",), "points": points, "measure": measure, "draw": draw, "findings": findings,
        "OPTIONS": (Option("hosts", (2, 4), "hosts of the island", least=1), Option("seed", 0, "of all chance"),
                    Option("policy", "fifo", "who goes next", choices=("fifo", "stride"))),
    }  # fmt: skip
    vars(module).update(contents)
    return module
