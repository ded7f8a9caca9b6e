"""An operator moves, suspends and resumes what a JAX program has on real devices, and empties hosts under it."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

from tests.backend.real import Program, Real, real

from .test_programs import seaway

PROGRAM = """
import sys, time
from pathlib import Path
import jax.numpy as jnp, numpy as np, seaway as sw

home = sw.slice(devices=2, name="train")
begin = sw.jit(lambda k: jnp.arange(4096, dtype=jnp.float32) * k, devices=home)
step = sw.jit(lambda x: x + 1.0, devices=home)
with sw.connect(f"grpc://{sys.argv[1]}") as s, s.client("train"):
    kept, x, steps = begin(np.float32(3)), begin(np.float32(1)), 0
    while not Path(sys.argv[2]).exists():
        x, steps = step(x), steps + 1
        x.block_until_ready()
        print("step", steps, flush=True)
        time.sleep(0.02)
    numbers = np.arange(4096, dtype=np.float32)
    assert np.array_equal(np.asarray(x), numbers + steps)
    assert np.array_equal(np.asarray(kept), numbers * 3)
    print("right", flush=True)
"""


async def test_a_program_goes_on_while_its_slice_is_moved_and_suspended_and_hosts_are_drained(tmp_path: Path) -> None:
    async with asyncio.timeout(240), real(tmp_path, hosts=3, platform="cpu") as found:
        stop, address = tmp_path / "stop", found.address
        program = Program(tmp_path / "program", address, str(stop), python=("-c", PROGRAM))
        try:
            await _steps(program)
            devices = await _devices(found)
            assert (await _operate("move", address, "train")).endswith("client 1: moved\n")
            await _steps(program)
            assert await _devices(found) != devices
            assert (await _operate("suspend", address, "train")).endswith("client 1: suspended\n")
            assert "slice 'train' of client 1 is suspended" in await _operate("status", address)
            assert (await _operate("resume", address, "train")).endswith("client 1: resumed\n")
            await _steps(program)
            busy = int((await _devices(found))[0]) // 2
            assert (await _operate("drain", address, f"host-{busy}")).endswith(f"host {busy} has left\n")
            assert await found.agents[busy].ended() == 0, "for good"
            assert f"host {busy} (host-{busy}) has drained" in await _operate("status", address)
            await _steps(program)
            await _operate("uncordon", address, f"host-{busy}")
            found.agent(busy)
            await found.until(lambda status: status["islands"][0]["hosts"][busy]["member"])
            refused = await asyncio.to_thread(lambda: seaway("drain", address, "nobody", code=1))
            assert "no host is called 'nobody': give a number from 0 to 2, or an agent's name" in refused
            notified = int((await _devices(found))[0]) // 2
            found.agents[notified].signal(signal.SIGTERM)  # as before a pre-emption
            assert await found.agents[notified].ended() == 0
            await _steps(program)
            stop.touch()
            await _until(program, "right")
        finally:
            program.end()


async def _operate(*words: str) -> str:
    return await asyncio.to_thread(seaway, *words)


async def _steps(program: Program) -> None:
    """Until it has made three more steps than it has said."""
    for _ in range(3):
        await _until(program, "step")


async def _until(program: Program, word: str) -> None:
    while word not in await asyncio.to_thread(program.line):
        pass


async def _devices(found: Real) -> str:
    """On which the program's slice lies."""
    ((of_train,),) = [client["slices"] for client in (await found.status())["clients"]]
    return str(of_train["devices"])


RESTS = """
import sys, time
from pathlib import Path
import jax.numpy as jnp, numpy as np, seaway as sw

home = sw.slice(devices=2, name="train", exclusive=True)
begin = sw.jit(lambda k: jnp.sin(jnp.arange(1 << 16, dtype=jnp.float32) * k), devices=home)
step = sw.jit(lambda x, y: x + y, devices=home)
with sw.connect(f"grpc://{sys.argv[1]}") as s, s.client("train"):
    kept = [begin(np.float32(k)) for k in range(1, 9)]
    before = [np.asarray(each) for each in kept]
    print("made", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.02)
    both = step(kept[0], kept[1])
    assert np.array_equal(np.asarray(both), before[0] + before[1])
    assert all(np.array_equal(np.asarray(now), was) for now, was in zip(kept, before))
    print("right", flush=True)
    while not Path(sys.argv[3]).exists():
        time.sleep(0.02)
"""

OTHER = """
import sys, time
from pathlib import Path
import jax.numpy as jnp, numpy as np, seaway as sw

f = sw.jit(lambda k: jnp.arange(8) + k, devices=sw.slice(devices=2, exclusive=True))
with sw.connect(f"grpc://{sys.argv[1]}") as s, s.client("other"):
    assert np.array_equal(np.asarray(f(np.int32(1))), np.arange(8) + 1)
    print("ran", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.02)
"""


async def test_a_slice_is_still_suspended_when_the_controller_was_killed_and_comes_back_elsewhere(
    tmp_path: Path,
) -> None:
    """Two of its eight arrays, of 256 KiB on each of two devices, find room in host memory; the others are on disk."""
    room = 1 << 20, 1 << 30
    async with asyncio.timeout(240), real(tmp_path, hosts=2, platform="cpu", room=room) as found:
        stop, end, address = tmp_path / "stop", tmp_path / "end", found.address
        program = Program(tmp_path / "program", address, str(stop), str(end), python=("-c", RESTS))
        other = None
        try:
            await _until(program, "made")
            before = await _devices(found)
            await _operate("suspend", address, "train")
            files = [each for each in tmp_path.glob("spilled/*/*") if not each.name.startswith(".")]
            assert sorted(each.stat().st_size for each in files) == [(256 << 10) + 4] * 6, "both devices have the same"
            found.controller.kill()
            found.start_controller()
            await found.until(lambda status: status["clients"])
            assert "slice 'train' of client 1 is suspended" in await _operate("status", address)
            other = Program(tmp_path / "other", address, str(end), python=("-c", OTHER))
            await _until(other, "ran")
            stop.touch()
            await found.until(lambda status: status["waits"])
            assert (await _operate("resume", address, "train")).endswith("client 1: resumed\n")
            await _until(program, "right")
            lie = [str(each["devices"]) for client in (await found.status())["clients"] for each in client["slices"]]
            assert len(lie) == 2
            assert not any(map(Path.exists, files)), "it has read them, and nobody wants them any more"
            assert sorted(lie) == [before, lie[0] if lie[1] == before else lie[1]], "the other still has its devices"
            end.touch()
        finally:
            program.end()
            if other is not None:
                other.end()


DAMAGED = """
import sys, time
from pathlib import Path
import jax.numpy as jnp, numpy as np, seaway as sw

home = sw.slice(devices=2, name="train")
begin = sw.jit(lambda k: jnp.arange(1 << 16, dtype=jnp.float32) * k, devices=home)
add = sw.jit(lambda x: x + 1, devices=home)
numbers = np.arange(1 << 16, dtype=np.float32)
with sw.connect(f"grpc://{sys.argv[1]}") as s, s.client("train"):
    kept = [begin(np.float32(k)).block_until_ready() for k in range(1, 5)]
    print("made", flush=True)
    for turn in sys.argv[2:]:
        while not Path(turn).exists():
            time.sleep(0.02)
        for k, each in enumerate(kept, 1):
            try:
                assert np.array_equal(np.asarray(add(each)), numbers * k + 1)
            except RuntimeError as lost:
                print(k, type(lost).__name__, " ".join(str(lost).split()), flush=True)
        assert np.array_equal(np.asarray(begin(np.float32(7))), numbers * 7)
        print("works", flush=True)
"""


async def test_an_array_whose_file_is_damaged_is_lost_by_name_when_other_devices_are_to_get_it(tmp_path: Path) -> None:
    """First others of the same host, where the rest goes at once. To another host, it goes by the next attempt."""
    room = 1, 1 << 30
    async with asyncio.timeout(240), real(tmp_path, hosts=2, devices_per_host=4, platform="cpu", room=room) as found:
        turns, address = [str(tmp_path / name) for name in ("near", "far")], found.address
        program = Program(tmp_path / "program", address, *turns, python=("-c", DAMAGED))
        try:
            await _until(program, "made")
            host = int((await _devices(found))[0]) // 4
            for gone, turn in enumerate(turns, 1):
                before = await _devices(found)
                await _operate("suspend", address, "train")
                damaged = _first_file(tmp_path)
                damaged.write_bytes(damaged.read_bytes()[:-9] + bytes(9))
                if gone == 2:
                    away = "move", address, "train", "--away", f"host-{host}"
                    refused = await asyncio.to_thread(partial(seaway, *away, code=1))
                    assert f"slice 'train' was not moved: [lost] its contents were on disk, and {damaged}" in refused
                    await _operate(*away)
                else:
                    await _operate("move", address, "train")
                assert (await _operate("resume", address, "train")).endswith("client 1: resumed\n")
                after = await _devices(found)
                assert after != before
                assert (int(after[0]) // 4 == host) is (gone == 1)
                Path(turn).touch()
                told = [await asyncio.to_thread(program.line) for _ in range(gone + 1)]
                assert told[-1] == "works\n"
                assert [line[0] for line in told[:-1]] == ["1", "2"][:gone]
                assert f"{damaged} is damaged: its checksum is wrong" in told[-2]
                assert f"host {host}" in told[-2]
        finally:
            program.end()


def _first_file(folder: Path) -> Path:
    """Of what was spilled there last: files are numbered."""
    return min((each for each in folder.glob("spilled/*/*") if each.name.isdigit()), key=lambda each: int(each.name))
