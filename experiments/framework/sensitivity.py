"""Sensitivity: how much conclusions change if a fitted value is halved or doubled, or if an option has another value to
which nothing was fitted (`ALSO`), by running the experiment again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .catalogue import Experiment, named
from .options import Option, Point, Value, Values, profile_of, read_all
from .tables import tidy

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (0.5, 2.0)
Variant = dict[str, Value]  # options with one value each


def variants(experiment: Experiment, chosen: Mapping[str, Values]) -> list[Point]:
    """What is to be measured for it: nothing if it has no conclusions in numbers, or rests on no fitted value."""
    narrowed = getattr(experiment, "SENSITIVITY", None)
    if getattr(experiment, "conclusions", None) is None or narrowed is None or "profile" not in chosen:
        return []
    changed = _changes(experiment, chosen)
    if not changed:
        return []
    base = _base(experiment, chosen)
    options = {**read_all(experiment.OPTIONS, {**chosen, **narrowed}), **{name: (base[name],) for name in base}}
    points = experiment.points(options)
    return named(experiment.NAME, [{**point, **each} for each in (base, *changed.values()) for point in points])


def moved(experiment: Experiment, chosen: Mapping[str, Values], rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """From the rows of all variants: a row a conclusion and change, with its value as it is, its value then, and the
    ratio."""
    conclusions: Any = experiment.conclusions  # type: ignore[attr-defined]
    found = list(rows)
    values = _of(found, _base(experiment, chosen), conclusions)
    then = {change: _of(found, each, conclusions) for change, each in _changes(experiment, chosen).items()}
    return tidy([
        {
            "change": change, "conclusion": name, "value": value, "then": mine.get(name),
            "ratio": _ratio(mine.get(name), value),
        }
        for change, mine in then.items() for name, value in values.items()
    ])  # fmt: skip


def _also(experiment: Experiment) -> dict[str, Values]:
    found: dict[str, Values] = getattr(experiment, "ALSO", {})
    return found


def _base(experiment: Experiment, chosen: Mapping[str, Values]) -> Variant:
    """The options that variants change, as they are: of several values, the first."""
    return {name: chosen[name][0] for name in ("profile", *_also(experiment))}


def _changes(experiment: Experiment, chosen: Mapping[str, Values]) -> dict[str, Variant]:
    """Each change in words, and the variant that it makes. There are none if nothing is fitted."""
    base = _base(experiment, chosen)
    profile = str(base["profile"])
    fitted = profile_of(profile).fitted
    found: dict[str, Variant] = {
        f"{field} x{factor:g}": {**base, "profile": f"{profile}{'+' if ':' in profile else ':'}{field}*{factor:g}"}
        for field in fitted for factor in FACTORS
    }  # fmt: skip
    for name, others in _also(experiment).items() if fitted else ():
        found |= {f"{name} {Option.text([value])}": {**base, name: value} for value in others if value != base[name]}
    return found


def _of(rows: list[Mapping[str, Any]], variant: Variant, conclusions: Any) -> dict[str, float]:
    mine = [row for row in rows if all(row[name] == value for name, value in variant.items())]
    found: dict[str, float] = conclusions(tidy(mine))
    return found


def _ratio(then: float | None, value: float) -> float | None:
    return then / value if then is not None and value else None
