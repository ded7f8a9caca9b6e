"""The command line of the benchmarks: which options belong to which benchmark, and how a wrong one is refused."""

from __future__ import annotations

import pytest

from experiments.bench import __main__ as bench
from experiments.bench.frame import options


def test_an_unknown_benchmark_is_refused_with_the_names_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["ordr"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("no benchmark 'ordr'; there are: real")
    assert not said.out


def test_an_option_belongs_to_one_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["order", "real", "--gangs", "4"]) == 2
    assert capsys.readouterr().err.startswith("--gangs: name one benchmark to use its options")
    assert bench.main(["--gangs", "4"]) == 2


@pytest.mark.parametrize("name", bench.BENCHES)
def test_each_benchmark_has_help_and_refuses_unknown_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.module(name).main(["--help"])
    assert ended.value.code == 0
    assert f"python -m experiments.bench {name}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        bench.module(name).main(["--ful"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --ful" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("order", ["--gangs", "3"], "argument --gangs: 3 is too few: at least 4"),
        ("prediction", ["--cases", "two"], "argument --cases: 'two' is not a whole number"),
        ("prediction", ["--spell", "0"], "argument --spell: 0 s: more than 0"),
        ("prediction", ["--bound", "soon"], "argument --bound: 'soon' is no number of seconds"),
        ("transfers", ["--hops", "3"], "--hops 3: an array that comes back has made an even number of hops"),
        ("door", ["--devices", "0"], "argument --devices: 0 is too few: at least 1"),
        ("real", ["--devices", "-1"], "argument --devices"),
        ("prediction", ["--platform", "gpu"], "argument --platform: invalid choice: 'gpu'"),
        ("prediction", ["--cases", "0"], "argument --cases: 0 is too few: at least 1"),
    ],
)
def test_a_bad_value_is_one_clear_error(
    name: str, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.module(name).main(words)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_numbers_have_a_default() -> None:
    parser = options.parser("x", "X.")
    parser.numbers("--hosts", (1, 2), "numbers of hosts")
    parser.number("--calls", 3, "calls")
    assert [parser.parse_args(words).hosts for words in ([], ["--hosts", "7", "8"])] == [(1, 2), [7, 8]]
    assert parser.parse_args(["--calls", "5"]).calls == 5
    assert "numbers of hosts (1 2)" in parser.format_help()
