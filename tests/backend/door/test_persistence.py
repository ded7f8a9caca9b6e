"""Orbax saves and restores through the door as on Google's own Pathways: hosts write and read their own shards."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from experiments.bench.frame.door_server import Served, on_cluster, opened

from .jax_programs import await_nothing_held, program
from .program_runs import DEVICES, Ended, python

PROGRAM = Path(__file__).parent / "orbax_persistence.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[dict[str, str]]:
    with opened(DEVICES, ["--persist", str(folder)]) as door:
        yield door.env


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    agents = ["--trust-clients", "--checkpoints", str(folder)]
    with on_cluster(agents=agents, door=["--persist", str(folder)]) as cluster:
        yield cluster


class Did(NamedTuple):
    """Lines that the program printed: when it restored what was saved through the other door; a damaged step; and when
    it saved behind a link that leads elsewhere, and elsewhere."""

    other: list[str]
    damaged: list[str]
    link: list[str]
    elsewhere: list[str]


class Programs(NamedTuple):
    saved: list[str]  # in one go, through the local door
    saved_there: list[str]  # while it went on, through the cluster's
    local: Did
    cluster: Did


def orbax(env: dict[str, str], *does: tuple[str, Path]) -> tuple[Ended, list[list[str]]]:
    """The program, and the lines that it printed of each thing that it was to do."""
    ended = python(str(PROGRAM), *(str(word) for each in does for word in each), env=env)
    parts = re.split(r"^-- .*\n", ended.out, flags=re.MULTILINE)
    assert len(parts) == 1 + len(does), f"{ended.out}\n{ended.err[-4000:]}"
    return ended, [part.splitlines() for part in parts[1:]]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def programs(local: dict[str, str], served: Served, folder: Path, elsewhere: Path) -> Programs:
    """Each program does several things: to start JAX takes longer."""
    here, there, damaged, link = (folder / name for name in ("local", "cluster", "damaged", "link"))
    link.symlink_to(elsewhere)
    ended, (saved,) = orbax(local, ("sync", here))
    assert ended.code == 0, ended.err[-4000:]
    shutil.copytree(here, damaged)
    chunk = damaged / "1" / "w" / "0.0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\xff")
    wrong = ("restore", damaged), ("sync", link), ("sync", elsewhere / "below")
    _, (saved_there, *ours) = orbax(served.door.env, ("async", there), ("restore", here), *wrong)
    _, theirs = orbax(local, ("restore", there), *wrong)
    return Programs(saved, saved_there, Did(*theirs), Did(*ours))


def test_what_the_local_door_saves_the_cluster_restores_and_the_other_way_round(
    programs: Programs, served: Served, folder: Path
) -> None:
    assert programs.saved[-1] == programs.saved_there[-1] == "restored"
    assert programs.local.other == programs.cluster.other == ["restored"]
    assert not list(folder.glob("**/.seaway-*"))
    await_nothing_held(served.cluster)


def test_tensorstore_reads_what_was_saved(programs: Programs, folder: Path) -> None:
    """Another reader of zarr v2, which knows nothing of us."""
    tensorstore = pytest.importorskip("tensorstore")

    def read(name: str) -> Any:
        kept = {"driver": "file", "path": str(folder / "local" / "2" / name)}
        return tensorstore.open({"driver": "zarr", "kvstore": kept}).result().read().result()

    assert (read("w") == 2 * np.arange(96).reshape(8, 12)).all()
    assert read("kinds.bfloat16").dtype.name == read("a/b c.bias").dtype.name == "bfloat16"
    assert (read("scalar"), read("few").tolist()) == (7, [0, 2, 4, 6])


@pytest.mark.parametrize("where", ["local", "cluster"])
def test_damage_is_named_and_nothing_is_restored(where: str, programs: Programs) -> None:
    (said,) = getattr(programs, where).damaged
    assert said.startswith("failed")
    assert "1: file w/0.0 is not the one that was saved here: another part, or of another save" in said


@pytest.mark.parametrize("where", ["local", "cluster"])
def test_files_are_only_below_the_door_s_folder_and_the_agents(where: str, programs: Programs, elsewhere: Path) -> None:
    did: Did = getattr(programs, where)
    (said,) = did.link
    assert f"it leads to {elsewhere}" in said
    (said,) = did.elsewhere
    assert "files are written below" in said
    assert "another --persist of the door" in said
    assert not list(elsewhere.glob("**/w*"))


def test_a_door_without_a_folder_says_which_option_it_needs(tmp_path: Path) -> None:
    with opened(DEVICES) as door:
        ended, ((said,),) = orbax(door.env, ("sync", tmp_path))
    assert ended.code == 1
    assert "start it with --persist FOLDER" in said


@pytest.mark.full
def test_a_host_that_is_killed_in_a_save_fails_it_and_the_step_before_is_restored(folder: Path) -> None:
    agents = ["--trust-clients", "--checkpoints", str(folder)]
    with on_cluster(controller=["--lease", "3"], agents=agents, door=["--persist", str(folder)]) as (cluster, door):
        with program(PROGRAM.read_text(), door.env, "killed", str(folder / "killed")) as found:
            found.until("saved")
            while not list((folder / "killed").glob("2*/big*/3.1")):  # which is its part
                time.sleep(0.005)
            cluster.agents[1].process.kill()
            assert "DATA_LOSS: [host-lost] host 1" in found.until("failed")
            assert found.until("steps") == "steps ['1']"
            cluster.again(1)
            found.go_on()
            found.until("restored")
            assert found.process.wait(60) == 0
        await_nothing_held(cluster)
