"""The demo: it prints what it simulated, and writes its picture."""

import re
from pathlib import Path

import pytest

from experiments import demo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    """Everything that a short demo prints."""
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(map(str, words))))
        assert demo.main(["--seconds", "12", "--out", str(folder / "new")]) == 0
    return "\n".join(lines)


def test_each_client_gets_its_share(said: str) -> None:
    for name, weight in demo.WEIGHTS.items():
        found = re.search(rf"{name} +{weight} +([\d.]+)% +([\d.]+)% ", said)
        assert found is not None, f"no line for {name}"
        asked, got = map(float, found.groups())
        assert asked == pytest.approx(100 * weight / 15, abs=0.06)
        assert got == pytest.approx(asked, abs=1.5), f"{name} did not get its share in 12 s"


def test_the_demo_prints_how_busy_the_devices_are_and_the_source_of_the_costs(said: str) -> None:
    busy, overhead = (
        float(re.search(rf"{what} +([\d.]+)% ", said)[1])  # type: ignore[index]
        for what in ("devices compute", "host overhead")
    )
    assert busy + overhead == pytest.approx(100, abs=0.11)
    assert 95 < busy <= 100, "a computation is a little longer than the controller's work for it"
    assert "profile 'paper', fitted" in said


def test_the_demo_writes_a_picture_and_says_where(said: str, folder: Path) -> None:
    png, svg = folder / "new" / "shares.png", folder / "new" / "shares.svg"
    assert f"wrote {png}" in said
    assert f"wrote {svg}" in said
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().rstrip().endswith("</svg>")
