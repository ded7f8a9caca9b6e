"""Which callers are admitted, and where a process may listen: an unprotected address is refused, with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.auth import access
from backend.auth.access import Access, AccessRefused


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:5", "[::1]:80", "127.9.9.9:1"])
def test_loopback_needs_no_protection(address: str) -> None:
    Access().may_bind(address)


@pytest.mark.parametrize("address", ["0.0.0.0:29000", "[::]:0", "10.0.0.3:29000", "head:29000"])
def test_any_other_unprotected_address_is_refused_with_the_remedy(address: str) -> None:
    with pytest.raises(AccessRefused, match=r"--token-file FILE.*--ca, --cert, --key.*127\.0\.0\.1"):
        Access().may_bind(address)
    Access("token").may_bind(address)
    Access("", b"ca", b"cert", b"key").may_bind(address)


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "",
        ":29000",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "127.0.0.1:" + "9" * 5000,
        "http://h:1",
        "::1:5",
        "a b:1",
    ],
)
def test_an_invalid_address_is_refused_protected_or_not(address: str) -> None:
    for protected in (Access(), Access("token")):
        with pytest.raises(
            AccessRefused, match=r"cannot listen on '.*': an address is like 127\.0\.0\.1:29000"
        ) as refused:
            protected.may_bind(address)
        assert repr(address) in str(refused.value)


@pytest.mark.parametrize(
    ("given", "place"),
    [("grpc://head:5", "head:5"), ("head", "head:29000"), ("10.0.0.1:80/", "10.0.0.1:80"), ("[::1]:80", "[::1]:80")],
)
def test_a_controller_is_reached_at_a_host_and_a_port(given: str, place: str) -> None:
    assert access.place_of(given) == place


@pytest.mark.parametrize("given", ["http://x", "", "grpc://", "head:0", "head:x", ":5", "a/b", "::1:5", 5, None])
def test_an_invalid_controller_address_is_refused(given: object) -> None:
    with pytest.raises(AccessRefused, match="an address is like 'grpc://head:29000'"):
        access.place_of(given)


def test_mutual_tls_needs_all_of_its_files() -> None:
    with pytest.raises(AccessRefused, match="cert and key is missing"):
        Access(ca=b"ca")


def test_a_token_is_compared_as_a_whole() -> None:
    ours = Access("sesame")
    assert ours.has(Access.token_in(dict(ours.shown())))
    for other in (Access(), Access("sesam"), Access("sesame "), Access("Sesame")):
        assert not ours.has(Access.token_in(dict(other.shown())))
    assert Access().has("")


def test_the_files_that_the_options_name_are_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sesame\n")
    assert access.read(str(file)) == Access("sesame")
    with pytest.raises(AccessRefused, match=r"cannot read .*nothing"):
        access.read(str(tmp_path / "nothing"))


@pytest.mark.parametrize("contents", ["", " \n\n"])
@pytest.mark.parametrize(
    ("option", "remedy"),
    [("token_file", "put a secret in it"), ("ca", "--ca names"), ("cert", "--cert names"), ("key", "--key names")],
)
def test_an_empty_file_is_refused_because_it_would_protect_nothing(
    tmp_path: Path, option: str, remedy: str, contents: str
) -> None:
    file = tmp_path / "empty"
    file.write_text(contents)
    with pytest.raises(AccessRefused, match=f"{file} is empty, and was given to protect the cluster: {remedy}"):
        access.read(**{option: str(file)})


def test_a_pass_is_for_one_name_of_one_cluster() -> None:
    proof = access.proof(b"secret", "client/1")
    assert access.proves(b"secret", "client/1", proof)
    assert not access.proves(b"secret", "client/2", proof)
    assert not access.proves(b"another", "client/1", proof)
    assert not access.proves(b"secret", "client/1", "")


@pytest.mark.parametrize(
    ("bind", "said", "place"),
    [
        ("10.0.0.1:29001", "", ("10.0.0.1", 29001)),
        ("127.0.0.1:0", "", ("127.0.0.1", 0)),
        ("0.0.0.0:29001", "10.0.0.1", ("10.0.0.1", 0)),
        ("0.0.0.0:29001", "node-7.example:30001", ("node-7.example", 30001)),
        ("[::]:29001", "[fe80::1]:30001", ("[fe80::1]", 30001)),
        ("[::1]:29001", "[fe80::1]", ("[fe80::1]", 0)),
    ],
)
def test_other_processes_reach_a_host_where_it_listens_or_where_it_advertises(
    bind: str, said: str, place: tuple[str, int]
) -> None:
    assert access.advertised(bind, said) == place


@pytest.mark.parametrize(
    ("bind", "said", "words"),
    [
        ("0.0.0.0:29001", "", r"nobody can dial 0\.0\.0\.0:29001: .*--advertise ADDRESS"),
        ("[::]:29001", "", r"nobody can dial \[::\]:29001: .*--advertise ADDRESS"),
        ("127.0.0.1:0", "0.0.0.0:29001", r"nobody can dial 0\.0\.0\.0:29001"),
        ("127.0.0.1:0", "a b", r"--advertise a b: it is like 10\.0\.0\.10 or 10\.0\.0\.10:29001"),
        ("127.0.0.1:0", "host:port", r"--advertise host:port: it is like"),
        ("127.0.0.1:0", "fe80::1", r"--advertise fe80::1: it is like"),
    ],
)
def test_an_address_that_nobody_can_dial_is_refused(bind: str, said: str, words: str) -> None:
    with pytest.raises(AccessRefused, match=words):
        access.advertised(bind, said)


@pytest.mark.parametrize(
    ("address", "controller", "dialled"),
    [
        ("0.0.0.0:4711", "head:29000", "head:4711"),
        ("[::]:4711", "[fe80::1]:29000", "[fe80::1]:4711"),
        ("10.0.0.1:4711", "head:29000", "10.0.0.1:4711"),
        ("", "head:29000", ""),
    ],
)
def test_a_wildcard_address_of_the_controller_is_dialled_at_the_controllers_host(
    address: str, controller: str, dialled: str
) -> None:
    """For example, the service of a world on another machine that listens at all addresses."""
    assert access.reached(address, controller) == dialled
