"""Rows for a figure: what each slice's devices ran in one step, and when."""

from __future__ import annotations

from typing import Any

from .drive import Trained


def intervals(trained: Trained) -> list[dict[str, Any]]:
    """Rows of the last step: each node's kind, slice and number (from its name), and its times in seconds."""
    since, until = trained.window
    gangs, words = trained.sim.trace.gangs, trained.sim.trace.strings.words
    columns = zip(*(gangs.column(name) for name in ("step", "started", "ended")), strict=True)
    found = []
    for step, started, ended in columns:
        if ended <= since or started >= until or started < 0:
            continue
        kind, at, *number = words[step].split()
        found.append({
            "kind": kind, "slice": int(at), "number": int(number[0]) if number else 0,
            "start_s": (started - since) / 1e9, "end_s": (ended - since) / 1e9,
        })  # fmt: skip
    return sorted(found, key=lambda row: (row["slice"], row["start_s"]))
