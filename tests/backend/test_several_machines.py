"""Agents with CPU devices on machines of their own: they compute together, and notice wires that die without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from backend.admin.children import environment
from tests.machines import Machines, why_not

from .real import PATIENCE

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
LEASE = 3
AGENTS = ("a", "b")


class Site:
    """A controller on `head` and an agent on each other machine, as docs/deployment.md starts them."""

    def __init__(self, machines: Machines, folder: Path) -> None:
        self.machines, self._folder = machines, folder
        self._all: list[subprocess.Popen[bytes]] = []
        (folder / "token").write_text("ab" * 32)
        self.address = f"{machines.addresses['head']}:29000"
        shape = ("--hosts", "2", "--devices-per-host", "2", "--lease", str(LEASE))
        self._start("head", "controller", "--bind", "0.0.0.0:29000", "--state", "state", *shape)
        self.agents = {
            name: self._start(
                name, "agent", "--controller", "head:29000", "--bind", f"{machines.addresses[name]}:29001",
                "--platform", "cpu", "--devices", "2", "--rank", str(rank), "--trust-clients",
            )
            for rank, name in enumerate(AGENTS)
        }  # fmt: skip
        self.token = str(folder / "token")

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        line = self.machines.words(name, sys.executable, "-m", "seaway", *words, "--token-file", "token")
        with (self._folder / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(
                line, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment({"PYTHONWARNINGS": "ignore"}), start_new_session=True,
            )  # fmt: skip
        self._all.append(started)
        return started

    def stop(self) -> None:
        for each in reversed(self._all):
            each.kill()
            each.wait(PATIENCE)

    def connect(self) -> Any:
        return sw.connect(f"grpc://{self.address}", token_file=self.token, patience=f"{PATIENCE}s")

    def status(self, *options: str) -> str:
        words = (sys.executable, "-m", "seaway", "status", self.address, "--token-file", self.token, *options)
        return subprocess.check_output(words, text=True, env=environment({}))

    def island(self) -> dict[str, Any]:
        (found,) = json.loads(self.status("--json"))["islands"]
        return found  # type: ignore[no-any-return]

    def threads(self) -> list[int]:
        return [len(os.listdir(f"/proc/{agent.pid}/task")) for agent in self.agents.values()]

    def gloo_ports(self) -> set[int]:
        """The ports of all connections between the agents but those of their own link."""
        ends = [
            f"{int.from_bytes(bytes(map(int, self.machines.addresses[name].split('.'))), sys.byteorder):08X}"
            for name in AGENTS
        ]
        found = set()
        for line in Path(f"/proc/{self.agents['a'].pid}/net/tcp").read_text().splitlines()[1:]:
            ((here, at), (there, to)) = (word.split(":") for word in line.split()[1:3])
            ports = {int(at, 16), int(to, 16)}
            if sorted((here, there)) == sorted(ends) and 29001 not in ports:
                found |= ports
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Machines(["head", *AGENTS]) as machines:
        found = Site(machines, tmp_path_factory.mktemp("site"))
        try:
            yield found
        finally:
            found.stop()


def total() -> Callable[[], float]:
    """A sum over all devices of both hosts."""
    import jax.numpy as jnp

    rows = sw.slice(mesh={"d": 4})
    split = rows.sharding("d")
    step = sw.jit(lambda x: jnp.sum(x) + 0 * x, devices=rows, in_shardings=split, out_shardings=split)
    return lambda: float(np.asarray(step(np.arange(8.0)))[0])


def test_hosts_whose_names_are_loopback_compute_together(site: Site) -> None:
    with site.connect():
        assert total()() == 28


def test_collectives_whose_wires_are_cut_silently_end_within_the_lease_and_go_on(site: Site) -> None:
    with site.connect():
        sum_up = total()
        assert sum_up() == 28
        for port in site.gloo_ports():
            site.machines.cut("a", "b", port)
            site.machines.cut("b", "a", port)
        began = time.monotonic()
        with pytest.raises(
            sw.errors.RunError, match=r"\[world\] the connections between hosts 0-1 of island 'i0' broke"
        ):
            sum_up()
        assert time.monotonic() - began < 5 * LEASE, "after a collective's own bound of 20 s, and not the lease"
        assert sum_up() == 28, "the next world has wires of its own"
        site.machines.mend()


@pytest.mark.full
def test_hosts_that_stay_apart_are_named_and_leave_no_worlds_behind(site: Site) -> None:
    """One of them waits for the other to connect, for which Gloo has no bound."""
    with site.connect():
        sum_up = total()
        assert sum_up() == 28
        before = site.threads()
        assert site.island()["broken"] is None
        site.machines.cut("a", "b")
        errors = []
        for _ in range(4):
            with pytest.raises(sw.errors.RunError) as raised:
                sum_up()
            errors.append(str(raised.value))
        assert "epochs in a row broke" not in errors[0]
        assert "4 epochs in a row broke" in errors[-1]
        assert "Each host must reach the others directly" in errors[-1]
        assert "host 1: " in site.island()["broken"]["reason"]
        assert "island 'i0' breaks again and again, for " in site.status()
        site.machines.mend()
        assert sum_up() == 28
        assert site.island()["broken"] is None
        deadline = time.monotonic() + PATIENCE
        while not all(now < then + 100 for now, then in zip(site.threads(), before, strict=True)):
            assert time.monotonic() < deadline, (site.threads(), before)
            time.sleep(0.5)
