"""What the pages show works: Python and commands run, in order, and print what is shown.

`make test JOBS=0 ARGS="tests/docs --rewrite"` writes the current output into the pages. Read it then.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from opentelemetry import trace as opentelemetry
from opentelemetry.util._once import Once

from .pages import Unit, name_of, units
from .reading import read
from .table import ELSEWHERE, FULL, NEEDS

UNITS = [unit for unit in units() if name_of(unit.page) not in ELSEWHERE]


@pytest.mark.parametrize(
    "unit", [pytest.param(u, id=u.name, marks=[pytest.mark.full] if u.name in FULL else []) for u in UNITS]
)
def test_the_examples_of_each_page_run_and_print_what_it_shows(
    unit: Unit, tmp_path: Path, rewrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a page may set one up, which is for its process
    monkeypatch.setattr(opentelemetry, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(opentelemetry, "_TRACER_PROVIDER_SET_ONCE", Once())
    program = NEEDS.get(unit.name)
    if program and shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    read(unit, tmp_path, rewrite)


def test_each_page_tested_elsewhere_is_named_in_that_test() -> None:
    for page, test in ELSEWHERE.items():
        text = (Path(__file__).parents[2] / test).read_text(encoding="utf-8")
        assert f'"{Path(page).name}"' in text


def test_long_units_are_still_there() -> None:
    assert {unit.name for unit in UNITS} >= FULL | set(NEEDS)
