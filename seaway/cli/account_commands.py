"""`seaway token` makes the token of an account; `seaway usage` shows what each account has used."""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from backend.auth import ROLES, new_token
from backend.wire import Report, UsageCall

from ..errors import SeawayError
from .status import access_of, add_access, address_of, asked

SINCE = re.compile("([1-9][0-9]{0,2})([hd])")
MOST = 31 * 24  # hours for which the controller keeps use by the hour
COLUMNS = ("device_seconds", "bytes_in", "bytes_out", "runs")


def add(commands: Any) -> None:
    about = "make a token, shown once on stderr, and its account, on stdout, for `seaway controller --accounts`"
    token = commands.add_parser("token", help=about, epilog="Example: seaway token ann >> accounts.toml")
    token.add_argument("name", help="the account's name")
    token.add_argument("--role", choices=ROLES, default="user", help="what it may do (%(default)s)")
    token.set_defaults(run=_token)
    usage = commands.add_parser("usage", help="show what each account has used")
    usage.add_argument("address", nargs="?", default="127.0.0.1:29000", help="the controller's address (%(default)s)")
    usage.add_argument("--since", default="24h", metavar="TIME", help="hours or days, like 7d, or all (%(default)s)")
    usage.add_argument("--parquet", default="", metavar="FILE", help="write the table to this file, too")
    usage.add_argument("--json", action="store_true", help="print JSON, for scripts, with limits")
    add_access(usage)
    usage.set_defaults(run=_usage)


def _token(given: argparse.Namespace) -> int:
    secret, table = new_token(given.name, given.role)
    print(f"the token of {given.name}, which is shown only once:\n{secret}", file=sys.stderr)
    print(f"\n{table}")
    return 0


def _usage(given: argparse.Namespace) -> int:
    hours, used = (1, "used") if given.since == "all" else (_hours(given.since), "lately")
    reply: Report = asked(address_of(given.address, "usage"), access_of(given), UsageCall(hours))
    found = json.loads(reply.json)
    rows = [{"account": each["account"], **{key: each[used][key] for key in COLUMNS}} for each in found]
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
        name, seconds = row["account"] or "(all clients)", f"{row['device_seconds']:,.1f}"
        lines.append(f"{name:<24}{seconds:>16}{row['bytes_in']:>18,}{row['bytes_out']:>18,}{row['runs']:>10,}")
    return "\n".join(lines)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    import pandas as pd

    try:
        pd.DataFrame(rows, columns=["account", *COLUMNS]).to_parquet(path, index=False)
    except OSError as error:
        raise SeawayError(f"cannot write {path}: {error.strerror or error}") from None
