"""`python -m seaway simulate program.py`: the user's own file, as one client or many. And what all commands share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seaway.cli import COMMANDS, main

PROGRAM = """
import sys
import numpy as np
import seaway as sw

step = sw.synthetic("step", devices=sw.slice(devices=8, name="all"), duration="5ms")

if __name__ == "__main__":
    x = np.float32(0)
    for _ in range(int(sys.argv[1]) if sys.argv[1:] else 3):
        x = step(x)
    x.block_until_ready()
    print("done", __file__ == sys.argv[0], sw.now() > 0)
"""


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Restore `sys.modules`, `sys.argv` and `sys.path`, which the command changes."""
    main_module, argv, path = sys.modules["__main__"], sys.argv, list(sys.path)
    yield
    sys.modules["__main__"], sys.argv, sys.path[:] = main_module, argv, path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "work.py"
    path.write_text(PROGRAM)
    return path


def simulate(program: Path, *options: str) -> int:
    return main(["simulate", str(program), "--cluster", "B", "--hosts", "1", *options])


def test_a_program_runs_as_main_and_a_report_follows(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(program) == 0
    said, errors = capsys.readouterr()
    assert errors == ""
    assert said.startswith("done True True\n")
    assert "simulated cluster" in said
    assert "profile paper (fitted)" in said
    assert "3 runs, 3 gangs" in said


def test_the_programs_own_arguments_follow_two_dashes(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(program, "--", "5") == 0
    assert "5 gangs" in capsys.readouterr().out


def test_copies_are_clients(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(program, "--clients", "3") == 0
    said = capsys.readouterr().out
    assert said.count("done") == 3
    assert [f"work-{n}" in said for n in range(3)] == [True] * 3


def test_weights_set_the_number_of_clients(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(program, "--policy", "stride:1,2,4,8") == 0
    said = capsys.readouterr().out
    assert said.count("done") == 4
    assert "53.3%" in said


@pytest.mark.parametrize("policy", ["mine_cli:Mine", "mine_cli.py:Mine", "FOLDER/mine_cli.py:Mine"])
def test_a_users_own_policy_can_be_given(
    policy: str, program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program.parent / "mine_cli.py").write_text(
        "import seaway as sw\n\n\nclass Mine(sw.policies.Policy):\n    def pick(self, ready, now):\n"
        "        print('asked')\n        return ready.best()\n"
    )
    monkeypatch.chdir(program.parent)
    monkeypatch.delitem(sys.modules, "mine_cli", raising=False)
    assert simulate(program, "--policy", policy.replace("FOLDER", str(program.parent)), "--clients", "2") == 0
    said = capsys.readouterr().out
    assert said.count("done") == 2
    assert "asked\n" in said, "the policy decides"


def test_a_policy_that_fails_is_reported(program: Path) -> None:
    mine = program.parent / "mine.py"
    mine.write_text(
        "import seaway as sw\n\n\nclass Mine(sw.policies.Policy):\n    def pick(self, ready, now):\n        1 / 0\n"
    )
    with pytest.warns(RuntimeWarning, match="policy Mine was replaced by fifo: on island 'b' it raised ZeroDivisionE"):
        assert simulate(program, "--policy", f"{mine}:Mine") == 0


@pytest.mark.parametrize(
    ("text", "code"), [("import seaway as sw\nwith sw.simulate('B', hosts=1) as s: pass\n", 0), ("", 0), ("x = y", 1)]
)
def test_a_program_that_runs_nothing_in_the_session_is_told_so(
    text: str, code: int, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text(text)
    assert simulate(program, "--quiet") == code
    said = capsys.readouterr().err
    asked = "seaway: no gangs ran in this session; does the program open a session of its own?\n"
    assert said == asked if code == 0 else asked not in said


def test_the_trace_can_be_kept(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from seaway.trace import Trace

    kept = [tmp_path / "trace", tmp_path / "plot.svg", tmp_path / "perfetto.json"]
    assert simulate(program, "--save", str(kept[0]), "--plot", str(kept[1]), "--perfetto", str(kept[2])) == 0
    assert all(path.exists() for path in kept)
    assert len(Trace.load(kept[0]).gangs()) == 3
    assert "wrote 3 files" in capsys.readouterr().out


def test_an_exception_of_the_program_is_shown_as_its_own(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.write_text("def inner():\n    raise KeyError('mine')\n\ninner()\n")
    assert simulate(program) == 1
    said = capsys.readouterr().err
    assert "KeyError: 'mine'" in said
    assert said.splitlines()[1].endswith('work.py", line 4, in <module>')


def test_the_exit_code_is_the_programs(program: Path) -> None:
    program.write_text("raise SystemExit(7)")
    assert simulate(program, "--quiet") == 7
    program.write_text("raise SystemExit")
    assert simulate(program, "--quiet") == 0


def test_partial_results_survive_an_interrupt(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.write_text(PROGRAM + "    raise KeyboardInterrupt\n")
    assert simulate(program) == 130
    assert "interrupted" in (said := capsys.readouterr().out)
    assert "3 gangs" in said


def test_stand_ins_and_costs_can_be_given_as_options(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.write_text(PROGRAM + "    print(float(x))\n")
    assert simulate(program, "--value", "step=2.5", "--quiet") == 0
    assert capsys.readouterr().out.endswith("2.5\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "stride:1,x"], "weights, whole numbers like stride:1,2,4"),
        (["--policy", "stride:1,2,lead=3"], "or the policy's options, like stride:lead=3"),
        (["--policy", "stride:1,2", "--clients", "3"], "leave --clients out"),
        (["--policy", "stride:0,1"], "at least 1"),
        (["--clients", "0"], "from 1"),
        (["--profile", "papr"], "paper"),
        (["--noise", "latency"], "NAME=VALUE"),
        (["--costs", "cheap"], "costs='cheap'"),
    ],
)
def test_invalid_options_are_refused(
    program: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(program, *options) == 1
    assert said in capsys.readouterr().err


def test_a_missing_program_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.py").touch()
    assert main(["simulate", str(tmp_path / "work.py")]) == 1
    assert "there is other.py" in capsys.readouterr().err


def test_the_command_runs_as_a_module(program: Path) -> None:
    command = [sys.executable, "-m", "seaway", "simulate", str(program), "--cluster", "B", "--hosts", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "3 gangs" in done.stdout
    assert not done.stderr


# --- all commands ---------------------------------------------------------------------------------------------------

IMPORTS = """
import sys
from seaway.cli import main

heavy = {"core.controller", "sim", "simpy", "jax", "seaway.trace"}
for command in ("status", "agent", "controller"):
    try:
        main([command, "--help"])
    except SystemExit:
        print(command, *sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


def test_a_command_imports_only_what_it_needs() -> None:
    """A host that starts need not wait for the simulator."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["status", "agent", "controller core.controller"]


def test_help_and_a_misspelt_command_list_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["nothing"], []):
        with pytest.raises(SystemExit):
            main(words)
    said = capsys.readouterr()
    assert all(f"    {name}" in said.out and f"'{name}'" in said.err for name in COMMANDS)
    assert "the following arguments are required: COMMAND" in said.err


@pytest.mark.parametrize(("words", "said"), [
    (["up", "--tokn-file", "x"], "unrecognized arguments: --tokn-file x (did you mean '--token-file'?)"),
    (["status", "head:29000", "more"], "unrecognized arguments: more"),
])  # fmt: skip
def test_an_unknown_option_shows_the_usage_of_its_command(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    text = capsys.readouterr().err
    assert text.startswith(f"usage: seaway {words[0]} [-h]")
    assert text.endswith(f"seaway {words[0]}: error: {said}\n")
