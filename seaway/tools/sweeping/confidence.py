"""Means over seeds with confidence intervals, as a table, text and picture.

Equal seeds mean equal workloads, so policies are compared seed by seed: the interval of the difference is mostly much
smaller than those of the means. Intervals are those of Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10, sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SURE = 0.95
KNOWN = ("number", "policy", "seeds", "mean", "ci95", "difference", "difference_ci95")


def summarised(table: pd.DataFrame, numbers: Sequence[str], first: str) -> pd.DataFrame:
    """One row a number, combination of options and policy: how many seeds gave it, its mean, and the half width of the
    mean's 95 % confidence interval; and the same of the difference to the policy `first`, over common seeds."""
    import pandas as pd

    options = [name for name in table.columns if name not in ("policy", "seed", *numbers)]
    groups = table.groupby([*options, "policy"], sort=False)
    parts: dict[Any, Any] = {key: part.set_index("seed") for key, part in groups}
    rows = []
    for number in numbers:
        for (*values, policy), part in parts.items():
            seeds, mean, around = _interval(part[number])
            row = {"number": number, **dict(zip(options, values, strict=True)), "policy": policy, "seeds": seeds,
                   "mean": mean, "ci95": around}  # fmt: skip
            other = parts.get((*values, first))
            if other is not None and policy != first:
                _, row["difference"], row["difference_ci95"] = _interval(part[number] - other[number])
            rows.append(row)
    return pd.DataFrame(rows, columns=["number", *options, *KNOWN[1:]])


def _interval(values: pd.Series[float]) -> tuple[int, float, float]:
    """(how many, mean, half of the interval's width). One value has no width that is known."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # a requirement of jax's

    values = values.dropna()
    count, mean = len(values), float(values.mean())
    if count < 2:
        return count, mean, float("nan")
    return count, mean, float(stdtrit(count - 1, (1 + SURE) / 2)) * float(values.std()) / sqrt(count)


def text(summary: pd.DataFrame, first: str) -> str:
    """A table for each number."""
    import pandas as pd

    options = [name for name in summary.columns if name not in KNOWN]
    blocks = []
    for number, part in summary.groupby("number", sort=False):
        columns: dict[str, Any] = {name: part[name] for name in (*options, "policy", "seeds")}
        columns["mean"] = [_shown(*pair) for pair in zip(part["mean"], part["ci95"], strict=True)]
        pairs = zip(part["difference"], part["difference_ci95"], strict=True)
        if summary["policy"].nunique() > 1:
            columns[f"minus {first}"] = [_shown(*pair) for pair in pairs]
        lines = pd.DataFrame(columns).to_string(index=False).splitlines()
        blocks.append("\n".join([str(number), *map(str.rstrip, lines)]))
    return "\n\n".join(blocks)


def _shown(mean: float, around: float) -> str:
    """With two digits of the interval."""
    if not isfinite(mean):
        return ""
    if not (isfinite(around) and around > 0):
        return f"{mean:,.6g}" + (" ± 0" if around == 0 else "")
    places = max(0, 1 - floor(log10(around)))
    return f"{mean:,.{places}f} ± {around:,.{places}f}"


def picture(summary: pd.DataFrame, across: str) -> Figure:
    """A panel for each number: its mean and interval by the option `across`, a line for each policy and combination of
    other options."""
    from ...trace import style

    numbers = summary["number"].unique()
    lines = [name for name in summary.columns if name not in (*KNOWN, across)]
    with style.applied():
        figure = style.Picture("page" if len(numbers) > 1 else "column", 0.4 + 2.2 * -(-len(numbers) // 2))
        panels = figure.subplots(-(-len(numbers) // 2), min(2, len(numbers)), squeeze=False).flatten()
        for axes, number in zip(panels, numbers, strict=False):
            mine = summary[summary["number"] == number]
            for at, (key, part) in enumerate(mine.groupby(["policy", *lines], sort=False)):
                policy, *values = key
                label = ", ".join([style.short(policy.rpartition("/")[2]), *map("{}={}".format, lines, values)])
                look = {"color": style.COLORS[at % len(style.COLORS)], "marker": style.MARKERS[at % len(style.MARKERS)]}
                part = part.sort_values(across)
                axes.errorbar(
                    part[across], part["mean"], part["ci95"].fillna(0), capsize=2.5, elinewidth=1, label=label, **look
                )
            axes.set_xlabel(across)
            axes.set_title(number)
            axes.grid(axis="y")
        for axes in panels[len(numbers) :]:
            axes.set_visible(False)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure
