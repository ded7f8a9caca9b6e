"""The examples in docs/traces.md, in order, as a reader would run them."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from seaway.trace import Trace

from . import traces

TEXT = (Path(__file__).parents[3] / "docs" / "traces.md").read_text(encoding="utf-8")


def test_the_examples_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) >= 5
    monkeypatch.chdir(tmp_path)
    core = traces.shared(gangs=60, hosts=256)
    names = {"session": SimpleNamespace(trace=Trace(core)), "Trace": Trace}
    for block in blocks:
        exec(block, names)
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        "timeline.png", "timeline.svg", "run", "run.html", "window.json",
    }  # fmt: skip


def test_the_page_names_every_method() -> None:
    methods = [name for name in vars(Trace) if not name.startswith("_")]
    inner = {"core", "facts", "machines", "span", "sample"}
    assert [name for name in methods if name not in inner and name not in TEXT] == []
