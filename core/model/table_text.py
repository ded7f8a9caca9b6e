"""A table that a person wrote as TOML, from its bytes. A driver reads the file, and passes the parser.

The parser is Python's own. It takes any nesting by calling itself, and for a name of many parts the square of their
number, so a small file that somebody made to do so would keep it busy for hours.
"""

from __future__ import annotations

from collections.abc import Callable

from .errors import Impossible

MOST = 4 << 20  # bytes
MOST_DOTS = 100  # in a line


def table_of(data: bytes, loads: Callable[[str], dict[str, object]]) -> dict[str, object]:
    """The table. Raises Impossible, which says what is wrong; the caller adds which file it is."""
    if len(data) > MOST:
        raise Impossible(f"has {len(data):,} bytes; {MOST:,} at most")
    try:
        text = data.decode()
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(".") > MOST_DOTS:
                raise Impossible(f"has more than {MOST_DOTS} dots in line {number}")
        return loads(text)
    except ValueError as error:
        raise Impossible(f"is no TOML: {error}") from None
    except RecursionError:
        raise Impossible("is no TOML: it is nested too deeply") from None
