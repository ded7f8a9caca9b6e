"""`python -m seaway parity program.py`: the user's own file, in both worlds. Returns 0 if they are equal, else 1."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seaway.cli import main

HOPS = """
import sys
import numpy as np
import seaway as sw

a, b = (sw.slice(devices=4, name=name) for name in "ab")
one, two = (sw.synthetic(name, devices=where, duration="300us") for name, where in (("one", a), ("two", b)))


@sw.program
def hop(x):
    for _ in range(2):
        x = two(one(x))
    return x, one(x)


if __name__ == "__main__":
    x = np.ones((8, 8), np.float32)
    for _ in range(int(sys.argv[1])):
        y, x = hop(x)  # each call needs all of the one before: no race between contents decides the order
    x.block_until_ready()
    print("done")
"""

OTHERWISE = """
import numpy as np
import seaway as sw

step = sw.synthetic("step", devices=sw.slice(devices=4, name="all"), duration="1ms")

if __name__ == "__main__":
    real = "timed" in repr(sw.current_session()) or "real" in repr(sw.current_session())
    x = np.ones(8, np.float32)
    for _ in range(3 + real):
        x = step(x)
    x.block_until_ready()
"""

TRAINED = """
import jax.numpy as jnp
import numpy as np
import seaway as sw

a, b = (sw.slice(devices=4, name=name) for name in "ab")
first = sw.jit(lambda x, w: jnp.tanh(x @ w), devices=a, name="first")
second = sw.jit(lambda x: x * 2.0, devices=b, name="second")


@sw.program
def step(x, w):
    return second(first(x, w))


if __name__ == "__main__":
    x, w = np.ones((8, 8), np.float32), np.eye(8, dtype=np.float32)
    for _ in range(4):
        x = step(x, w)
    print("sum", round(float(np.asarray(x).sum()), 3))
"""


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Restore `sys.modules`, `sys.argv` and `sys.path`, which the command changes."""
    main_module, argv, path = sys.modules["__main__"], sys.argv, list(sys.path)
    yield
    sys.modules["__main__"], sys.argv, sys.path[:] = main_module, argv, path


def program(folder: Path, text: str) -> str:
    path = folder / "work.py"
    path.write_text(text)
    return str(path)


def test_a_program_that_crosses_islands_is_equal_in_both_worlds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    words = ["--islands", "2", "--policy", "stride", "--keep", str(kept), "--", "4"]
    assert main(["parity", program(tmp_path, HOPS), *words]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 islands, 4 hosts, 8 devices (timed); policy stride\ndone\ndone\n")
    assert said.endswith("equal\n")
    assert "DIFFERS" not in said
    assert "order of island 'i1', 8 gangs" in said
    assert main(["replay", str(kept / "controller.log")]) == 0
    orders = re.findall(r"order of island 'i.': ([0-9a-f]{16})", capsys.readouterr().out)
    assert len(orders) == 2
    assert [said.count(order) for order in orders] == [2, 2]


def test_a_program_that_behaves_differently_on_real_devices_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parity", program(tmp_path, OTHERWISE)]) == 1
    said = capsys.readouterr().out
    assert "the first decision that differs on island 'i0' is number 3" in said
    assert "  >      3  (nothing more entered)" in said
    assert "  >      3  client 'work', run 4 of 'step', step 0 'step'" in said
    assert "only the real side has run 4 of client 'work'" in said
    assert said.endswith("docs/parity.md says where to expect that\n")


def test_invalid_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, uneven = program(tmp_path, OTHERWISE), tmp_path / "uneven.toml"
    island = '[[island]]\nname = "{}"\nkind = "cpu"\nhosts = 1\ndevices_per_host = {}\n'
    uneven.write_text(island.format("few", 2) + island.format("many", 4))
    for words, reason in (
        (["--hosts", "0"], "--hosts 0: at least 1"),
        (["--policy", "fif"], "fifo"),
        (["--cluster", str(uneven)], "hosts with 2, 4 devices: on one machine all hosts must have the same number"),
        (["--cluster", "nowhere.toml"], "nowhere.toml"),
    ):
        assert main(["parity", path, *words]) == 1
        assert reason in capsys.readouterr().err
    assert main(["parity", str(tmp_path / "absent.py")]) == 1
    assert "there is no program" in capsys.readouterr().err


def test_the_traceback_of_a_failing_program_shows_its_own_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parity", program(tmp_path, "x = 1\nraise TypeError(f'{x} is no array')\n")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("seaway: the program failed on simulated devices\n")
    assert "line 2, in <module>" in said
    assert said.endswith("TypeError: 1 is no array\n")
    assert "cli" not in said


OWN = """
import numpy as np
import seaway as sw

step = sw.synthetic("step", devices=sw.slice(devices=4, name="all"), duration="1ms")

if __name__ == "__main__":
    with sw.simulate("B", hosts=1):
        step(np.float32(0)).block_until_ready()
    print("done")
"""


def test_a_program_that_opens_its_own_session_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", program(tmp_path, OWN), "--hosts", "1"]) == 1
    said = capsys.readouterr()
    assert said.out.count("done") == 2
    assert "equal" not in said.out
    assert said.err.startswith("seaway: no gangs ran, simulated or on real devices, so nothing was compared; ")
    assert "does the program open a session of its own?" in said.err


def test_a_users_own_policy_decides_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine_parity.py").write_text(
        "from core.schedule.policy import Policy\n\n\nclass Mine(Policy):\n    def pick(self, ready, now):\n"
        "        return max(ready.heads(), key=lambda gang: gang.number)\n"
    )
    monkeypatch.chdir(tmp_path)
    path, kept = program(tmp_path, HOPS), tmp_path / "kept"
    words = ["--policy", "mine_parity.py:Mine", "--hosts", "1", "--devices-per-host", "4"]
    assert main(["parity", path, *words, "--keep", str(kept), "--", "2"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("equal\n")
    assert "; policy mine_parity.py:Mine\n" in said
    log = str(kept / "controller.log")
    assert main(["replay", log, "--policy", "mine_parity.py:Mine"]) == 0


@pytest.mark.full
def test_real_devices_of_this_machine_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", program(tmp_path, TRAINED), "--platform", "cpu", "--islands", "2"]) == 0
    said = capsys.readouterr().out
    sums = [line for line in said.splitlines() if line.startswith("sum ")]
    assert len(sums) == 2
    assert sums[0] == sums[1]


COLD = """
import jax.numpy as jnp
import numpy as np
import seaway as sw


def deep(x):
    for _ in range(60):
        x = jnp.tanh(x @ x) + jnp.sin(x).sum(0)
    return x


slow = sw.jit(deep, devices=4, cost="2ms", name="slow")
fast = sw.jit(lambda x: x + 1, devices=4, cost="1ms", name="fast")
x = np.eye(32, dtype=np.float32)
sw.block_until_ready([y for _ in range(3) for y in (slow(x), fast(x))])  # no call is made beforehand
"""


def test_a_program_whose_first_calls_are_cold_is_equal_since_code_is_ready_before_a_call_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the calls of the program that is compiled first would enter first, on real devices alone."""
    assert main(["parity", program(tmp_path, COLD), "--platform", "cpu"]) == 0, capsys.readouterr().out


@pytest.mark.full
def test_a_sparse_exchange_is_equal_in_both_worlds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number of rows between each two shards is counted while it runs."""
    text = (Path(__file__).parents[4] / "examples" / "experts.py").read_text()
    before, session, inside = text.partition('    with sw.simulate("B", hosts=2, values="compute") as s:\n')
    assert session
    inside = inside.replace("        print(s.trace.summary())\n", "")
    path = program(tmp_path, f"{before}    if True:\n{inside}")
    assert main(["parity", path, "--platform", "cpu", "--hosts", "4", "--devices-per-host", "4"]) == 0
    assert capsys.readouterr().out.count("as computed without routing: True") == 2
