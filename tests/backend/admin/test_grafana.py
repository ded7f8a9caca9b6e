"""docs/deploy/grafana.json asks for metrics and labels that a controller has, and shows all but a few of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from backend.admin import metrics

BOARD = json.loads((Path(__file__).parents[3] / "docs" / "deploy" / "grafana.json").read_text(encoding="utf-8"))
CLOCK = {"offset": 5, "bound": 7, "jumps": 0}
STATUS: dict[str, Any] = {
    "incarnation": 0, "runs": 1, "submitted": 2, "gangs": 3, "stalls": 0, "stalled_elsewhere": 0, "refused": [],
    "buffers": 0, "contents_through_controller": 0, "code": {"blobs": 0, "bytes": 0}, "refusals": {"token": 1},
    "record": {"file": "run.log", "lost": ""},
    "islands": [{"name": "i0", "phase": "running", "epoch": 0, "under_way": 0, "stalled": 0,
                 "hosts": [{"host": 0, "connected": True, "clock": CLOCK}]}],
    "clients": [{"client": 1, "name": "ann", "runs": 1, "programs": 1}],
    "accounts": [{"account": "ann", "used": {"device_seconds": 1.5, "bytes_in": 1, "bytes_out": 1, "runs": 1}}],
}  # fmt: skip
NOT_SHOWN = {
    "seaway_starts", "seaway_client_programs", "seaway_runs", "seaway_buffers", "seaway_record_lost",
    "seaway_code_bytes", "seaway_clock_offset_seconds", *(f"seaway_{name}" for name in metrics.ACCOUNTS),
}  # fmt: skip
ADDED = {"instance"}  # by Prometheus


def labels() -> dict[str, set[str]]:
    """The labels of each metric that a controller has."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in metrics.text_of(STATUS).splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition(" ")[0].partition("{")
            found[name] |= set(re.findall(r"(\w+)=", rest))
    return found


def targets() -> list[dict[str, str]]:
    return [target for panel in BOARD["panels"] for target in panel["targets"]]


def test_each_metric_and_label_of_the_board_exists() -> None:
    known = labels()
    asked = {name for target in targets() for name in re.findall(r"seaway_\w+", target["expr"])}
    assert len(asked) > 10
    assert sorted(asked - known.keys()) == []
    for target in targets():
        (name, *_) = re.findall(r"seaway_\w+", target["expr"])
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        selected = set(re.findall(r"(\w+)=~?\"", target["expr"]))
        assert shown | selected - ADDED <= known[name] | ADDED, target


def test_a_metric_that_the_board_leaves_out_is_left_out_on_purpose() -> None:
    shown = " ".join(target["expr"] for target in targets())
    variables = " ".join(each["query"] for each in BOARD["templating"]["list"])
    left = {name for name in labels() if not re.search(rf"\b{name}\b", shown + variables)}
    assert left == NOT_SHOWN
