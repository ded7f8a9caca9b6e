"""Who may come, and where may be listened: what is unprotected is refused with the way to protect it."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend import access
from backend.access import Access, Refused


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:5", "[::1]:80", "127.9.9.9:1"])
def test_loopback_needs_nothing(address: str) -> None:
    Access().may_bind(address)


@pytest.mark.parametrize("address", ["0.0.0.0:29000", "[::]:0", "10.0.0.3:29000", "head:29000"])
def test_anything_else_is_refused_unprotected_and_the_text_says_what_to_do(address: str) -> None:
    with pytest.raises(Refused, match=r"--token-file FILE.*--ca, --cert, --key.*127\.0\.0\.1"):
        Access().may_bind(address)
    Access("token").may_bind(address)
    Access("", b"ca", b"cert", b"key").may_bind(address)


def test_half_of_mutual_tls_is_none() -> None:
    with pytest.raises(Refused, match="cert and key is missing"):
        Access(ca=b"ca")


def test_a_token_is_compared_whole() -> None:
    ours = Access("sesame")
    assert ours.accepts(dict(ours.shown()))
    for other in (Access(), Access("sesam"), Access("sesame "), Access("Sesame")):
        assert not ours.accepts(dict(other.shown()))
    assert Access().accepts({})


def test_what_the_options_name_is_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sesame\n")
    assert access.read(str(file)) == Access("sesame")
    with pytest.raises(Refused, match=r"cannot read .*nothing"):
        access.read(str(tmp_path / "nothing"))


def test_a_pass_is_for_one_name_of_one_cluster() -> None:
    proof = access.proof(b"secret", "client/1")
    assert access.proves(b"secret", "client/1", proof)
    assert not access.proves(b"secret", "client/2", proof)
    assert not access.proves(b"another", "client/1", proof)
    assert not access.proves(b"secret", "client/1", "")
