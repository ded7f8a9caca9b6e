"""`--record FOLDER`: each start of a controller has its own event log there, and all of them are read by number."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.auth.access import AccessRefused
from backend.server import controller_cli, eventlogs
from backend.server.eventlogs import chosen_log, logs_in, next_log
from core.model.errors import Impossible
from core.record.eventlog import LogError
from tests.backend.real import real
from tests.backend.test_faults import begun, endless, register, runs

from .test_programs import seaway

NOBODY = 65534
OLD = 2 << 20  # bytes


def filled(folder: Path, sizes: dict[int, int]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, size in sizes.items():
        (folder / f"ev.{number}").write_bytes(bytes(size))
    return folder


# --- a controller that is restarted ---------------------------------------------------------------------------------


async def test_a_controller_that_is_restarted_twice_goes_on_and_each_start_is_replayed(tmp_path: Path) -> None:
    """The first start is killed in the middle of a run, as by a crash. A log of 2 MiB, of before, goes when a newer one
    is there. Client ann goes on in the second start; bob comes in the third, which has no hosts yet."""
    folder = filled(tmp_path / "record", {1: OLD})
    options = ("--record", str(folder), "--record-limit", "1")
    async with asyncio.timeout(120), real(tmp_path, options=options) as found:
        user = found.user("ann")
        program, long = register(user, 3), endless(user)
        for number in (2, 3, 4):
            if number == 4:
                user = found.user("bob")
                program = register(user, 3)
            status = await found.ready()
            assert status["record"] == {"file": str(folder / f"ev.{number}"), "lost": ""}
            assert (1 in logs_in(folder)) == (number == 2)
            await runs(user, program)
            await asyncio.sleep(3 * eventlogs.EVERY)
            if number == 2:
                under_way = await begun(found, user, long)
                found.controller.kill()
                found.start_controller()
                assert (await user.blamed(under_way.run)).code == "restart"
                continue
            await user.stop()
            found.controller.signal(signal.SIGTERM)
            assert await found.controller.ended() == 0
            if number == 3:
                found.start_controller()
    assert sorted(path.name for path in folder.iterdir()) == ["ev.2", "ev.3", "ev.4", "ev.lock"]

    said = seaway("replay", str(folder))
    assert said.startswith(f"{folder / 'ev.4'}: ")
    assert "the same commands, to the byte" in said
    for number, words in ((2, ["--partial"]), (3, [])):
        said = seaway("replay", str(folder), "--start", str(number), *words)
        assert said.startswith(f"{folder / f'ev.{number}'}: ")
        assert "the same commands, to the byte" in said
        one = str(folder / f"ev.{number}")
        assert seaway("log", one, *words) == seaway("log", str(folder), "--start", str(number), *words)
    assert f"{folder / 'ev.4'}: 1 run of 1 client" in seaway("whatif", str(folder))
    refused = seaway("whatif", str(folder), "--start", "3", code=1)
    assert "client 'ann' had opened its session before this log begins" in refused
    assert f"{folder / 'ev.2'} was cut short" in seaway("replay", str(folder), "--start", "2", code=1)
    logs = [eventlogs.read(folder / f"ev.{number}", partial=True) for number in (2, 3, 4)]
    assert [eventlogs.machine_of(each.about).incarnation for each in logs] == [0, 1, 2]


async def test_a_second_controller_on_one_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    async with asyncio.timeout(120), real(tmp_path, options=("--record", str(folder))) as found:
        (tmp_path / "link").symlink_to(folder)
        for named in (folder, tmp_path / "link"):
            second = found.program("second", "controller", "--bind", "127.0.0.1:0", "--record", str(named))
            assert await second.ended() == 2
            assert second.said().splitlines()[-1] == (
                f"seaway controller: --record {named} is in use by process {found.controller.process.pid}: end that "
                "one first, or give this one another folder"
            )
        assert list(logs_in(folder)) == [1]
        assert (await found.status())["record"]["lost"] == ""


# --- how much is kept -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "most", "left"), [
    ({1: 5, 2: 5, 4: 5, 9: 5}, 12, [4, 9]),
    ({1: 5, 2: 5, 4: 5, 9: 5}, 20, [1, 2, 4, 9]),
    ({1: 5, 2: 100, 3: 5}, 12, [3]),  # none that is older than one that goes
    ({1: 5, 2: 100}, 12, [2]),  # the last start stays
    ({1: 5, 2: 100}, 0, [1, 2]),
    ({}, 12, []),
])  # fmt: skip
def test_beyond_the_limit_the_oldest_logs_are_deleted(
    sizes: dict[int, int], most: int, left: list[int], tmp_path: Path
) -> None:
    with next_log(filled(tmp_path, sizes), most) as path:
        assert path == tmp_path / f"ev.{max(sizes, default=0) + 1}"
        assert sorted(logs_in(tmp_path)) == left


def test_what_else_is_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    """Only plain files count, and only numbers that a controller gives. It gives none that something else has."""
    folder = filled(tmp_path / "record", {1: 9, 2: 9})
    others = ["ev.0", "ev.03", "ev.-1", "ev.2.old", "ev.99999999999999999999", "ev.\u0663", "ev.", "notes"]
    for name in others:
        (folder / name).write_text("mine")
    (folder / "ev.3").mkdir()
    (tmp_path / "aim").write_text("mine")
    (folder / "ev.5").symlink_to(tmp_path / "aim")
    (folder / "ev.7").symlink_to("nowhere")
    for number in (4, 6, 8):
        with next_log(folder, 1) as path:
            assert path == folder / f"ev.{number}"
            path.write_bytes(bytes(9))
    assert sorted(logs_in(folder)) == [6, 8], "the last start's log was never the one that is written"
    assert chosen_log(folder, None).name == "ev.8"
    assert {path.read_text() for path in (tmp_path / "aim", *(folder / name for name in others))} == {"mine"}
    assert (folder / "ev.3").is_dir()
    for start in (0, 3, 5, -1, 10**20):
        with pytest.raises(Impossible, match=rf"^--start {start}: {folder} has the starts 6, 8$"):
            chosen_log(folder, start)


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_folder_without_logs_is_refused_and_so_is_the_start_of_a_single_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=rf"^{tmp_path} has no event log: there is no file ev\.1, ev\.2 \.\.\.$"):
        chosen_log(tmp_path, None)
    (log,) = filled(tmp_path / "record", {1: 9}).iterdir()
    assert chosen_log(log, None) == log
    for command in ("log", "replay", "whatif"):
        assert f"--start 1: {log} is no folder of --record" in seaway(command, str(log), "--start", "1", code=1)
        assert "cannot be read: No such file" in seaway(command, str(tmp_path / "none"), code=1)


@contextmanager
def without_room() -> Iterator[None]:
    """No file can grow, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def is_file(path: Path) -> None:
    path.touch()


def is_below_a_file(path: Path) -> None:
    path.parent.touch()


def is_a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def has_a_lock_that_is_a_link(path: Path) -> None:
    path.mkdir()
    (path / "ev.lock").symlink_to(path / "precious")


@pytest.mark.parametrize(("prepare", "why"), [
    (is_file, "it is no folder"),
    (is_below_a_file, "Not a directory"),
    (is_a_link_to_nothing, "it is no folder"),
    (has_a_lock_that_is_a_link, "Too many levels of symbolic links"),
])  # fmt: skip
def test_a_folder_that_cannot_be_used_is_one_error_before_any_work(
    prepare: Callable[[Path], None], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deep" / "record" if prepare is is_below_a_file else tmp_path / "record"
    prepare(folder)
    assert controller_cli.main(["--record", str(folder), "--state", str(tmp_path / "state")]) == 2
    assert capsys.readouterr().err == f"seaway controller: --record {folder}: {why}\n"
    assert not (tmp_path / "state" / "controller.json").exists(), "the start counts as none"


def test_a_full_disk_is_one_error_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is said when it becomes full later: see test_eventlogs.py."""
    with without_room():
        assert controller_cli.main(["--record", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"seaway controller: --record {tmp_path}: File too large\n"


def test_a_folder_in_which_this_user_may_not_write_is_refused() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        for why in ("Permission denied", "no file can be made there"):
            os.seteuid(NOBODY if root else os.geteuid())
            try:
                with (
                    pytest.raises((AccessRefused, Impossible), match=f"^--record {re.escape(made)}: {why}$"),
                    next_log(folder),
                ):
                    pass
            finally:
                os.seteuid(0 if root else os.geteuid())
            folder.chmod(0o755)
            (folder / "ev.lock").touch()
            (folder / "ev.lock").chmod(0o666)
            folder.chmod(0o555)
        folder.chmod(0o755)


def test_a_limit_below_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert controller_cli.main(["--record-limit", "-1"]) == 2
    assert "--record-limit -1: mebibytes, or 0 for no limit" in capsys.readouterr().err
