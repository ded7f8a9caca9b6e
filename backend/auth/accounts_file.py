"""The accounts file: who may use a cluster, by which token or certificate, and how much. A table for each account.

It is read once, when the controller starts, and checked as a whole. `AccountTable` says what may be in it.
Neighbours: `access`, which finds out whose a caller is; `core.model.account`, which says what the limits are.
"""

import hashlib
import re
import secrets
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from core.model import Account, Impossible, table_of

from ..plain_files import plain_bytes
from .access import CLUSTER, AccessRefused, Person

NAME = re.compile(r"[\w.@+-]{1,64}")
MOST = 4096  # accounts
LARGEST = 1 << 60
Persons = Literal["viewer", "user", "operator"]
ROLES = get_args(Persons)
Quota = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class AccountTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From `role` on as `Account`. The token itself is written nowhere: `seaway token` makes it, with its hash."""

    token_sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")] = ""
    certificate: Annotated[str, msgspec.Meta(min_length=1)] = ""  # a common name
    role: Persons = "user"
    weight: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)] = 1
    priority: Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)] = 0
    devices: Quota | None = None
    device_memory: Quota | None = None
    host_memory: Quota | None = None
    programs: Quota | None = None
    runs: Quota | None = None
    device_seconds: Quota | None = None


KEYS = f"the keys are {', '.join(AccountTable.__struct_fields__)}; a role is {', '.join(ROLES)}"


def read_accounts(file: str) -> tuple[Person, ...]:
    """Raises AccessRefused, which says what is wrong with which table."""
    try:
        tables = table_of(plain_bytes(Path(file)), tomllib.loads)
    except OSError as error:
        raise AccessRefused(f"cannot read {file}: {error.strerror}") from None
    except Impossible as error:
        raise AccessRefused(f"{file} {error}") from None
    if not 1 <= len(tables) <= MOST:
        raise AccessRefused(f"{file} has {len(tables)} accounts: from 1 to {MOST}; `seaway token NAME` makes one")
    found: list[Person] = []
    seen: dict[str, str] = {}  # a hash or certificate -> the account that has it
    for name, table in tables.items():
        try:
            person = _person(name, table)
            for shown in filter(None, (person.token_sha256, person.certificate)):
                if seen.setdefault(shown, name) != name:
                    raise Impossible(f"has the token or certificate of account {seen[shown]!r}: each needs its own")
        except Impossible as error:
            raise AccessRefused(f"{file}: account {name!r:.80} {error}") from None
        found.append(person)
    return tuple(found)


def _person(name: str, table: Any) -> Person:
    if not NAME.fullmatch(name) or name == CLUSTER.name:
        raise Impossible(f"has no name for one: 1 to 64 letters, digits and _ . @ + -, and not {CLUSTER.name!r}")
    try:
        read = msgspec.convert(table, AccountTable)
    except msgspec.ValidationError as error:
        raise Impossible(f"is not as it should be: {str(error)!r:.200}; {KEYS}") from None
    if not read.token_sha256 and not read.certificate:
        raise Impossible("needs token_sha256 or certificate, or nobody could use it")
    _, _, *limits = msgspec.structs.astuple(read)
    return Person(Account(name, *limits), read.token_sha256.lower(), read.certificate)


def new_token(name: str, role: str) -> tuple[str, str]:
    """A new secret, and the table of an account that has it. Raises AccessRefused for what is no name."""
    secret = secrets.token_hex(32)
    hashed = hashlib.sha256(secret.encode()).hexdigest()
    try:
        _person(name, {"token_sha256": hashed, "role": role})
    except Impossible as error:
        raise AccessRefused(f"account {name!r:.80} {error}") from None
    return secret, f'["{name}"]\ntoken_sha256 = "{hashed}"\nrole = "{role}"\nweight = 1\npriority = 0'
