"""`seaway token` makes the token of an account; `seaway usage` shows what each account has used."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from backend.auth import ROLES, AccessRefused, new_token
from backend.wire import UsageCall, UsageReply

from ..errors import SeawayError
from .status import access_of, add_access, address_of, asked

SINCE = re.compile("([1-9][0-9]{0,3})([hd])")
MOST = 31 * 24  # hours for which the controller keeps use by the hour
COLUMNS = ("device_seconds", "bytes_in", "bytes_out", "runs")


def add(commands: Any) -> None:
    token = commands.add_parser(
        "token",
        help="make a token for one person",
        description="Prints a new token to stderr, once, and to stdout the account that goes with it, for the file of "
        "`seaway controller --accounts`. That has the token's hash, not the token.",
        epilog="Example: seaway token ann >> accounts.toml",
    )
    token.add_argument("name", help="the account's name")
    token.add_argument("--role", choices=ROLES, default="user", help="what it may do (%(default)s)")
    token.set_defaults(run=_token)
    usage = commands.add_parser("usage", help="show what each account has used")
    usage.add_argument("address", nargs="?", default="127.0.0.1:29000", help="the controller's address (%(default)s)")
    since = "how far back, in whole hours: 24h, 7d; all: since the counts began (%(default)s)"
    usage.add_argument("--since", default="24h", metavar="TIME", help=since)
    usage.add_argument("--parquet", default="", metavar="FILE", help="write the table to this file, too")
    usage.add_argument("--json", action="store_true", help="print JSON, for scripts, with limits")
    add_access(usage)
    usage.set_defaults(run=_usage)


def _token(given: argparse.Namespace) -> int:
    try:
        secret, table = new_token(given.name, given.role)
    except AccessRefused as refused:
        raise SeawayError(f"token {refused}") from None
    print(f"the token of {given.name}, which is shown only once:\n{secret}", file=sys.stderr)
    print(f"\n{table}")
    return 0


def _usage(given: argparse.Namespace) -> int:
    every = given.since == "all"
    hours = 1 if every else _hours(given.since)
    reply: UsageReply = asked(address_of(given.address, "usage"), access_of(given), UsageCall(hours))
    found: list[dict[str, Any]] = json.loads(reply.json)
    rows = [{"account": each["account"], **{key: each["used" if every else "lately"][key] for key in COLUMNS}}
            for each in found]  # fmt: skip
    rows.sort(key=lambda row: -row["device_seconds"])
    if given.parquet:
        _write(Path(given.parquet), rows)
    print(json.dumps(found, indent=1) if given.json else usage_table(rows))
    return 0


def _hours(text: str) -> int:
    found = SINCE.fullmatch(text)
    hours = int(found[1]) * (24 if found[2] == "d" else 1) if found else 0
    if not 1 <= hours <= MOST:
        raise SeawayError(f"--since {text}: from 1h to 31d, for which use is kept by the hour; or all")
    return hours


def usage_table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'account':<24}{'device-seconds':>16}{'bytes in':>18}{'bytes out':>18}{'runs':>10}"]
    for row in rows:
        name = row["account"] or "(all clients)"
        lines.append(
            f"{name:<24}{row['device_seconds']:>16,.1f}{row['bytes_in']:>18,}{row['bytes_out']:>18,}{row['runs']:>10,}"
        )
    return "\n".join(lines)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = (pa.string(), pa.float64(), pa.int64(), pa.int64(), pa.int64())
    columns = [pa.field(name, kind) for name, kind in zip(("account", *COLUMNS), kinds, strict=True)]
    try:
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), path)
    except OSError as error:
        raise SeawayError(f"cannot write {path}: {error.strerror or error}") from None
