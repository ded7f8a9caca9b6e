"""What a session on a cluster makes of faults: each wait ends, with the reason; the session goes on if it can."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
import pytest

from backend.auth import Access
from backend.client import Head
from backend.contents import StableHLOCode, hash_of
from backend.door import ServedCluster, SessionIsland
from backend.door.cluster import cluster_link
from backend.door.cluster.cluster_calls import CallOrder
from backend.door.cluster.cluster_link import RemoteLink, fault_of_blame
from backend.door.cluster.cluster_opening import ClusterSessions, RemoteSource
from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.session.session_devices import StatusError
from backend.door.session.session_port import Version
from backend.node import CallError
from backend.wire import Described
from core.client import Client
from core.model import small
from core.protocol import CONTROLLER, Blame, Disconnected
from core.protocol import effects as e
from core.protocol import messages as m

from ...cluster import wait_until
from ..cluster_rig import ClusterRig, Told
from ..session_rig import SessionRig

DESCRIBED = Described(small(1, 2, 1), ("cpu",), 3_000_000_000, "")
GONE = StatusError(StatusCode.UNAVAILABLE, "the controller is gone")


# --- which fault --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        (("host-lost", "host-left", "restart", "world", "lost", "client-lost"), "DATA_LOSS"),
        (("user", "code"), "INTERNAL"), (("refused",), "INVALID_ARGUMENT"), (("cancelled",), "CANCELLED"),
        (("no-memory",), "RESOURCE_EXHAUSTED"), (("timeout",), "DEADLINE_EXCEEDED"),
    ],
)  # fmt: skip
def test_what_the_cluster_lost_is_data_loss_and_nothing_else_is_and_all_say_what_it_was(
    codes: tuple[str, ...], status: str
) -> None:
    for code in codes:
        fault = fault_of_blame(Blame(code, "host 1 is gone", "step", host=1))
        assert (StatusCode.Name(fault.code), fault.text) == (
            status, f"[{code}] host 1 is gone (program 'step', host 1)",
        )  # fmt: skip


# --- waits --------------------------------------------------------------------------------------------------------


async def test_a_question_to_hosts_ends_when_the_session_is_over_and_none_begins_after() -> None:
    rig = ClusterRig()
    answers: list[Any] = []

    async def asked() -> None:
        rig.programs.begin(
            rig.programs.ask(StableHLOCode(b"", b"", "platform"), "devices", (0,)), answers.append, answers.append
        )
        for _ in range(5):
            await asyncio.sleep(0)

    await asked()
    assert isinstance(rig.calls()[0], m.Register)
    assert answers == []
    rig.link.failed(GONE)
    assert rig.link.closed
    await asked()
    assert [each.text for each in answers] == [GONE.text] * 2
    assert not any(isinstance(call, m.Register) for call in rig.calls())


async def test_whatever_goes_wrong_while_a_program_is_compiled_is_an_answer() -> None:
    rig, answers = ClusterRig(), Told()

    async def broken() -> None:
        raise KeyError("what")

    rig.programs.begin(broken(), answers, answers)
    await asyncio.sleep(0.01)
    (fault,) = answers
    assert fault.code == StatusCode.INTERNAL
    assert "KeyError" in fault.text


@pytest.mark.parametrize("wrong", [GONE, KeyError("what")])
def test_a_call_that_cannot_be_made_fails_alone_and_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, wrong: Exception
) -> None:
    rig = ClusterRig()
    step = rig.executable()

    def broken(*_: object) -> int:
        raise wrong

    with monkeypatch.context() as broken_for_now:
        broken_for_now.setattr(Client, "put", broken)
        lost = rig.large()
    told = rig.told(*rig.run(step, lost))
    assert len(told) == 1
    assert str(wrong) in told[0].text
    rig.run(step, rig.large())
    assert [type(call) for call in rig.calls()] == [m.Put, m.Submit]


def test_a_client_that_core_has_closed_is_unavailable_before_the_session_hears_why() -> None:
    rig = ClusterRig()
    step, x = rig.executable(), rig.large()
    rig.link.client.close(0)
    rig.link.client.handle(Disconnected(CONTROLLER, "gone"), 0)
    told = rig.told(*rig.run(step, x))
    assert told[0].code == StatusCode.UNAVAILABLE


def test_calls_that_a_call_has_led_to_are_made() -> None:
    order, made = CallOrder(), []

    def second() -> bool:
        made.append(2)
        return True

    def first() -> bool:
        made.append(1)
        order.do(second)
        order.ahead(second)
        return True

    order.do(first)
    assert made == [1, 2, 2]


# --- the link to the controller -------------------------------------------------------------------------------------


class HeadOfNobody(Head):
    """A controller that is not there, but for code: it refuses as often as `refusals` says."""

    def __init__(self, refusals: Iterable[grpc.StatusCode] = ()) -> None:
        super().__init__("127.0.0.1:1", Access())
        self.refusals, self.asked = list(refusals), 0

    async def keep(self, blobs: Iterable[bytes]) -> None:
        self.asked += 1
        if self.refusals:
            raise CallError("it is away", self.refusals.pop())
        self._kept |= {hash_of(blob): blob for blob in blobs}


def link_of(head: Head, name: str = "ann") -> RemoteLink:
    return RemoteLink(head, DESCRIBED, name, 1, 0)


async def test_a_controller_that_stays_away_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_link, "PATIENCE", 0.05)
    monkeypatch.setattr(cluster_link, "LOOK", 0.01)
    head, faults = HeadOfNobody(), list[StatusError]()
    link = link_of(head)
    link.failed = faults.append
    await wait_until(lambda: faults)
    assert faults[0].code == StatusCode.UNAVAILABLE
    assert "the controller has been out of reach for" in faults[0].text
    await link.closed()
    await head.close()


async def test_a_session_that_is_over_says_so_before_its_runs_end() -> None:
    head, said = HeadOfNobody(), list[Any]()
    link = link_of(head)
    link.heard, link.failed = said.append, said.append
    link._note(e.LogLine("the controller said goodbye: it ends"))
    link.remote.act(lambda client, now: client.close(now))
    link._note(e.RunEnded(1, Blame("client-lost", "the session was closed")))
    await wait_until(lambda: len(said) > 2)
    assert isinstance(said[0], StatusError)
    assert said[0].code == StatusCode.UNAVAILABLE
    assert "the controller said goodbye: it ends" in said[0].text
    await link.closed()
    await head.close()


async def test_code_is_left_with_a_controller_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_link, "LOOK", 0.01)
    head = HeadOfNobody([grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
    link = link_of(head)
    await link.keep(b"code")
    assert head.asked == 3
    head.refusals = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    with pytest.raises(StatusError, match="did not take the program's code: it is away") as refused:
        await link.keep(b"more")
    assert refused.value.code == StatusCode.RESOURCE_EXHAUSTED
    await link.closed()
    await head.close()


def source_of(head: Any) -> RemoteSource:
    return RemoteSource(head, DESCRIBED, ServedCluster("127.0.0.1:1", Access()), (SessionIsland("", 2),))


async def test_a_door_forgets_code_with_the_last_session_that_has_it() -> None:
    head = HeadOfNobody()
    source = source_of(head)
    first, second = (link_of(head, name) for name in ("ann", "bob"))
    source._links |= {first, second}
    for link, code in ((first, b"both"), (second, b"both"), (first, b"ann's")):
        await link.keep(code)
    source._gone(first)
    assert set(head._kept) == {hash_of(b"both")}
    source._gone(second)
    assert not head._kept
    for link in (first, second):
        await link.closed()
    await head.close()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (CallError("no room", grpc.StatusCode.RESOURCE_EXHAUSTED), "did not take the program's code: no room"),
        (KeyError("what"), "the session could not be opened: KeyError: 'what'"),
    ],
)
async def test_a_session_that_cannot_be_opened_says_why_and_leaves_nothing(wrong: Exception, says: str) -> None:
    head, rig = HeadOfNobody(), SessionRig()

    async def refused(blobs: Iterable[bytes]) -> None:
        raise wrong

    head.keep = refused  # type: ignore[method-assign]
    sessions = ClusterSessions(source_of(head), ())
    rig.session = sessions(Version(25, 6), rig)
    init = rig.ask("init")
    await wait_until(lambda: rig.sent)
    assert says in rig.answer(init).response_metadata.status.message
    await wait_until(lambda: not sessions._links)
    assert not sessions._names
    await sessions.end()
    await head.close()
