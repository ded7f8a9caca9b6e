"""Every unary call needs the cluster's token, which is looked at before the caller's message is."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from backend.auth.access import Access
from backend.node.calls import SERVICE
from backend.wire.call_messages import PAIRS
from tests.backend.cluster import cluster

WORDS = ("", "Bearer ", "Bearer guess", "Bearer sesame ", "bearer sesame", "Bearer SESAME", "Bearer Bearer sesame")
SHOWN: list[tuple[tuple[str, str | bytes], ...]] = [
    (),
    *((("authorization", words),) for words in WORDS),
    (("token", "sesame"),),
    (("authorization-bin", b"Bearer sesame"),),
    (("authorization", "Bearer sesame"), ("authorization", "Bearer guess")),
]


async def test_no_call_is_answered_without_the_token(tmp_path: Path) -> None:
    async def refused(channel: grpc.aio.Channel, name: str, shown: tuple[tuple[str, str | bytes], ...]) -> None:
        # its message does not come
        call = channel.stream_unary(f"/{SERVICE}/{name}")(metadata=shown, timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED, (name, shown)

    async with (
        cluster(tmp_path, access=Access("sesame"), agents=False) as found,
        grpc.aio.insecure_channel(found.server.address) as channel,
    ):
        for kind in PAIRS:
            for shown in SHOWN:
                await refused(channel, kind.__name__, shown)
