"""What the clients of both jaxlibs sent when they connected (`record_client`), and what we answer: golden texts.

`pytest tests/backend/door --rewrite` writes the texts anew; read the difference before you commit it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.door.server.ifrt_service import Sessions
from backend.door.transport.grpc_calls import GrpcConnection

from .minimal_session import MinimalSession
from .transcript import Transcript

RECORDINGS = Path(__file__).parent / "recordings"


def played(recording: Path) -> str:
    sessions = Sessions(MinimalSession, draw=lambda: 7)
    connections: dict[str, tuple[GrpcConnection, Transcript, Transcript]] = {}
    text: list[str] = []
    for line in recording.read_text().splitlines():
        number, data = line.split()
        if number not in connections:
            paths: dict[int, str] = {}
            connection = GrpcConnection(lambda call: sessions.begin(call, "ann"), lambda: None)
            connections[number] = (
                connection, Transcript(f"client {number}", paths), Transcript(f"server {number}", paths),
            )  # fmt: skip
        connection, client, server = connections[number]
        text += client.lines(bytes.fromhex(data))
        connection.receive(bytes.fromhex(data))
        text += server.lines(connection.outgoing())
    for connection, _, _ in connections.values():
        connection.lost("the client has gone")
    assert not sessions.open
    return "\n".join(text) + "\n"


@pytest.mark.parametrize("recording", sorted(RECORDINGS.glob("jaxlib-*.txt")), ids=lambda path: path.stem)
def test_a_recorded_client_is_answered_as_its_golden_text_says(recording: Path, rewrite: bool) -> None:
    golden = recording.with_suffix(".golden")
    text = played(recording)
    if rewrite:
        golden.write_text(text)
    assert text == golden.read_text()


def test_both_versions_are_recorded() -> None:
    assert {path.stem.rpartition("-")[2].rpartition(".")[0] for path in RECORDINGS.glob("*.txt")} >= {"0.10", "0.12.0"}
