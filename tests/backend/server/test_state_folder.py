"""The store of clients' code is bounded: the oldest code is dropped, except code that is in use."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.auth.access import AccessRefused
from backend.contents.code_blobs import Blobs, hash_of
from backend.server.cluster_status import status_of
from backend.server.controller_cli import main, mebibytes, options
from backend.server.state_folder import CodeFolder, HeldFolder, known_file, remembered
from core.model.errors import Impossible
from core.model.program import Program
from core.protocol import effects as e
from seaway.cli.status import table
from tests.backend import real
from tests.backend.cluster import chain, cluster

from .test_record_folders import without_room

CODES = [bytes([number]) * 100 for number in range(6)]
NAMES = [hash_of(code) for code in CODES]
HOUR = 3600.0
PATIENCE = 120.0


def aged(folder: Path, name: str, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(folder / name, (at, at))


def filled(folder: Path, in_use: tuple[str, ...] = (), count: int = 5) -> CodeFolder:
    """A store whose first code is the oldest."""
    found = CodeFolder(folder, 350, lambda: in_use)
    for number in range(count):
        found.keep(NAMES[number], CODES[number])
        aged(folder, NAMES[number], HOUR * (10 - number))
    return found


def stored(folder: Path) -> list[int]:
    return [number for number, name in enumerate(NAMES) if (folder / name).exists()]


def test_the_oldest_code_is_dropped_first(tmp_path: Path) -> None:
    kept = filled(tmp_path)
    assert stored(tmp_path) == [2, 3, 4]
    assert kept.find(NAMES[0]) is None
    assert kept.find(NAMES[4]) == CODES[4]


def test_code_in_use_stays_however_old_it_is(tmp_path: Path) -> None:
    filled(tmp_path, in_use=(NAMES[0],))
    assert stored(tmp_path) == [0, 3, 4]


def test_code_that_is_uploaded_again_counts_as_new(tmp_path: Path) -> None:
    kept = filled(tmp_path, count=3)
    kept.keep(NAMES[0], CODES[0])
    kept.keep(NAMES[3], CODES[3])
    assert stored(tmp_path) == [0, 2, 3]


def test_recent_code_stays_even_if_the_store_is_too_large(tmp_path: Path) -> None:
    kept = CodeFolder(tmp_path, 100)
    for name, code in zip(NAMES, CODES, strict=True):
        kept.keep(name, code)
    assert stored(tmp_path) == list(range(6))  # a message that names it may be on its way


def test_a_restart_counts_the_stored_code_and_removes_unfinished_files(tmp_path: Path) -> None:
    filled(tmp_path, count=3)
    (tmp_path / "tmpabc").write_bytes(b"half")
    aged(tmp_path, "tmpabc", HOUR)
    CodeFolder(tmp_path, 350).keep(NAMES[3], CODES[3])
    assert stored(tmp_path) == [1, 2, 3]
    assert not (tmp_path / "tmpabc").exists()


def test_a_store_in_memory_has_the_same_bounds_and_refuses_code_that_is_too_large() -> None:
    used: list[str] = []
    blobs = Blobs(250, lambda: used, lately=0)
    for code in CODES[:3]:
        blobs.keep(code)
    assert [blobs.find(name) is not None for name in NAMES[:3]] == [False, True, True]
    assert blobs.nbytes == 200
    used += NAMES
    with pytest.raises(ValueError, match="100 bytes of code do not fit: 200 of 250 are taken"):
        blobs.keep(CODES[3])


def test_a_host_that_does_not_know_which_code_is_in_use_drops_nothing() -> None:
    blobs = Blobs(250)
    blobs.keep(CODES[0])
    blobs.keep(CODES[1])
    with pytest.raises(ValueError, match="do not fit"):
        blobs.keep(CODES[2])
    assert len(blobs) == 2


async def test_code_of_registered_programs_is_in_use(tmp_path: Path) -> None:
    import msgspec

    def program(code: str) -> Program:
        made = chain(1, 2)
        return msgspec.structs.replace(made, computations=(msgspec.structs.replace(made.computations[0], code=code),))

    async with cluster(tmp_path, agents=False) as found:
        user = found.user()
        user.call(lambda client, now: client.register(program("a" * 64), now))
        gone = user.call(lambda client, now: client.register(program("b" * 64), now))
        user.call(lambda client, now: client.unregister(gone, now))
        user.call(lambda client, now: client.register(program("c" * 64), now))
        async with asyncio.timeout(20):
            while "c" * 64 not in found.server._code_in_use():
                await asyncio.sleep(0.01)
        assert found.server._code_in_use() == {"a" * 64, "c" * 64}


def test_limits_are_in_mebibytes() -> None:
    chosen = options().parse_args(["--trace-limit", "3", "--code-limit", "-1"])
    assert mebibytes(chosen, "trace_limit") == 3 << 20
    with pytest.raises(Impossible, match="--code-limit -1: mebibytes, or 0 for no limit"):
        mebibytes(chosen, "code_limit")


# --- a disk that is full ------------------------------------------------------------------------------------------

RESTS = (e.SuspendedSlices(1, rests=True),)


@pytest.mark.parametrize("name", ["suspended", "hosts"])
def test_what_would_mislead_a_later_start_is_removed_when_it_cannot_be_written_anew(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = (RESTS, ()) if name == "suspended" else (((0, 1),), ((0, 2),))
    file = known_file(tmp_path, name)
    file.write(old)
    assert known_file(tmp_path, name).read() == old
    with without_room():
        file.write(new)
        file.write_again()
    assert not list(tmp_path.iterdir())
    assert known_file(tmp_path, name).read() == ()
    assert "File too large" in file.wrong
    file.write_again()
    assert file.wrong == ""
    assert known_file(tmp_path, name).read() == new
    said = [(record.levelname, record.message.split(":")[0]) for record in caplog.records]
    assert [level for level, _ in said] == ["ERROR", "WARNING"], "once each"
    assert said[0][1].startswith("a later start will not know")


def test_of_agents_it_is_better_to_know_the_old_ones_than_none(tmp_path: Path) -> None:
    file = known_file(tmp_path, "agents")
    file.write({})
    with without_room():
        file.write({})
    assert (tmp_path / "agents.json").exists()


def test_a_file_that_can_be_neither_written_nor_removed_is_to_be_removed_by_hand(tmp_path: Path) -> None:
    (tmp_path / "suspended.json").mkdir()
    file = known_file(tmp_path, "suspended")
    file.write(RESTS)
    assert "which is out of date: remove it before the next start" in file.wrong


async def test_the_status_says_what_a_later_start_will_not_know_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.server.server.AGAIN", 0.1)
    async with cluster(tmp_path, agents=False, kept=tmp_path) as found:
        with without_room():
            found.server.operating.keep(e.SuspensionsChanged(RESTS))
        assert "NOT KEPT: a later start will not know what is suspended: " in table(status_of(found.server))
        async with asyncio.timeout(20):
            while status_of(found.server)["unkept"]:
                await asyncio.sleep(0.01)
        assert known_file(tmp_path, "suspended").read() == RESTS


async def test_a_later_start_knows_which_hosts_have_ever_joined(tmp_path: Path) -> None:
    async with cluster(tmp_path, hosts=2, kept=tmp_path):
        assert known_file(tmp_path, "hosts").read() == ((0, 2),)
    async with cluster(tmp_path, hosts=2, islands=2, agents=False, kept=tmp_path, incarnation=1) as found:
        awaited = [found.server.controller.recovery.awaited(each) for each in found.server.cluster.islands]
        assert awaited == [((0, 2),), ()]


# --- the lock of the folder ---------------------------------------------------------------------------------------


def test_a_folder_belongs_to_one_controller_at_a_time_and_is_free_when_that_is_killed(tmp_path: Path) -> None:
    """Whatever the addresses: the second controller is refused at once, and does not change the first one's state."""
    state, programs = tmp_path / "state", list[real.Program]()

    def start(bind: str) -> real.Program:
        log = tmp_path / f"{len(programs)}.log"
        found = real.Program(log, "controller", "--bind", bind, "--state", str(state), "--hosts", "1")
        programs.append(found)
        return found

    try:
        first = start("127.0.0.1:0")
        address = first.line().split()[2].rstrip(":")
        kept = (state / "controller.json").read_bytes()
        for bind in ("127.0.0.1:0", address):
            assert start(bind).process.wait(PATIENCE) == 2
            (line,) = programs[-1].said().splitlines()
            assert line == (
                f"seaway controller: --state {state} is in use by process {first.process.pid}: end that one first, or "
                f"give this one another folder"
            )
        assert (state / "controller.json").read_bytes() == kept
        first.signal(signal.SIGSTOP)  # a stopped process keeps the lock, too
        assert start("127.0.0.1:0").process.wait(PATIENCE) == 2
        first.kill()
        assert start(address).line().startswith(f"controller at {address}")
    finally:
        for each in programs:
            each.end()


def test_children_of_a_dead_process_do_not_keep_its_folder(tmp_path: Path) -> None:
    with HeldFolder(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
        with pytest.raises(AccessRefused, match=f"is in use by process {os.getpid()}"):
            HeldFolder(tmp_path)
    try:
        with HeldFolder(tmp_path):
            assert child.poll() is None
    finally:
        child.communicate()


def test_damaged_code_is_not_there_until_it_is_left_again(tmp_path: Path) -> None:
    kept = filled(tmp_path, count=2)
    for spoilt in (CODES[0][:-1], b"", bytes([9]) + CODES[0][1:]):
        (tmp_path / NAMES[0]).write_bytes(spoilt)
        assert kept.find(NAMES[0]) is None
        (tmp_path / NAMES[0]).write_bytes(spoilt)
        kept.keep(NAMES[0], CODES[0])
        assert kept.find(NAMES[0]) == CODES[0]


@pytest.mark.parametrize("spoil", [
    lambda text: b"", lambda text: text[:-20], lambda text: b"[]", lambda text: b"{}", lambda text: b"\xff" + text,
    lambda text: text.replace(b'"starts":0', b'"starts":7'), lambda text: text.replace(b'"starts":0', b'"starts":"0"'),
    lambda text: b"%bg%b" % (text[:30], text[31:]),  # no hexadecimal digit
    lambda text: b"%b%x%b" % (text[:30], int(text[30:31], 16) ^ 1, text[31:]),  # a wrong one
])  # fmt: skip
def test_a_damaged_file_of_a_controller_is_refused_by_name(
    tmp_path: Path, spoil: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    remembered(tmp_path)
    file = tmp_path / "controller.json"
    spoilt = spoil(file.read_bytes())
    assert spoilt != file.read_bytes()
    file.write_bytes(spoilt)
    assert main(["--state", str(tmp_path), "--bind", "127.0.0.1:0"]) == 2
    assert capsys.readouterr().err == (
        f"seaway controller: --state {tmp_path}: {file} is damaged. Put back a copy of that file, if there is one of "
        "this controller's last start; or add --forget, once: the cluster then starts anew, and clients lose what they "
        "hold\n"
    )
    assert file.read_bytes() == spoilt


def test_a_file_of_an_earlier_version_which_has_no_sum_is_read(tmp_path: Path) -> None:
    (tmp_path / "controller.json").write_text(json.dumps({"starts": 4, "secret": "ab" * 32}), encoding="utf-8")
    assert remembered(tmp_path)[:2] == (5, b"\xab" * 32)
    assert remembered(tmp_path)[:2] == (6, b"\xab" * 32)
    assert (tmp_path / "controller.json").stat().st_mode & 0o077 == 0


def test_an_invalid_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AccessRefused, match=f"--state {tmp_path / 'file'}: it is no folder"):
        HeldFolder(tmp_path / "file")
