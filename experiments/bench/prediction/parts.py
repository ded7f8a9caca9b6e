"""What each part of the model of shared cores is worth: predictions without it, beside predictions with it.

A part is left out by changing the calibrated cluster: its costs are zero, or its key is not in `[[shared]]`. The costs
that remain are not fitted again. `prediction --ablate` predicts all measured cases without each part in turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .table import Row, distribution

Table = dict[str, Any]


def _free(*names: str) -> Callable[[Table], None]:
    """These costs are zero."""

    def change(table: Table) -> None:
        table["profile"].setdefault("costs", {}).update(dict.fromkeys(names, 0))

    return change


def _each_alone(*names: str) -> Callable[[Table], None]:
    """Each further message or gang of a batch costs as much as the first."""

    def change(table: Table) -> None:
        costs = table["profile"].setdefault("costs", {})
        costs.update({f"{name}_more": costs[name] for name in names if name in costs})

    return change


def _keyless(*keys: str) -> Callable[[Table], None]:
    """Machines have none of these keys."""

    def change(table: Table) -> None:
        for machine in table["shared"]:
            for key in keys:
                machine.pop(key, None)

    return change


def _cores_for_all(table: Table) -> None:
    for machine in table["shared"]:
        machine["cores"] = 1000


PARTS: Mapping[str, Callable[[Table], None]] = {
    "few cores": _cores_for_all,
    "python": _keyless("python", "one_process"),
    "one_process": _keyless("one_process"),
    "devices": _keyless("devices"),
    "complete_more": _each_alone("complete"),
    "literal": _free("literal"),
    "stall": _free("stall", "stall_every"),
    "transfer_byte_ps": _free("transfer_byte_ps"),
    "transfer_end": _free("transfer_end"),
}


def without(part: str, table: Table) -> Table:
    """The cluster without a part of the model."""
    changed = copy.deepcopy(table)
    PARTS[part](changed)
    return changed


class Worth(NamedTuple):
    """The errors of all rows and of all rows without a part, by number of case and quantity."""

    part: str
    errors: Sequence[float]
    without: Sequence[float]


def worth(part: str, rows: Sequence[Row], changed: Sequence[Row]) -> Worth:
    """rows, changed: with the part and without it. Only rows that both have count."""
    there = {(row.number, row.quantity): row.off for row in changed}
    both = [row for row in rows if (row.number, row.quantity) in there]
    return Worth(part, [row.off for row in both], [there[row.number, row.quantity] for row in both])


def shown(found: Sequence[Worth]) -> str:
    """A table: one line a part, with the median and the 95th percentile of absolute errors, with it and without it."""
    lines = [
        f"{'':26}{'':6}{'median':^24}{'95 %':^24}",
        f"{'left out':26}{'rows':>6}" + f"{'with':>8}{'without':>8}{'worth':>8}" * 2,
    ]
    for one in found:
        with_it, without_it = distribution(one.errors), distribution(one.without)
        if with_it is None or without_it is None:
            continue
        figures = ""
        for before, after in ((with_it.median, without_it.median), (with_it.last, without_it.last)):
            figures += f"{before:>8.1%}{after:>8.1%}{100 * (after - before):>+8.1f}"
        lines.append(f"{one.part:26}{with_it.rows:>6}{figures}")
    return "\n".join(lines)
