"""This machine, measured: the file is complete, describes its contents, and the simulator runs on it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import seaway as sw
from seaway.cli import main
from seaway.tools.calibrating.measuring import MODEL
from sim.hardware.setups import load

OTHERS = ("transfer_chunk", "transfer_byte_ps", "transfer_end", "prepare", "stall", "stall_every")


def calibrate(out: Path, *options: str) -> int:
    return main(["calibrate", "--out", str(out), *options])


def simulated(path: Path, calls: int = 20) -> float:
    step = sw.synthetic("step", devices=sw.slice(devices=2), duration="10us")
    with sw.simulate(str(path)) as session:
        x = step(np.zeros(2, np.float32)).block_until_ready()
        begun = session.now()
        for _ in range(calls):
            x = step(x).block_until_ready()
        return (session.now() - begun) / calls


def test_timed_devices_are_calibrated_quickly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    assert calibrate(path, "--platform", "timed", "--quick") == 0
    said = capsys.readouterr().out
    costs = tomllib.loads(path.read_text())["profile"]["costs"]
    assert set(costs) == {*MODEL, *OTHERS} - {"sum"}  # timed devices compute none
    assert all(cost["source"] for cost in costs.values())
    setup = load(path)
    assert setup.profile is not None
    profile = setup.profile
    assert profile.status == "measured"
    assert profile.send + profile.receive > 10_000  # a gRPC message takes more than ten microseconds of CPU
    assert profile.step > 1_000
    assert profile.prepare == 0
    assert 0.0001 < simulated(path) < 1  # seconds of a call
    assert "not measured: " in said
    assert "chip 'cpu' holds" in said
    assert "chip 'cpu' holds" in setup.note
    assert f"wrote {path}" in said
    assert [each.name for each in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.full
def test_cpu_devices_are_calibrated(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert calibrate(path, "--quick") == 0
    setup = load(path)
    assert setup.profile is not None
    assert setup.profile.enqueue + setup.profile.complete > 10_000
    figures = {(of, key): source for of, key, _, source in setup.figures()}
    for key in ("peak_flops", "hbm_bandwidth", "network_latency", "network_bandwidth"):
        assert figures["cpu", key].startswith("measured"), key
    assert figures["cpu", "clock_hz"].startswith("assumed")
    assert "clock_hz" in setup.note
    assert 0.0001 < simulated(path) < 5


@pytest.mark.full
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    words = [sys.executable, "-m", "seaway", "calibrate", "--out", str(path), "--platform", "timed"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in process.stdout:  # until a session is up
            if line.startswith("  turn 1"):
                break
        begun = set(children_of(process.pid))
        assert begun
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    until = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in begun) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in begun if Path(f"/proc/{pid}").exists()]
    assert list(tmp_path.iterdir()) == []


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    tasks = [each.read_text().split() for each in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for child in {*found, *(each for task in tasks for each in task)}]


@pytest.mark.parametrize(
    ("out", "options", "words"),
    [
        ("there.toml", (), "--force overwrites it"),
        ("mine", (), "must end in .toml"),
        ("no/such/mine.toml", (), "there is no folder"),
        ("mine.toml", ("--hosts", "0"), "sw.local(hosts=0): a whole number, at least 1"),
        ("mine.toml", ("--platform", "cuda", "--hosts", "2"), "one process has all cuda devices"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "there.toml").write_text("mine")
    assert calibrate(tmp_path / out, *options) == 1
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""
    assert [each.name for each in tmp_path.iterdir()] == ["there.toml"]
