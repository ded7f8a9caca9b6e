"""What `seaway status` says of hosts."""

from __future__ import annotations

from typing import Any

import pytest

from seaway.cli.status import table

DRAINS = {"seconds": 3.0, "left": 12.0, "waits": "arrays of client 'a'"}
AT_REST: dict[str, Any] = {"host": 1, "agent": "b", "connected": True, "cordoned": False, "drains": None,
                           "drained": False, "clock": None}  # fmt: skip


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ({"drains": DRAINS}, "drains, for 3 s: waits for arrays of client 'a'; leaves in 12 s"),  # it asked to leave
        ({"cordoned": True, "drains": {**DRAINS, "left": None}}, "drains, for 3 s: waits for arrays of client 'a'"),
        ({"cordoned": True, "drained": True}, "has drained"),
        ({"cordoned": True}, "is cordoned"),
        ({}, ""),
    ],
)
def test_hosts_that_leave_are_named_whoever_wants_it(host: dict[str, Any], said: str) -> None:
    island = {
        "name": "i0", "phase": "running", "epoch": 0, "hosts": [{**AT_REST, **host}], "devices": 2, "under_way": 0,
        "late": [], "stalled": 0,
    }  # fmt: skip
    found = {
        "islands": [island], "clients": [], "buffers": 0, "contents_through_controller": 0, "said": [],
        "stalled": [], "stalled_elsewhere": 0, "waits": [], "refused": [],
    }  # fmt: skip
    about = [line for line in table(found).splitlines() if line.startswith("host 1 (b)")]
    assert about == ([f"host 1 (b) {said}"] if said else [])
