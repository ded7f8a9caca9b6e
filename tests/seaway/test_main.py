"""The command line finds its commands, and says what there is when asked for another."""

import pytest

import seaway
from seaway.__main__ import COMMANDS, main


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{seaway.__version__}\n"


def test_a_command_that_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dmeo"]) == 2
    assert "no command 'dmeo'" in capsys.readouterr().err
