"""What a door says about the cluster that it is to serve, before it listens; and what its devices look like."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from backend.auth import Access
from backend.client import Head
from backend.contents import stablehlo_code
from backend.door import ClusterRefused, ServedCluster, SessionIsland, session_islands_of
from backend.door.cluster.cluster_opening import find_cluster, platform_of
from backend.door.cluster.cluster_programs import Places
from core.model import small

from ...cluster import cluster

TOKEN = Access("secret")


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


async def refusal(address: str, access: Access = TOKEN, **options: object) -> str:
    given = ServedCluster(address, access, **options)  # type: ignore[arg-type]
    head = Head(address, access)
    try:
        with pytest.raises(ClusterRefused) as refused:
            await find_cluster(head, given)
    finally:
        await head.close()
    return str(refused.value)


async def test_a_controller_that_is_not_there_is_named() -> None:
    address = free_address()
    assert f"no controller answers at {address} (waited 0.5 s)" in await refusal(address, wait=0.5)


async def test_a_wrong_token_is_named(tmp_path: Path) -> None:
    async with cluster(tmp_path, agents=False, access=TOKEN) as found:
        said = await refusal(found.server.address, Access("guess"))
    assert "refused our credentials" in said
    assert "--token-file" in said
    assert "guess" not in said


async def test_devices_that_only_take_time_are_no_devices_for_jax(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        assert "only take time" in await refusal(found.server.address, Access())


@pytest.mark.parametrize(
    ("devices", "islands", "says"),
    [
        (5, "", "--devices 5: a session has so many on each of its islands, and there are 4 on island 'i0'"),
        (5, "all", "--devices 5: a session has so many on each of its islands, and there are 4 on island 'i0'"),
        (0, "west", "--islands west: the cluster has no island 'west'; there are 4 on island 'i0'"),
        (0, "i0,", "--islands i0,: the cluster has no island ''"),
        (0, "i0,i1,i0", "--islands i0,i1,i0: 'i0' is there twice"),
    ],
)
def test_more_than_there_is_is_refused_with_what_there_is(devices: int, islands: str, says: str) -> None:
    with pytest.raises(ClusterRefused) as refused:
        session_islands_of(small(2, 2, 2), devices, islands)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("devices", "islands", "found"),
    [
        (0, "", [("", 4)]),  # any island, of the largest
        (3, "i1", [("i1", 3)]),
        (0, "all", [("i0", 4), ("i1", 4)]),
        (2, "i1,i0", [("i1", 2), ("i0", 2)]),
    ],
)
def test_a_session_has_devices_of_the_islands_that_are_named(
    devices: int, islands: str, found: list[tuple[str, int]]
) -> None:
    assert list(session_islands_of(small(2, 2, 2), devices, islands)) == found


def test_devices_have_the_numbers_of_the_session_and_not_those_of_their_hosts() -> None:
    device = stablehlo_code.PlatformDevice
    names = [("CpuDevice(id=2048)", "TFRT_CPU_2048"), ("CpuDevice(id=7)", "TFRT_CPU_7")]
    alike = [device("cpu", ("device", "pinned_host"), 0, *each, {"slice_index": 5, "core": 1}) for each in names]
    about = [stablehlo_code.PlatformAbout("cpu", "1", "TFRT", 6, tuple(alike[:count])) for count in (2, 1)]
    found = platform_of(about, Places([SessionIsland("i0", 2), SessionIsland("i1", 1)]))
    assert [(each.id, each.repr, each.text) for each in found.devices] == [
        (0, "CpuDevice(id=0)", "TFRT_CPU_0"),
        (1, "CpuDevice(id=1)", "TFRT_CPU_1"),
        (2, "CpuDevice(id=2)", "TFRT_CPU_2"),
    ]
    assert [each.memories for each in found.devices] == [(0, 1), (2, 3), (4, 5)]
    assert found.default_memory_kind() == "device"
    assert [dict(each.attributes) for each in found.devices] == [{"slice_index": at, "core": 1} for at in (0, 0, 1)]
