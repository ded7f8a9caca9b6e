"""What README and the docs show is run: Python, commands, links; and what README says they print is what they print.

`make test JOBS=0 ARGS="tests/test_readme.py --rewrite"` writes what they print now into README; read it then.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from experiments import demo

ROOT = Path(__file__).parent.parent
PATH = ROOT / "README.md"
README = PATH.read_text()
DOCUMENTS = [
    PATH,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "notebooks" / "README.md",
]
SNIPPETS = re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", README, re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()
]

# Of commands that take long, this much is run: other values for the same options, and what makes them quick.
QUICK = {
    "python -m experiments fig5": "--hosts 2,8 --sensitivity no --jobs 1",
    "python -m experiments fig11 --weights 1:2:3 --policy stride --hosts 64": "--gangs 300 --sensitivity no --jobs 1",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def printed(run: Callable[[], object]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run()
    return out.getvalue()


def show(old: str, new: str) -> None:
    """Put it into README."""
    text = PATH.read_text()
    assert text.count(old) == 1
    PATH.write_text(text.replace(old, new))


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_python_in_the_readme_prints_what_it_shows(number: int, rewrite: bool) -> None:
    code, shown = SNIPPETS[number]
    said = printed(partial(exec, code, {"__name__": "__main__"}))
    if rewrite:
        show(f"{code}```\n```text\n{shown}```", f"{code}```\n```text\n{said}```")
    else:
        assert said == shown, "README shows something else: run with --rewrite, and read it"


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path, rewrite: bool) -> None:
    """But for how long it took, and where its files are."""
    said = printed(lambda: demo.main(["--out", str(tmp_path)]))
    table = said[said.index("\n\n") + 2 :].split("\n\n  next")[0]
    table = "\n".join(
        line for line in table.splitlines() if not re.search(r" in [\d.]+ s$|^  (?:wrote|next)", line)
    )
    (shown,) = re.findall(r"```text demo\n(.*?)```", README, re.DOTALL)
    if rewrite:
        show(f"```text demo\n{shown}```", f"```text demo\n{table.rstrip()}\n```")
    else:
        assert table.rstrip() == shown.rstrip(), (
            "README shows something else: run with --rewrite, and read it"
        )


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_in_the_readme_work(command: str, tmp_path: Path) -> None:
    words = shlex.split(f"{command} {QUICK.get(command, '')}")
    assert words[0] == "python"
    if words[1:3] == ["-m", "experiments"] and "--list" not in words:
        words += ["--out", str(tmp_path)]
    done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", [ROOT / "docs" / "simulator.md"], ids=lambda path: path.name)
def test_python_in_the_docs_runs(path: Path) -> None:
    """A document's snippets follow one another."""
    scope: dict[str, object] = {"__name__": "__main__"}
    snippets = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    said = [printed(partial(exec, code, scope)) for code in snippets]
    assert any(said)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text().replace("\n  ", " ")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} points to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_make_targets_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", path.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name} names make {target}"
