"""A door to a cluster that has TLS and a token: it is let in, or says in one line which of its files is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.bench.frame.deployed import Deployed
from experiments.bench.frame.door_server import opened
from tests.command_lines import Refused, refused

from ...streams.certificates import authority, issued
from ..program_runs import python

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="this machine has no openssl")


class Protected(NamedTuple):
    cluster: Deployed
    files: dict[str, str]  # of our certificates, and the token
    other: dict[str, str]  # of another CA, and a guess

    def options(self, **other: str | None) -> list[str]:
        """Ours, but for those that are given: a name in `other`, or None to leave it out."""
        chosen = self.files | {name: self.other[value] if value else "" for name, value in other.items()}
        return [word for name, file in chosen.items() if file for word in (f"--{name}", file)]


def files(folder: Path, token: str) -> dict[str, str]:
    issued(authority(folder))
    (folder / "token").write_text(token)
    return {"ca": f"{folder}/ca.pem", "cert": f"{folder}/host.pem", "key": f"{folder}/host.key",
            "token-file": f"{folder}/token"}  # fmt: skip


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    folder = tmp_path_factory.mktemp("protected")
    ours, theirs = files(folder / "ours", "sesame"), files(folder / "theirs", "guess")
    words = [word for name, file in ours.items() for word in (f"--{name}", file)]
    cluster = Deployed(folder, 1, ["--devices-per-host", "2", *words])
    try:
        cluster.start_agents(["--trust-clients", *words], 2)
        yield Protected(cluster, ours, theirs)
    finally:
        cluster.children.end_all()


WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "wrong token": (
        {"token-file": "token-file"},
        "refused our credentials: the token is wrong or missing. Give --token-file",
    ),
    "no token": ({"token-file": None}, "refused our credentials: the token is wrong or missing. Give --token-file"),
    "another CA": ({"ca": "ca"}, "certificate verify failed"),
    "a certificate of another CA": (
        {"cert": "cert", "key": "key"},
        "--ca, --cert and --key name certificates of the cluster's CA",
    ),
    "no certificates": (
        {"ca": None, "cert": None, "key": None},
        "--ca, --cert and --key name certificates of the cluster's CA",
    ),
    "no key": ({"key": None}, "mutual TLS needs a CA, a certificate and a key; key is missing"),
}


@pytest.fixture(scope="module")
def refusals(protected: Protected) -> dict[str, Refused]:
    """What becomes of each door that does not start."""
    door = ["door", "--connect", protected.cluster.address, "--wait", "1"]
    return dict(zip(WRONG, refused([[*door, *protected.options(**wrong)] for wrong, _ in WRONG.values()]), strict=True))


def test_a_program_computes_through_tls_with_the_token(protected: Protected) -> None:
    code = "import jax; x = jax.numpy.ones((64, 64)); print(len(jax.devices()), float((x @ x).sum()))"
    with opened(2, ["--connect", f"grpc://{protected.cluster.address}", *protected.options()]) as door:
        ended = python("-c", code, env=door.env)
    assert ended.out == "2 262144.0\n", ended.err


@pytest.mark.parametrize("wrong", WRONG)
def test_a_door_that_is_not_let_in_says_which_of_its_files_is_wrong(
    wrong: str, protected: Protected, refusals: dict[str, Refused]
) -> None:
    code, text = refusals[wrong]
    assert code == 1
    (said,) = text.splitlines()
    assert said.startswith("seaway")
    assert protected.cluster.address in said
    assert WRONG[wrong][1] in said
    assert "sesame" not in said
