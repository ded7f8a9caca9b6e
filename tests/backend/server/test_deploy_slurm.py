"""docs/deploy/slurm.sh, on three machines whose own names stand for 127.0.1.1, with a stand-in for Slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.admin.children import environment
from backend.agent import agent_cli
from backend.server import controller_cli
from tests.backend.real import PATIENCE
from tests.machines import Machines, why_not

SCRIPT = Path(__file__).parents[3] / "docs" / "deploy" / "slurm.sh"
NODES = ("head", "a", "b")
SRUN = """#!{python}
import json, os, signal, subprocess, sys

words, options = sys.argv[1:], dict()
while words[0].startswith("--"):
    name, _, options[name] = words.pop(0).partition("=")
    if not options[name]:
        del options[name]
nodes = json.loads({nodes!r})
running = []
for number, node in enumerate([options["--nodelist"]] if "--nodelist" in options else nodes):
    path = options["--output"].replace("%t", str(number))
    with open(path, "wb") as log:
        env = dict(os.environ, SLURM_PROCID=str(number))
        running.append(subprocess.Popen([*nodes[node], *words], env=env, stdout=log, stderr=log))
    with open(path + ".pid", "w") as file:
        file.write(str(running[-1].pid))
signal.signal(signal.SIGTERM, lambda *_: [each.terminate() for each in running])
sys.exit(max(abs(each.wait()) for each in running))
"""


def test_the_script_uses_options_that_our_programs_have() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    for program, options in (("controller", controller_cli.options()), ("agent", agent_cli.options())):
        known = {option for action in options._actions for option in action.option_strings}
        used = re.search(rf"seaway {program} ((?:\\\n|[^&\n])*)", text)
        assert used
        flags = set(re.findall(r"--[a-z-]+", used[1]))
        assert len(flags) > 3
        assert flags <= known


def test_shellcheck_finds_nothing_wrong_with_the_script() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run(["shellcheck", str(SCRIPT)], check=True)


class Job:
    def __init__(self, machines: Machines, folder: Path) -> None:
        self.folder, self._machines = folder / "seaway-7", machines
        programs = {
            "srun": SRUN.format(
                python=sys.executable, nodes=json.dumps({name: machines.words(name) for name in NODES})
            ),
            "scontrol": f"#!/bin/sh\nprintf '%s\\n' {' '.join(NODES)}\n",
            "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        }
        (folder / "bin").mkdir()
        for name, text in programs.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "it", "SLURM_SUBMIT_DIR": str(folder), "HOME": str(folder)}
        own = {"SEAWAY_PLATFORM": "timed", "SEAWAY_DEVICES_PER_HOST": "1"}
        path = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        with (folder / "job.log").open("wb") as log:
            self.script = subprocess.Popen(
                machines.words("head", "bash", str(SCRIPT)), env=environment(slurm | own | path), cwd=folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def hosts(self) -> str:
        """How many are there, of how many; "" while no controller answers."""
        words = (sys.executable, "-m", "seaway", "status", f"{self._machines.addresses['head']}:29000")
        ran = subprocess.run(
            [*words, "--token-file", str(self.folder / "token")], env=environment({}), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        found = re.search(r"\d/\d", ran.stdout)
        return found[0] if found else ""

    def kill(self, who: str) -> None:
        os.kill(int((self.folder / f"{who}.log.pid").read_text()), signal.SIGKILL)

    def until(self, true: Callable[[], bool]) -> None:
        last = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < last, [path.read_text() for path in self.folder.glob("*.log")]
            assert self.script.poll() is None, (self.folder.parent / "job.log").read_text()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    if why_not():
        pytest.skip(why_not())
    with Machines(NODES) as machines:  # which end what is left on them
        made = Job(machines, tmp_path)
        try:
            yield made
        finally:
            made.script.kill()
            made.script.wait(PATIENCE)


def test_a_job_outlives_a_host_and_ends_with_its_controller(job: Job) -> None:
    job.until(lambda: job.hosts() == "3/3")
    for number, name in enumerate(NODES):
        said = (job.folder / f"agent-{number}.log").read_text()
        assert f"hosts {number} at {job._machines.addresses[name]}:" in said
    assert (job.folder / "state").is_dir()
    assert (job.folder / "token").stat().st_mode & 0o077 == 0

    job.kill("agent-2")
    job.until(lambda: job.hosts() == "2/3")

    job.kill("controller")
    assert job.script.wait(PATIENCE) == signal.SIGKILL, "the stand-in's status for it"
    assert not (job.folder / "token").exists()
    for number in (0, 1):
        assert not Path("/proc", (job.folder / f"agent-{number}.log.pid").read_text()).exists()
