"""What is done to a file. Each damage is drawn from a generator, so a seed and a number name a file."""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

BIG = 3 << 20
NAMES = (
    "os:system", "subprocess:run", "builtins:exec", "evil:Evil", "evil", "evil_policies:Evil", "__import__('evil')",
    "!!python/object/apply:os.system [true]", "cos\nsystem\n(S'true'\ntR.", "${jndi:x}", "{0.__class__}",
    "file:///etc/passwd", "../../../../etc/passwd", "/etc/passwd", "../escaped", "a\x00b", "", " ", "\x1b]0;x\x07",
    "\ud800", "\u202ex", "x" * 5_000, "\n" * 50, "nan", "-inf", "1e999", "9" * 5_000, "NaN", "true", "None",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**12, 10**30, 1e308, -1e308, 0.5,
    float("nan"), float("inf"), float("-inf"), -0.0,
)  # fmt: skip


class Nested(NamedTuple):
    """Lists in lists, so deep. No encoder writes them, so each format's text is put in for it."""

    deep: int


def value(random: Random, deep: int = 2) -> Any:
    """Any value that JSON, TOML or msgpack can hold."""
    kind = random.randrange(7 if deep else 5)
    if kind == 0:
        return random.choice(NUMBERS)
    if kind == 1:
        return random.choice(NAMES)
    if kind == 2:
        return random.choice((None, True, False))
    if kind == 3:
        return random.randrange(-5, 300)
    if kind == 4:
        return Nested(random.choice((50, 400, 3_000, 100_000)))
    if kind == 5:
        return [value(random, deep - 1) for _ in range(random.randrange(4))]
    return {random.choice(NAMES[:20]): value(random, deep - 1) for _ in range(random.randrange(3))}


def changed(random: Random, tree: Any) -> Any:
    """The tree with one to three of its values replaced, removed, repeated or renamed."""
    for _ in range(random.randrange(1, 4)):
        tree = _once(random, tree)
    return tree


def _once(random: Random, tree: Any) -> Any:
    if isinstance(tree, dict) and tree and random.random() < 0.9:
        key = random.choice(list(tree))
        act = random.randrange(6)
        if act == 0:
            return {each: found for each, found in tree.items() if each != key}
        if act == 1:
            return {(random.choice(NAMES) if each == key else each): found for each, found in tree.items()}
        return {each: (_once(random, found) if each == key else found) for each, found in tree.items()}
    if isinstance(tree, list) and tree and random.random() < 0.9:
        at, act = random.randrange(len(tree)), random.randrange(6)
        if act == 0:
            return [*tree[:at], *tree[at + 1 :]]
        if act == 1:
            return [*tree[:at], *[tree[at]] * random.choice((2, 50)), *tree[at:]]
        return [*tree[:at], _once(random, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, int | float) and not isinstance(tree, bool) and random.random() < 0.6:
        return random.choice(NUMBERS)
    if isinstance(tree, str) and random.random() < 0.6:
        return random.choice(NAMES)
    return value(random)


# --- bytes ----------------------------------------------------------------------------------------------------------


def _flipped(random: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 3, 20))):
        if found:
            found[random.randrange(len(found))] ^= 1 << random.randrange(8)
    return bytes(found)


def _spliced(random: Random, data: bytes) -> bytes:
    one, other = sorted(random.randrange(len(data) + 1) for _ in range(2))
    to = random.randrange(len(data) + 1)
    return data[:to] + data[one:other] + data[to:]


def _overwritten(random: Random, data: bytes) -> bytes:
    at, size = random.randrange(len(data) + 1), random.randrange(1, 40)
    fill = random.choice((b"\xff" * size, b"\x00" * size, random.randbytes(size)))
    return data[:at] + fill + data[at + size :]


BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (
    _flipped,
    _spliced,
    _overwritten,
    lambda random, data: data[: random.randrange(len(data) + 1)],
    lambda random, data: data[random.randrange(len(data) + 1) :],
    lambda random, data: random.randbytes(random.choice((0, 1, 8, 100, 4_096))),
    lambda random, data: random.choice((b"\x00", b"\xff", b"[", b"{", b"a.", b'{"a":', b"\n", b"=")) * 200_000,
    lambda random, data: data + random.randbytes(random.randrange(1, 100)),
    lambda random, data: gzip.compress(data),
    lambda random, data: gzip.compress(data + bytes(BIG), 9),
    lambda random, data: zlib.compress(bytes(BIG), 9),
    lambda random, data: data.replace(b"1", random.choice((b"9" * 5_000, b"-1", b"1e400", b"1" * 19))),
    lambda random, data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r"),
)


def of_bytes(random: Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(random.choice(BYTES)(random, data))


def of_place(random: Random, path: Path) -> None:
    """Something else in the place of the file: nothing, a folder, a pipe, links."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    what = random.randrange(6)
    if what == 0:
        path.mkdir()
    elif what == 1:
        os.mkfifo(path)
    elif what == 2:
        path.symlink_to(path.name)
    elif what == 3:
        path.symlink_to("/dev/zero")
    elif what == 4:
        path.symlink_to("../../../../etc/passwd")
