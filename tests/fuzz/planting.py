"""Plants a bug into core, or into what reads its traces, and searches seeds that show it. The bugs themselves are in
`planted`.

Each bug is a small change of one method or function. `search` counts the seeds that it takes to find one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

from .draw import draw
from .play import play

Patch = Callable[[type | ModuleType, str, Any], None]
Method = Callable[..., Any]


class Bug(NamedTuple):
    name: str
    sentence: str
    into: Callable[[Patch], None]
    first: int = 0  # the first seed with which it is searched


BUGS: dict[str, Bug] = {}  # the fuzzer finds each of these within 600 seeds


def bug(name: str, sentence: str, first: int = 0) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def keep(into: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS[name] = Bug(name, sentence, into, first)
        return into

    return keep


@contextmanager
def plant(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        BUGS[name].into(lambda owner, method, new: stack.enter_context(patch.object(owner, method, new)) and None)
        yield


def search(name: str, seeds: int = 500) -> tuple[int, str]:
    """Return (number of seeds needed, kind of the failure), or (0, "") if so many seeds do not find the bug."""
    first = BUGS[name].first
    for number in range(seeds):
        case = draw(first + number)
        with plant(name):
            result = play(case)
        if not result.good and play(case).good:  # the planted bug made it fail, and not another one
            return number + 1, result.kind
    return 0, ""


def every(n: int, method: Method, otherwise: Method) -> Method:
    """Return a method that calls `otherwise` in each n-th call."""
    count = [0]

    def call(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return (otherwise if count[0] % n == 0 else method)(*args, **kwargs)

    return call


def nothing(*args: Any, **kwargs: Any) -> None:
    pass


def table(seeds: int = 500) -> Iterator[str]:
    """Yield the lines of the table in planted.md."""
    yield "| planted bug | found by | seeds |"
    yield "|---|---|---:|"
    for each in BUGS.values():
        needed, kind = search(each.name, seeds)
        yield f"| {each.name} | {kind or 'nothing'} | {needed or f'more than {seeds}'} |"
