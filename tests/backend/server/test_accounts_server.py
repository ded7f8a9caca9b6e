"""A server with accounts: who is let in as whom, which calls each role may make, and that agents are the cluster's."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from backend.auth.access import Access, Person
from backend.client.remote import Head
from backend.devices import gang_times
from backend.node import CallError
from backend.server.roles import MAY
from backend.wire.call_messages import PAIRS, CancelCall, Keep, Permit, Recorded, Status, UsageCall
from core.model import Account
from core.protocol import CONTROLLER
from core.record import Look
from tests.backend.cluster import Cluster, User, cluster, wait_until
from tests.backend.streams.certificates import authority, issued
from tests.backend.test_faults import register, runs

ROLES = {"ann": "user", "bob": "user", "olga": "operator", "vic": "viewer"}


def people() -> tuple[Person, ...]:
    return tuple(
        Person(Account(name, role, weight=2, priority=0, runs=3), hashlib.sha256(f"of {name}".encode()).hexdigest())  # type: ignore[arg-type]
        for name, role in ROLES.items()
    )


def shown(name: str) -> Access:
    return Access(f"of {name}" if name else "ours")


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"access": Access("ours", people=people()), "agents": False, **more}


async def joined(found: Cluster) -> None:
    for host in range(2):
        await found.agent(host, access=shown(""))


async def said(found: Cluster, name: str, request: msgspec.Struct) -> Any:
    """The answer to a call of this account's; or why it is refused."""
    head = Head(found.server.address, shown(name))
    try:
        return await head.ask(request, 20)
    except CallError as wrong:
        return str(wrong) if wrong.code == grpc.StatusCode.PERMISSION_DENIED else wrong
    finally:
        await head.close()


def clients(found: Cluster) -> dict[str, int]:
    return {each.name: each.number for each in found.server.controller.snapshot().clients}


def _closed(user: User) -> bool:
    return user.remote.client.state == "closed"


async def test_clients_run_under_their_accounts_and_hosts_know_them_by_their_passes(tmp_path: Path) -> None:
    async with cluster(tmp_path, **options(tmp_path)) as found:
        await joined(found)
        await found.ready()
        users = [found.user(label, access=shown(name)) for name, label in (("ann", "a"), ("ann", "b"), ("bob", "c"))]
        for user in users:
            await runs(user, register(user, 1))
        assert sorted(clients(found)) == ["ann/a", "ann/b", "bob/c"]
        usage = json.loads((await said(found, "vic", UsageCall())).json)
        used = {each["account"]: each["used"] for each in usage}
        assert used["ann"]["runs"] == 2 * used["bob"]["runs"] > 0
        assert used["ann"]["device_seconds"] > 0
        # what a client asks hosts themselves, with a token that they do not know
        number, node = users[0].remote.client.number, users[0].remote.node
        mine = f"client/{number}", node.passes[f"client/{number}"]
        permitted = await users[0].head.ask(Permit(((number, mine[1]),)))
        at = {0: node.directory["host/0"]}
        assert not (await gang_times.fetched(at, shown("ann"), permitted, 10, 20, mine)).missing
        refused = await gang_times.fetched(at, shown("ann"), permitted, 10, 20)
        assert refused.missing == {0: "the token is wrong or missing"}


async def test_a_session_that_asks_for_too_much_or_that_a_viewer_opens_is_over_with_the_reason(tmp_path: Path) -> None:
    async with cluster(tmp_path, **options(tmp_path)) as found:
        eve = found.user("eve", access=shown("ann"), weight=10**6)
        viewer = found.user("v", access=shown("vic"))
        for user, why in (
            (eve, "it asks for weight 1000000, and the highest weight of account 'ann' is 2"),
            (viewer, "account 'vic' is a viewer's: it may look, and opens no session"),
        ):
            await wait_until(partial(_closed, user))
            assert user.remote.client.why_over == why
        assert not clients(found)


async def test_a_token_of_nobodys_is_refused_on_streams_and_calls(tmp_path: Path) -> None:
    async with cluster(tmp_path, **options(tmp_path)) as found:
        eve = found.user("eve", access=Access("guess"))
        await wait_until(lambda: eve.failures)
        assert "the token is wrong or missing" in str(eve.failures[0])
        with pytest.raises(CallError, match="the token is wrong or missing"):
            await eve.head.ask(Status())


async def test_an_accounts_token_enrols_no_host(tmp_path: Path) -> None:
    async with cluster(tmp_path, **options(tmp_path)) as found:
        for name in ROLES:
            with pytest.raises(
                CallError, match=f"account '{name}' is a .*'s, and Enrol needs the token of the cluster"
            ):
                await found.agent(0, access=shown(name))
        assert not found.server.enrolment.agents()
        assert found.server.refusals.totals["role"] == len(ROLES)


async def test_users_cancel_their_own_runs_and_operators_all(tmp_path: Path) -> None:
    async with cluster(tmp_path, **options(tmp_path)) as found:
        await joined(found)
        await found.ready()
        ann, bob = found.user("a", access=shown("ann")), found.user("b", access=shown("bob"))
        for user in (ann, bob):
            await runs(user, register(user, 1))
        a, b = ann.remote.client.number, bob.remote.client.number
        assert await said(found, "ann", CancelCall(str(b))) == (
            f"account 'ann' is a user's, and cancels only its own; client {b} is of account 'bob'"
        )
        assert (await said(found, "ann", CancelCall("ann/a"))).client == a
        assert (await said(found, "ann", CancelCall("ann"))).client == a
        assert (await said(found, "olga", CancelCall(str(b)))).client == b
        assert (await said(found, "", CancelCall(str(b)))).client == b
        assert await said(found, "vic", CancelCall(str(a))) == (
            "account 'vic' is a viewer's, and Cancel needs the role operator or user"
        )


async def test_viewers_look_and_leave_no_code(tmp_path: Path) -> None:
    async with cluster(tmp_path, **options(tmp_path)) as found:
        for request in (Status(), UsageCall(), Recorded(), Look()):
            for name in ("", *ROLES):
                assert isinstance(await said(found, name, request), PAIRS[type(request)]), (name, request)
        assert await said(found, "vic", Keep(b"code")) == (
            "account 'vic' is a viewer's, and Keep needs the role operator or user"
        )


def test_each_call_has_its_roles() -> None:
    assert set(MAY) == set(PAIRS)


async def test_a_client_proves_its_number_when_it_comes_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, **options(tmp_path)) as found:
        await joined(found)
        await found.ready()
        ann = found.user("a", access=shown("ann"))
        await runs(ann, register(ann, 1))
        name, proof = ann.remote.mine(CONTROLLER)
        number = ann.remote.client.number
        assert name.startswith("who/")
        assert proof == f"client/{number}/{ann.remote.node.passes[f'client/{number}']}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Access]:
    folder = authority(tmp_path_factory.mktemp("certificates") / "ca")
    return {name: issued(folder, key=name, common_name=name) for name in ("host", "ann.example", "eve.example")}


async def test_a_certificate_says_whose_a_caller_is(tmp_path: Path, certificates: dict[str, Access]) -> None:
    ours = msgspec.structs.replace(
        certificates["host"], token="ours", people=(Person(Account("ann", "user", 1, 0), certificate="ann.example"),)
    )
    async with cluster(tmp_path, access=ours, agents=False) as found:
        for host in range(2):
            await found.agent(host, access=msgspec.structs.replace(ours, people=()))
        await found.ready()
        ann = found.user("a", access=certificates["ann.example"])
        await runs(ann, register(ann, 1))
        assert list(clients(found)) == ["ann/a"]
        assert await ann.head.ask(Status())
        eve = found.user("eve", access=certificates["eve.example"])
        await wait_until(lambda: eve.failures)
        with pytest.raises(CallError, match="the token is wrong or missing"):
            await eve.head.ask(Status())
