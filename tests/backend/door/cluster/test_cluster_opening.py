"""What a door says about the cluster that it is to serve, before it listens; and what its devices look like."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from backend.auth import Access
from backend.client import Head
from backend.contents import stablehlo_code
from backend.door import ClusterRefused, ServedCluster, session_devices_of
from backend.door.cluster.cluster_opening import find_cluster, platform_of
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
    ("options", "says"),
    [
        ({"devices": 5}, "--devices 5: the devices of a session are on one island, and there are 4 on island 'i0'"),
        ({"island": "west"}, "--island west: the cluster has no such island; there are 4 on island 'i0'"),
    ],
)
def test_more_than_there_is_is_refused_with_what_there_is(options: dict[str, object], says: str) -> None:
    with pytest.raises(ClusterRefused) as refused:
        session_devices_of(small(2, 2, 2), **{"devices": 0, "island": ""} | options)  # type: ignore[arg-type]
    assert says in str(refused.value)
    assert "4 on island 'i1'" in str(refused.value)


def test_without_a_number_a_session_has_all_devices_of_the_largest_island() -> None:
    assert session_devices_of(small(2, 2, 2), 0, "") == 4


def test_devices_have_the_numbers_of_the_session_and_not_those_of_their_hosts() -> None:
    device = stablehlo_code.PlatformDevice
    about = stablehlo_code.PlatformAbout(
        "cpu", "1", "TFRT", 6,
        (
            device("cpu", ("device", "pinned_host"), 0, "CpuDevice(id=2048)", "TFRT_CPU_2048", {}),
            device("cpu", ("device", "pinned_host"), 0, "CpuDevice(id=7)", "TFRT_CPU_7", {"slice_index": 1}),
        ),
    )  # fmt: skip
    found = platform_of(about)
    assert [(each.id, each.repr, each.text) for each in found.devices] == [
        (0, "CpuDevice(id=0)", "TFRT_CPU_0"),
        (1, "CpuDevice(id=1)", "TFRT_CPU_1"),
    ]
    assert [each.memories for each in found.devices] == [(0, 1), (2, 3)]
    assert found.default_memory_kind() == "device"
    assert found.devices[1].attributes == {"slice_index": 1}
