"""Makes the table of docs/figures.md: the paper's numbers and ours, in a few lines.

    python -m tests.experiments.paper_table        computes and prints it, ready to be pasted

`test_studies` compares the page with computed values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from experiments import fidelity

if TYPE_CHECKING:
    import pandas as pd

MISSED = 0.5  # a prediction with a larger error counts as missed


class Line(NamedTuple):
    text: str
    experiment: str
    what: str  # text in the fidelity table's `what`; of several rows with it, the worst is shown
    unit: str  # format of a number
    scale: float = 1.0
    remark: str = ""


LINES = (
    Line("Figure 6: shortest computation that hides the controller, 16 hosts", "fig6", "hosts 16,", "{:.3g} ms"),
    Line("... 512 hosts", "fig6", "hosts 512,", "{:.3g} ms"),
    Line("Figure 5: chained programs ahead of JAX's single calls, up to", "fig5", "C = JAX-O", "{:,.0f} cores"),
    Line("... fused programs as fast as JAX's, up to", "fig5", "F = JAX-F", "{:,.0f} cores"),
    Line("Figure 11: devices busy with 8 clients and 0.33 ms computations", "fig11", "clients 8", "{:.0f} %", 100.0),
    Line(
        "Table 1: Pathways against JAX, each row", "table1", ": Pathways / JAX", "{:.4g}",
        remark="; absolute values do not follow from what the paper prints",
    ),
    Line("Table 2: SPMD", "table2", "stages 1,", "{:.1f}k tokens/s", 1e-3),
    Line(
        "... pipeline S=4, M=16", "table2", "stages 4,", "{:.1f}k tokens/s", 1e-3, ": the chip's efficiency, 0.74",
    ),
    Line("... pipeline S=16, M=64", "table2", "stages 16,", "{:.1f}k tokens/s", 1e-3),
    Line("Figure 10: throughput of four islands over that of one", "fig10", "4 islands / one", "{:.3g}"),
    Line("Figure 12: bytes over the network a step, 64B", "fig12", "LM-64B", "{:,.0f} GB", 1.0, "; shapes assumed"),
    Line("... 136B model", "fig12", "LM-136B", "{:,.0f} GB", 1.0, "; shapes assumed"),
)  # fmt: skip


def lines(found: pd.DataFrame) -> list[str]:
    """Lines of the table, for the numbers that are in a fidelity table."""
    told = []
    for line in LINES:
        mine = found[(found["experiment"] == line.experiment) & found["what"].str.contains(line.what, regex=False)]
        if len(mine):
            row = mine.iloc[int(mine["error"].abs().argmax())]
            paper, here = (line.unit.format(float(row[each]) * line.scale) for each in ("paper", "predicted"))
            told.append(f"| {line.text} | {paper} | {here} | {_kind(row)}{line.remark} |")
    return told


def _kind(row: pd.Series) -> str:
    kind = fidelity.kind(row)
    if kind in (fidelity.FITTED, fidelity.CANNOT):
        return kind
    error = float(row["error"])
    if abs(error) > MISSED:
        return "predicted, and **missed**"
    return "predicted" if abs(error) < 0.0005 else f"predicted, {100 * error:+.1f} %"


def text(found: pd.DataFrame) -> str:
    return "\n".join(["| | paper | here | |", "|---|---:|---:|---|", *lines(found)]) + "\n"


if __name__ == "__main__":
    print(text(fidelity.run()), end="")
