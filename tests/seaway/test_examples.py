"""The examples run, and print what their docstrings promise."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seaway.cli import main

ROOT = Path(__file__).parent.parent.parent
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs" / "examples"
Said = Callable[..., str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Said:
    """The output of an example."""

    def run(name: str, folder: Path = EXAMPLES) -> str:
        runpy.run_path(str(folder / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    main_module, argv, path = sys.modules["__main__"], sys.argv, list(sys.path)
    yield
    sys.modules["__main__"], sys.argv, sys.path[:] = main_module, argv, path


def test_the_papers_example_prints_the_papers_numbers(printed: Said) -> None:
    shapes, numbers = printed("paper.py").splitlines()
    assert numbers == "(Array([3., 5.], dtype=float32), Array([2., 4.], dtype=float32))"
    assert shapes.count("ready at") == 2


def test_an_urgent_job_takes_devices_and_the_losses_of_the_other_are_those_of_a_run_left_alone(printed: Said) -> None:
    assert printed("preempt.py", DOCS).splitlines()[1].startswith("losses: ")  # the example compares them


def test_a_job_shrinks_and_grows_and_each_loss_is_that_of_a_run_of_that_size(printed: Said) -> None:
    assert printed("elastic.py", DOCS).splitlines()[0] == "sizes: 8 4 8"  # the example compares the losses


@pytest.mark.full
def test_a_transformer_learns_the_same_on_one_device_on_one_island_and_on_two(
    printed: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"  # compiled in half the time
    monkeypatch.setenv("XLA_FLAGS", flags)  # of the hosts: this process has read its own cache
    monkeypatch.setattr(sys, "argv", ["transformer.py"])
    text = printed("transformer.py")
    steps = [[float(loss) for loss in line.split()[1:]] for line in text.splitlines()[1:11]]
    for plain, data_parallel, pipeline in steps:
        assert data_parallel == pytest.approx(plain, rel=1e-3)
        assert pipeline == pytest.approx(plain, rel=1e-3)
    assert steps[-1][0] < steps[0][0] / 2
    assert "alike: True" in text
    assert "10 runs, 250 gangs on 16 devices (tpu-v3), 2 hosts on 2 islands" in text  # simulated


@pytest.mark.full
def test_a_transformer_continues_from_its_checkpoint_as_if_it_had_not_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It saves, and then continues without its last save, on as many hosts and on another number of them."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    monkeypatch.setenv("XLA_FLAGS", flags)
    printed = []
    for more in ((), ("--resume",), ("--resume", "--hosts", "1")):
        monkeypatch.setattr(sys, "argv", ["transformer.py", "--checkpoint", str(tmp_path), *more])
        runpy.run_path(str(EXAMPLES / "transformer.py"), run_name="__main__")
        lines = capsys.readouterr().out.splitlines()
        printed.append([line.split() for line in lines if re.match(r" +\d+ ", line)])
        for way in ("one", "two"):
            assert sorted(path.name for path in (tmp_path / way).iterdir()) == ["4", "9"]
            shutil.rmtree(tmp_path / way / "9")
    first, again, elsewhere = printed
    assert [line[0] for line in again] == ["5", "6", "7", "8", "9"]
    assert again == first[5:]  # to the last digit
    for line, wanted in zip(elsewhere, first[5:], strict=True):
        assert [float(loss) for loss in line] == pytest.approx([float(loss) for loss in wanted], rel=1e-4)


def test_a_training_loop_reads_its_loss(printed: Said) -> None:
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed("train.py"))]
    assert len(losses) > 2
    assert losses == sorted(losses, reverse=True)


def test_a_pipeline_keeps_its_islands_busy(printed: Said) -> None:
    lines = printed("pipeline.py").splitlines()
    assert [line for line in lines if line.startswith("step 2 at")]
    assert len([line for line in lines if re.search(r"\bc\d\b", line)]) == 4


def test_experts_compute_the_same_with_and_without_routing(printed: Said) -> None:
    assert "as computed without routing: True" in printed("experts.py")


def test_a_program_file_runs_as_many_clients(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(EXAMPLES / "step.py"), "--cluster", "A", "--policy", "stride:1,2"]) == 0
    assert capsys.readouterr().out.count("done at") == 2


def test_each_example_is_tested() -> None:
    text = Path(__file__).read_text()
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f"{path.name}" not in text] == []


def test_two_rl_jobs_by_phase_cost_less_than_each_alone(printed: Said) -> None:
    """As much as RollMux reports, where the phases are of a length; and less where one is much longer."""
    rows = re.findall(r"^(\d+, \d+).* (\d\.\d\d)$", printed("multiplex.py"), re.MULTILINE)
    assert [row for row, _ in rows] == ["10, 10", "10, 8", "20, 5", "10, 8"]
    equal, near, unlike, _ = (float(gain) for _, gain in rows)
    assert equal > near > 1.38 > unlike > 1.2


def test_a_days_jobs_wait_less_under_a_policy_that_takes_devices(capsys: pytest.CaptureFixture[str]) -> None:
    waited = {}
    for policy in ("in_turn", f"{EXAMPLES / 'policies' / 'tiresias.py'}:Tiresias"):
        assert main(["simulate", str(EXAMPLES / "jobs.py"), "--cluster", "A", "--policy", policy]) == 0
        said = re.search(r"118 jobs took .* h, (.*) h of it waiting", capsys.readouterr().out)
        assert said is not None
        waited[policy] = float(said[1])
    assert waited.pop("in_turn") > 10 > 1 > max(waited.values())


def test_requests_are_served_better_where_they_join_batches(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", str(EXAMPLES / "serving.py"), "--cluster", "v4-80", "--", "--time", "3s", "--splits", "20:20"]
    assert main(words) == 0
    rows = re.findall(r"^20:20 +(\w+) .* ([\d.]+) +(\d+) +(\d+)%$", capsys.readouterr().out, re.MULTILINE)
    assert [row[0] for row in rows] == ["Continuous", "Static"]
    assert float(rows[0][3]) == 100 > float(rows[1][3])


def test_a_days_jobs_are_swept_by_the_same_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", str(EXAMPLES / "jobs.py"), "--cluster", "A", "--policy", "in_turn", "--jobs", "1"]
    assert main([*words, "--seeds", "1,", "--set", "load=0.2,1", "--show", "count"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["0.2", "in_turn", "1", "30"], ["1.0", "in_turn", "1", "118"]
    ]  # fmt: skip
