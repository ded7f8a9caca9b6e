"""The examples in docs/checkpoints.md, in order, as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_examples_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    promised = re.findall(r"print\(.*\)  # (.*)", TEXT)
    assert capsys.readouterr().out.splitlines() == promised
