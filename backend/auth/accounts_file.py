"""The accounts file: who may use a cluster, by which token or certificate, and how much. A table for each account:

    [ann]
    token_sha256 = "2cf2..."        # of her token, which is written nowhere: `seaway token ann` makes both
    certificate = "ann.example"     # or the common name of her certificate; or both
    role = "user"                   # or "operator", "viewer"
    weight = 4                      # the highest that she may ask for (1)
    priority = 0                    # likewise (0)
    devices = 16                    # quotas; without one there is no limit

It is read once, when the controller starts, and checked as a whole: one error names the table and what to write.
Neighbours: `access`, which finds out whose a caller is; `core.model.account`, which says what the limits are.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from core.model import Account, Impossible, Role, table_of

from ..plain_files import plain_bytes
from .access import CLUSTER, AccessRefused, Person

NAME = re.compile(r"[\w.@+-]{1,64}")
HASH = re.compile("[0-9a-f]{64}")
ROLES = tuple(role for role in get_args(Role) if role != CLUSTER.role)
QUOTAS = ("devices", "device_memory", "host_memory", "programs", "runs", "device_seconds")
KEYS = ("token_sha256", "certificate", "role", "weight", "priority", *QUOTAS)
MOST = 4096  # accounts
LARGEST = 1 << 60


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
            for what, shown in (("token", person.token_sha256), ("certificate", person.certificate)):
                if shown and seen.setdefault(shown, name) != name:
                    raise Impossible(f"has the {what} of account {seen[shown]!r}: each needs its own")
        except Impossible as error:
            raise AccessRefused(f"{file}: account {name!r:.80} {error}") from None
        found.append(person)
    return tuple(found)


def _person(name: str, table: object) -> Person:
    if not isinstance(table, dict):
        raise Impossible("is no table: write each key below its account's name, as in `seaway token NAME`")
    if not NAME.fullmatch(name) or name == CLUSTER.name:
        raise Impossible(
            f"is no name for an account: 1 to 64 letters, digits and _ . @ + -, and not {CLUSTER.name!r}, which is "
            "what has the cluster's own token"
        )
    for key in table:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, 1, 0.5)
            raise Impossible(f"has no key {key!r:.80}; " + (f"did you mean {near[0]!r}?" if near else ", ".join(KEYS)))
    token, certificate = _text(table, "token_sha256").lower(), _text(table, "certificate")
    if token and not HASH.fullmatch(token):
        raise Impossible("token_sha256 is no SHA-256: 64 hexadecimal digits, as `seaway token NAME` prints")
    if not token and not certificate:
        raise Impossible("needs token_sha256 or certificate, or nobody could use it")
    role: Any = _text(table, "role") or "user"
    if role not in ROLES:
        raise Impossible(f"role {role!r:.80} is none of {', '.join(ROLES)}")
    limits = {key: _number(table, key, 0) for key in QUOTAS if key in table}
    account = Account(
        name, role, _number(table, "weight", 1, 1), _number(table, "priority", -LARGEST, 0), **limits
    )  # fmt: skip
    return Person(account, token, certificate)


def _text(table: dict[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or (key in table and not value):
        raise Impossible(f"{key} is text in quotes")
    return value


def _number(table: dict[str, Any], key: str, least: int, otherwise: int = 0) -> int:
    value = table.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise Impossible(f"{key} is a whole number" + (f", at least {least}" if least >= 0 else ""))
    return value


def new_token(name: str, role: Role = "user") -> tuple[str, str]:
    """A new secret, and the table of an account that has it. Raises AccessRefused for what is no name."""
    secret = secrets.token_hex(32)
    table = {"token_sha256": hashlib.sha256(secret.encode()).hexdigest(), "role": role, "weight": 1, "priority": 0}
    try:
        _person(name, table)
    except Impossible as error:
        raise AccessRefused(f"{name!r:.80} {error}") from None
    lines = [f"{key} = {value}" if isinstance(value, int) else f'{key} = "{value}"' for key, value in table.items()]
    return secret, "\n".join([f'["{name}"]', *lines])
