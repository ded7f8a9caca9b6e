"""The accounts file: what it says, who a caller is by it, and one clear error for each thing that is wrong in it."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.auth.access import CLUSTER, Access, AccessRefused, Person
from backend.auth.accounts_file import new_token, read_accounts
from core.model import Account
from tests.laws import examples

HASH = hashlib.sha256(b"sesame").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


def read(folder: Path, text: str | bytes) -> tuple[Person, ...]:
    file = folder / "accounts.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_accounts(str(file))


def test_a_table_is_an_account_with_its_limits(tmp_path: Path) -> None:
    ann, bob = read(
        tmp_path,
        f"""
        [ann]
        token_sha256 = "{HASH}"
        role = "operator"
        weight = 4
        priority = 2
        devices = 16
        device_seconds = 3600
        ["bob@example.org"]
        certificate = "bob.example"
        """,
    )
    assert ann == Person(Account("ann", "operator", 4, 2, devices=16, device_seconds=3600), HASH)
    assert bob == Person(Account("bob@example.org", "user", 1, 0), "", "bob.example")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has 0 accounts: from 1 to 4096; `seaway token NAME` makes one"),
        ("x = 1", r"account 'x' is not as it should be: .*Expected `object`, got `int`"),
        ("[ann]\nrole 1", "is no TOML: .* line 2"),
        ("[ann]\nrole = 'user'\n[ann]\n", r"is no TOML: .*'ann'.* line 3"),
        ("[ann]", r"account 'ann' needs token_sha256 or certificate"),
        ("[ann]\ntoken_sha256 = 'sesame'", "Expected `str` matching regex .* `\\$.token_sha256`"),
        ("[ann]\ntoken_sha256 = 5", "Expected `str`, got `int` - at `\\$.token_sha256`"),
        ("[ann]\ncertificate = ''", "Expected `str` of length >= 1 - at `\\$.certificate`"),
        ("[ann]\ntoken = 'x'", "unknown field `token`.*; the keys are token_sha256, certificate, role, weight"),
        ("[ann]\ncertificate = 'a'\nrole = 'admin'", "enum value 'admin'.*; a role is viewer, user, operator"),
        ("[ann]\ncertificate = 'a'\nrole = 'cluster'", "enum value 'cluster'"),
        ("[ann]\ncertificate = 'a'\nweight = 0", "Expected `int` >= 1 - at `\\$.weight`"),
        ("[ann]\ncertificate = 'a'\nweight = true", "Expected `int`, got `bool` - at `\\$.weight`"),
        ("[ann]\ncertificate = 'a'\npriority = 1.5", "Expected `int`, got `float`"),
        ("[ann]\ncertificate = 'a'\ndevices = -1", "Expected `int` >= 0 - at `\\$.devices`"),
        ("['a/b']\ncertificate = 'a'", r"account 'a/b' has no name for one"),
        ("[cluster]\ncertificate = 'a'", r"account 'cluster' has no name for one"),
        ("[a]\ncertificate = 'a'\n[b]\ncertificate = 'a'", r"account 'b' has the token or certificate of account 'a'"),
        (
            f"[a]\ntoken_sha256 = '{HASH}'\n[b]\ntoken_sha256 = '{HASH.upper()}'",
            r"account 'b' has the token or certificate of account 'a'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_table_and_what_to_write(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(AccessRefused, match=why) as refused:
        read(tmp_path, text)
    assert "accounts.toml" in str(refused.value)


def test_a_file_that_is_not_there_or_no_file_is_said_to_be_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(AccessRefused, match="cannot read "):
            read_accounts(str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("accounts")


WORDS = st.sampled_from(
    ["[ann]\n", "[bob.x]\n", "weight", " = ", "1", "'x'", "role", "\n", "certificate = 'a'\n", "[[a]]\n"]
)


@examples(200)
@given(st.binary(max_size=200) | st.lists(WORDS, max_size=12).map(lambda words: "".join(words).encode()))
@example(b"[a]\ncertificate = '\xc3\xa9'")
@example(b"a." * 50_000 + b"b = 1")
@example(b"x = " + b"[" * 10_000)
def test_no_bytes_raise_another_error(folder: Path, data: bytes) -> None:
    with suppress(AccessRefused):
        assert all(isinstance(each, Person) for each in read(folder, data))


def test_a_new_token_fits_its_table_and_is_not_in_it(tmp_path: Path) -> None:
    secret, table = new_token("ann", "viewer")
    assert secret not in table
    (person,) = people = read(tmp_path, table)
    assert person.account == Account("ann", "viewer", 1, 0)
    assert Access("ours", people=people).identify(secret) == person.account
    with pytest.raises(AccessRefused, match="account 'a/b' has no name for one"):
        new_token("a/b", "user")


# --- who a caller is --------------------------------------------------------------------------------------------------

ANN, BOB = Account("ann", "user"), Account("bob", "viewer")
ACCESS = Access("ours", people=(Person(ANN, HASH, "ann.example"), Person(BOB, certificate="bob.example")))


@pytest.mark.parametrize(
    ("token", "certificate", "who"),
    [
        ("ours", "", CLUSTER),
        ("ours", "ann.example", CLUSTER),
        ("sesame", "", ANN),
        ("sesame", "bob.example", ANN),
        ("", "ann.example", ANN),
        ("", "bob.example", BOB),
        ("", "", None),
        ("", "agent.example", None),
        ("guess", "", None),
        ("guess", "ann.example", None),
        (HASH, "", None),
    ],
)
def test_a_caller_is_who_its_token_says_or_its_certificate_if_it_has_no_token(
    token: str, certificate: str, who: Account | None
) -> None:
    assert ACCESS.identify(token, certificate) == who


def test_without_accounts_the_one_token_is_anybodys() -> None:
    assert Access("ours").identify("ours") == Account()
    assert Access("ours").identify("guess", "ann.example") is None
    assert Access().identify("") == Account()


def test_accounts_need_a_token_of_the_clusters_own() -> None:
    with pytest.raises(AccessRefused, match="accounts need a token of the cluster's own, too"):
        Access(people=ACCESS.people)
