"""Changes what a file holds, in its own format: other values, types, names and sizes, with sums that fit again."""

from __future__ import annotations

import contextlib
import gzip
import json as pyjson
import re
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from core.record.eventlog import MAGIC

from .damage import NAMES, Nested, changed

DEEP = re.compile(r'"@nested (\d+)@"')
ROWS = 20_000_000  # of a table that packs to nothing


def _marked(tree: Any) -> Any:
    if isinstance(tree, Nested):
        return f"@nested {tree.deep}@"
    if isinstance(tree, dict):
        return {str(key): _marked(found) for key, found in tree.items()}
    return [_marked(found) for found in tree] if isinstance(tree, list) else tree


def _brackets(match: re.Match[str]) -> str:
    return "[" * int(match[1]) + "]" * int(match[1])


def json(random: Random, path: Path) -> None:
    text = pyjson.dumps(_marked(changed(random, pyjson.loads(path.read_bytes()))))
    path.write_text(DEEP.sub(_brackets, text), encoding="utf-8", errors="surrogatepass")


def state(random: Random, path: Path) -> None:
    json(random, path / "controller.json")


def toml(random: Random, path: Path) -> None:
    tree = _marked(changed(random, tomllib.loads(path.read_text(encoding="utf-8"))))
    if not isinstance(tree, dict):
        tree = {"island": tree}
    text = "".join(f"{_key(key)} = {_toml(found)}\n" for key, found in tree.items())
    if random.random() < 0.05:
        text += random.choice(('"x".' * 5_000, "a." * 20_000, "[[island]]\n" * 5_000, "[" + "a." * 900)) + "a = 1\n"
    path.write_text(DEEP.sub(_brackets, text), encoding="utf-8", errors="surrogatepass")


def _key(key: str) -> str:
    return pyjson.dumps(key, ensure_ascii=True)


def _toml(tree: Any) -> str:
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(found)}" for key, found in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_toml, tree)) + "]"
    if isinstance(tree, float):
        return repr(tree)
    return pyjson.dumps(tree)


def csv(random: Random, path: Path) -> None:
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    act = random.randrange(5)
    if act == 0:
        found = changed(random, rows[0])
        rows[0] = [str(each) for each in found] if isinstance(found, list) else [str(found)]
    elif act == 1:
        path.write_text(",".join(rows[0]) + "\n" + '"' + "x\n" * 100_000)
        return
    elif act == 2:
        rows[0] += [f"column{number}" for number in range(random.choice((1, 20_000)))]
    else:
        row = random.choice(rows[1:])
        row[random.randrange(len(row))] = str(
            random.choice((*NAMES, "1e999999999", "1e-999999999", "0x10", "1" * 30_000))
        )
    text = "\n".join(",".join(row) for row in rows) + "\n"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


# --- Parquet --------------------------------------------------------------------------------------------------------


def parquet(random: Random, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    column, act = random.choice(table.column_names), random.randrange(8)
    at, rows = table.column_names.index(column), table.num_rows
    if act == 0:
        table = table.drop([column])
    elif act == 1:
        table = table.append_column(random.choice([name for name in NAMES if "\ud800" not in name]), table.column(at))
    elif act == 2:
        table = pa.concat_tables([table, table.slice(0, random.randrange(rows + 1))])
    elif act == 3:
        table = pa.table({name: pa.nulls(rows, pa.int64()) for name in table.column_names})
    elif act == 4:
        names = list(table.column_names)
        names[at] = names[0]
        table = table.rename_columns(names)
    elif act == 5 and random.random() < 0.2:
        zeros = pa.array(memoryview(bytes(8 * ROWS)).cast("q"))
        table = pa.table(dict.fromkeys(table.column_names, zeros))
    else:
        table = table.set_column(at, column, _column(random, rows, table.column(at)))
    pq.write_table(table, path, compression="zstd")


def _column(random: Random, rows: int, old: Any) -> Any:
    import pyarrow as pa

    numbers = (-1, 0, 7, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
    made: tuple[Callable[[], Any], ...] = (
        lambda: pa.array([random.choice(numbers) for _ in range(rows)], pa.int64()),
        lambda: pa.array(
            [random.choice(numbers) if random.random() < 0.1 else each for each in old.to_pylist()], old.type
        ),
        lambda: pa.array([random.choice((0.5, float("nan"), float("inf"), 1e308)) for _ in range(rows)], pa.float64()),
        lambda: pa.array([random.choice(NAMES[:20]) for _ in range(rows)], pa.string()),
        lambda: pa.array([[[1, 2], [3]] for _ in range(rows)], pa.list_(pa.list_(pa.int64()))),
        lambda: pa.array([{"a": 1} for _ in range(rows)], pa.struct([("a", pa.int64())])),
        lambda: pa.array([0] * rows, pa.timestamp("ns", "UTC")),
        lambda: pa.array([True] * rows, pa.bool_()),
        lambda: pa.array([b"\xff"] * rows, pa.binary()),
        lambda: pa.array([None] * rows, old.type),
    )
    for _ in range(20):
        try:
            return random.choice(made)()
        except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
            continue
    return pa.nulls(rows, pa.int64())


def trace(random: Random, path: Path) -> None:
    from seaway.trace import storage

    if random.random() < 0.5:
        json(random, path / storage.HEAD)
    else:
        parquet(random, random.choice(sorted(path.glob("*.parquet"))))
    with contextlib.suppress(RecursionError, TypeError, ValueError):  # its head is no table any more
        storage.sign(path)


# --- event logs -----------------------------------------------------------------------------------------------------


def log(random: Random, path: Path) -> None:
    """Records are decoded without their types, changed, and written again with the checksums that belong to them."""
    text = gzip.decompress(path.read_bytes())
    records = list(_records(text))
    if random.random() < 0.05:
        records = [*records[:2], *_heavy(random), *records[2:]]
    else:
        for _ in range(random.choice((1, 1, 1, 5))):
            at = 0 if random.random() < 0.4 else random.randrange(len(records))
            records[at] = _changed(random, records[at])
        act, at = random.randrange(8), random.randrange(1, len(records))
        if act == 0:
            del records[at]
        elif act == 1:
            records.insert(at, random.choice(records[1:]))
    out, crc = bytearray(MAGIC), 0
    for record in records:
        crc = zlib.crc32(record, crc)
        out += _size(len(record)) + crc.to_bytes(4, "big") + record
    path.write_bytes(gzip.compress(bytes(out), mtime=0))


def _changed(random: Random, record: bytes) -> bytes:
    tree = msgspec.msgpack.decode(record)
    for _ in range(20):
        try:
            return msgspec.msgpack.encode(changed(random, tree), enc_hook=_raw)
        except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
            continue
    return record


def _raw(found: Any) -> msgspec.Raw:
    raise TypeError(f"{found!r} has no msgpack")


def _heavy(random: Random) -> list[bytes]:
    """Records that pack to little and unpack to much."""
    return [
        random.choice(
            (
                b"\x96\x00\x00\x05\x00\xdd\x02\x00\x00\x00" + b"\x90" * (1 << 25) + b"\xa0",
                b"\x96\x00\x00\x05\x00\xdd\x02\x00\x00\x00" + b"\x80" * (1 << 25) + b"\xa0",
                b"\x96\x00\x00\x05\x00\x91" + b"\x91" * 3_000_000 + b"\xc0\xa0",
                b"\x96\x00\x00\x05\x00\x91\xdb\x01\xff\xff\xff" + b"x" * 0x01FFFFFF + b"\xa0",
            )
        )
    ]


def _size(size: int) -> bytes:
    found = bytearray()
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)


def _records(text: bytes) -> Any:
    at = len(MAGIC)
    while at < len(text):
        size = shift = 0
        while text[at] & 0x80:
            size |= (text[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        size |= text[at] << shift
        at += 5
        yield text[at : at + size]
        at += size
