"""Somebody else's event log: whatever it says, nothing that it names is imported or called, and it takes bounded
memory."""

from __future__ import annotations

import functools
import gzip
import os
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backend.server import eventlogs
from core.controller import Config, Controller
from core.model.topology import small
from core.record.eventlog import MAGIC, MOST, LogError, Recorder
from core.schedule.policy import Stride
from tests.seaway.test_policies_installed import install

EVIL = """
open({mark!r}, "w").close()
from core.schedule.policy import Fifo

class Evil(Fifo):
    def __init__(self, command=""):
        open({mark!r}, "w").close()
"""
OPEN = """
import sys
from seaway.cli import main
for command in ("replay", "whatif", "dashboard", "log"):
    for log in sys.argv[1:]:
        print("-", command, log, file=sys.stderr)
        main([command, log])
"""


def written(path: Path, made: Any = Stride, **changes: Any) -> Path:
    """The log of a controller to which nothing happened, with these changes to what it says of itself."""
    cluster = small(2, 2, 1)
    about = eventlogs.about(cluster, Config(), made, 0)
    settings = changes.pop("settings", about.config["settings"])
    about = msgspec.structs.replace(about, config={**about.config, "settings": settings}, **changes)
    path.write_bytes(gzip.compress(Recorder(Controller(cluster, made, Config()), about).log()))
    return path


def test_what_a_log_names_is_neither_imported_nor_called(tmp_path: Path) -> None:
    """Programs, classes of files beside it, and packages that only look installed, by a folder beside it."""
    mark = tmp_path / "it-ran"
    (tmp_path / "evil.py").write_text(EVIL.format(mark=str(mark)))
    install(tmp_path, "evil", {"evil": "Evil", "evil-newest": "Newest"})
    (tmp_path / "evil_policies.py").write_text(EVIL.format(mark=str(mark)))
    logs = [
        written(tmp_path / f"{number}.log", policy=policy, settings={"command": f"touch {mark}"})
        for number, policy in enumerate(
            ["os:system", "evil:Evil", "evil_policies:Evil", "evil", "core.schedule.policy:named", "builtins:exec"]
        )
    ]
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *(log.name for log in logs)],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    said = done.stderr.split("- ")[1:]
    assert len(said) == 4 * len(logs)
    assert not mark.exists()
    for each in said[: 3 * len(logs)]:
        command, *_, text = each.splitlines()
        assert text.startswith(f"seaway: {command.split()[1]}: it was made under policy"), each
        assert "a log may only name Seaway's policies and those of installed packages" in text
    assert "policy os:system" in done.stdout, "`seaway log` shows it, since it makes no policy"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"policy_source": "0"}, "whose source has changed since"),
        (
            {"settings": {"command": "true"}},
            r"do not fit Stride\(lead: .*: got an unexpected keyword argument 'command'",
        ),
        ({"settings": {"lead": "4"}}, r"do not fit Stride\(lead: .*: lead='4'"),
        ({"settings": {"lead": [4]}}, r"its first record describes no controller: .*settings"),
        ({"settings": []}, r"its first record describes no controller: .*settings"),
    ],
)
def test_settings_and_source_are_checked_before_a_policy_is_made(
    changed: Any, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "run.log", **changed)

    @functools.wraps(Stride.__init__)
    def made(self: Stride, **_: Any) -> None:
        pytest.fail("it was called")

    monkeypatch.setattr(Stride, "__init__", made)
    with pytest.raises(LogError, match=error):
        eventlogs.machine_of(eventlogs.read(path).about)


def test_a_policy_of_an_installed_package_is_made_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme", {"acme-broken": "Gone", "acme-needy": "needy", "acme-newest": "Newest"})
    monkeypatch.syspath_prepend(str(tmp_path))
    from acme_policies import Newest  # type: ignore[import-not-found]

    path = written(tmp_path / "run.log", lambda: Newest(depth=3))
    made = eventlogs.machine_of(eventlogs.read(path).about).state.islands[0].scheduler.policy
    assert vars(made) == {"depth": 3}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(LogError, match="a log may only name"):
        eventlogs.machine_of(eventlogs.read(path).about)


# --- bombs ----------------------------------------------------------------------------------------------------------


def bomb(path: Path, first: bytes, each: bytes, times: int) -> Path:
    packed = zlib.compressobj(9, wbits=31)
    with path.open("wb") as file:
        file.write(packed.compress(first))
        for _ in range(times):
            file.write(packed.compress(each))
        file.write(packed.flush())
    return path


ZEROS = bytes(1 << 20)


@pytest.mark.parametrize(
    ("first", "error"), [(b"", "this is not an event log: it starts with"), (MAGIC, "it unpacks to more than")]
)
def test_a_bomb_is_one_error_and_takes_bounded_memory(first: bytes, error: str, tmp_path: Path) -> None:
    path = bomb(tmp_path / "run.log", first, ZEROS, 150)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(LogError, match=error) as caught:
            eventlogs.read(path, partial=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert peak < 2 * (eventlogs.MOST + eventlogs.MOST_TIMES * path.stat().st_size)


def test_a_record_that_announces_more_than_any_event_has_is_refused(tmp_path: Path) -> None:
    path = bomb(tmp_path / "run.log", MAGIC + b"\xff\xff\xff\xff\x7f", bytes(MOST), 1)
    with pytest.raises(LogError, match=r"a record of 34,359,738,367 bytes; no event has more than"):
        eventlogs.read(path)


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for what in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(LogError, match=f"{what} cannot be read: it is no plain file"):
            eventlogs.read(what)
