"""Orbax saves and restores through the door as on Google's own Pathways: hosts write and read their own shards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.bench.frame.door_server import Served, on_cluster, opened

from .jax_programs import await_nothing_held, program
from .program_runs import DEVICES, Ended, output, python

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


def orbax(env: dict[str, str], folder: Path, what: str) -> Ended:
    return python(str(PROGRAM), str(folder), what, env=env)


def test_what_the_local_door_saves_the_cluster_restores_and_the_other_way_round(
    local: dict[str, str], served: Served, folder: Path
) -> None:
    one, other = folder / "local", folder / "cluster"
    assert output(orbax(local, one, "sync")).split("\n")[-2:] == ["restored", ""]
    assert output(orbax(served.door.env, other, "async")).split("\n")[-2:] == ["restored", ""]
    assert output(orbax(local, other, "restore")) == output(orbax(served.door.env, one, "restore")) == "restored\n"
    assert not list(folder.glob("**/.seaway-*"))
    await_nothing_held(served.cluster)


def test_tensorstore_reads_what_was_saved(local: dict[str, str], folder: Path) -> None:
    """Another reader of zarr v2, which knows nothing of us."""
    tensorstore = pytest.importorskip("tensorstore")
    saved = folder / "plain"
    output(orbax(local, saved, "sync"))

    def read(name: str) -> Any:
        kept = {"driver": "file", "path": str(saved / "2" / name)}
        return tensorstore.open({"driver": "zarr", "kvstore": kept}).result().read().result()

    assert (read("w") == 2 * np.arange(96).reshape(8, 12)).all()
    assert read("kinds.bfloat16").dtype.name == read("a/b c.bias").dtype.name == "bfloat16"
    assert (read("scalar"), read("few").tolist()) == (7, [0, 2, 4, 6])


def test_damage_is_named_and_nothing_is_restored(local: dict[str, str], served: Served, folder: Path) -> None:
    saved = folder / "damaged"
    output(orbax(local, saved, "sync"))
    chunk = saved / "1" / "w" / "0.0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\xff")
    for env in (local, served.door.env):
        ended = orbax(env, saved, "restore")
        assert (ended.code, ended.out) == (1, "")
        assert "1: file w/0.0 is not the one that was saved here: another part, or of another save" in ended.err


def test_files_are_only_below_the_door_s_folder_and_the_agents(
    local: dict[str, str], served: Served, folder: Path, tmp_path: Path
) -> None:
    (folder / "link").symlink_to(tmp_path)
    for env in (local, served.door.env):
        ended = orbax(env, folder / "link", "sync")
        assert ended.code == 1
        assert f"it leads to {tmp_path}" in ended.err
        ended = orbax(env, tmp_path / "elsewhere", "sync")
        assert ended.code == 1
        assert "files are written below" in ended.err
        assert "another --persist of the door" in ended.err
    assert not list(tmp_path.glob("**/w*"))
    with opened(DEVICES) as door:
        assert "start it with --persist FOLDER" in orbax(door.env, tmp_path, "sync").err


@pytest.mark.full
def test_a_host_that_is_killed_in_a_save_fails_it_and_the_step_before_is_restored(folder: Path) -> None:
    agents = ["--trust-clients", "--checkpoints", str(folder)]
    with on_cluster(controller=["--lease", "3"], agents=agents, door=["--persist", str(folder)]) as (cluster, door):
        with program(PROGRAM.read_text(), door.env, str(folder / "killed"), "killed") as found:
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
