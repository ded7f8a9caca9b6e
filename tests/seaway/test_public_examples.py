"""`help` of each public name says what it does, and shows an example. The examples run here, in the simulator."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import seaway as sw

NAMES = [name for name in sw.__all__ if name != "__version__"]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
REAL = re.compile(r"\bsw\.(local|connect)\(.*?\):")  # sessions on devices; here they are simulated
SIMULATED = 'sw.simulate("B", hosts=2, values="compute"):'


def docstring(name: str) -> str:
    found = sw if name == "seaway" else getattr(sw, name)
    return str(found.__doc__)


@pytest.mark.parametrize("name", ["seaway", *NAMES])
def test_the_example_of_a_public_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = REAL.sub(SIMULATED, docstring(name))
    example = doctest.DocTestParser().get_doctest(text, {"sw": sw, "np": np}, name, None, None)
    assert example.examples, f"help(sw.{name}) shows no example"
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(example, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_uses_that_name(name: str) -> None:
    shown = "".join(example.source for example in doctest.DocTestParser().get_examples(docstring(name)))
    made_by = {"Array": "put|double", "Run": r"\.run", "Session": "simulate", "Slice": "slice", "ElasticSlice": "slice"}
    assert re.search(made_by.get(name, rf"\bsw\.{name}\b|@sw\.{name}"), shown) or name == "trace"


def test_classes_and_functions_of_public_modules_have_docstrings() -> None:
    for module in (getattr(sw, name) for name in NAMES if isinstance(getattr(sw, name), ModuleType)):
        for name in module.__all__:
            found: Any = getattr(module, name)
            if isinstance(found, type) or callable(found):
                assert found.__doc__, f"{module.__name__}.{name} has no docstring"
