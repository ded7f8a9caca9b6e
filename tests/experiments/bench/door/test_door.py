"""The door's benchmark: its table, and that all figures are measured on either side."""

from __future__ import annotations

import re

import pytest

from experiments.bench.door import door

LOCAL = {"scalar call": 10.0, "put to one device": 1000.0, "read of one device": 2e6, "compile six layers": 100.0}
THROUGH = {"scalar call": 120.0, "put to one device": 250.0, "read of one device": 200.0, "compile six layers": 110.0}


def shown(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]


def test_a_ratio_says_how_much_slower_it_is_through_the_door(capsys: pytest.CaptureFixture[str]) -> None:
    door.show(LOCAL, THROUGH)
    rows = {row[0]: row[1:] for row in shown(capsys)[1:]}
    assert rows["scalar call"] == ["10.0", "120.0", "us", "12.0x", "aim 100", "MISSED"]
    assert rows["read of one device"] == ["200.0", "MB/s", "no copy"]
    assert rows["put to one device"] == ["1,000.0", "250.0", "MB/s", "4.0x", "aim 600", "MISSED"]
    assert rows["compile six layers"] == ["100.0", "110.0", "ms", "1.1x"]
    door.show(LOCAL, THROUGH | {"scalar call": 99.0, "put to one device": 601.0})
    assert "MISSED" not in capsys.readouterr().out


@pytest.mark.full
def test_a_cluster_is_compared_with_the_local_door_and_with_multi_controller_jax(
    capsys: pytest.CaptureFixture[str],
) -> None:
    door.main(["--rounds", "1", "--devices", "4", "--calls", "40", "--mib", "1", "--hosts", "2"])
    tables = [table.splitlines() for table in capsys.readouterr().out.split("a JAX program's")[1:]]
    assert [table[0].split()[:3] for table in tables] == [
        ["local", "door", "ratio"], ["door", "cluster", "ratio"], ["multi", "JAX", "cluster"],
    ]  # fmt: skip
    names = [{re.split(r"  +", line.strip())[0] for line in table[1:]} for table in tables]
    assert names[0] < names[1]
    assert names[2] < names[1]
    assert {f"step that donates 1000, CPU of {who}" for who in ("the controller", "the agents")} <= names[1]
    assert {"call on all devices", "call of 1000, on all devices", "read of all devices"} <= names[2]
