"""What the colours of a picture stand for: names of clients, programs or steps, each gang's name, and its colour."""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from . import style
from .busy import coded, coded_pairs
from .facts import Facts
from .times import Ints

ColorBy = Literal["auto", "client", "program", "step"] | Callable[[str, str, str], str]
MOST = len(style.COLORS)  # names with a colour; others are grey
_NUMBERS = re.compile(r"[\s_.\-\[(]*\d+[\])]*")


class Keys(NamedTuple):
    names: list[str]
    codes: Ints  # by gang
    colors: list[str]


def keyed(facts: Facts, color: ColorBy) -> Keys:
    """Names and colours of gangs. "auto" means clients if there are several, else programs, else steps.

    The seven names with most device time have colours of their own.
    """
    if callable(color):
        clients, client = coded(facts, "client")
        steps, step = coded_pairs(facts, facts.gangs["step"])
        pairs, which = np.unique(np.stack([client, step], axis=1), axis=0, return_inverse=True)
        names, codes = _merged([str(color(clients[c], *steps[s])) for c, s in pairs.tolist()], which.reshape(-1))
    elif color == "auto":
        names, codes = _first_that_differs(facts)
    elif color == "step":
        steps, codes = coded_pairs(facts, facts.gangs["step"])
        several = len({program for program, _ in steps}) > 1
        names = [f"{program}/{step}" if several else step for program, step in steps]
    elif color in ("client", "program"):
        names, codes = coded(facts, color)
    else:
        known = "'auto', 'client', 'program', 'step' or f(client, program, step) -> name"
        raise ValueError(f"color={color!r}; it is {known}")
    colors = [style.OTHER] * len(names)
    largest = np.argsort(-spent_by(facts, codes, len(names)), kind="stable")[:MOST]
    for at, code in enumerate(sorted(largest.tolist())):
        colors[code] = style.COLORS[at]
    return Keys(names, codes, colors)


def spent_by(facts: Facts, codes: Ints, count: int) -> Ints:
    """Device nanoseconds by code."""
    return np.bincount(codes, weights=facts.spent(), minlength=count).astype(np.int64)


def _first_that_differs(facts: Facts) -> tuple[list[str], Ints]:
    ran = facts.end >= 0
    for by in ("client", "program"):
        names, codes = coded(facts, by)
        if len(np.unique(codes[ran])) > 1:
            return names, codes
    pairs, codes = coded_pairs(facts, facts.gangs["step"])
    names = [step for _, step in pairs]
    if len(names) > MOST:  # "forward 12" is a kind of "forward"
        return _merged([_NUMBERS.sub("", name) or name for name in names], codes)
    return names, codes


def _merged(names: Sequence[str], codes: Ints) -> tuple[list[str], Ints]:
    """(the names that differ, codes among these)."""
    kinds = list(dict.fromkeys(names))
    return kinds, np.array([kinds.index(name) for name in names], dtype=np.int64)[codes]
