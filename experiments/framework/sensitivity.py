"""Sensitivity: how much conclusions change if a fitted value is halved or doubled, by running the experiment again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .catalogue import Experiment, named
from .options import Point, Values, read_all
from .profiles import profile_of
from .tables import tidy

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (0.5, 2.0)


def variants(experiment: Experiment, chosen: Mapping[str, Values]) -> list[Point]:
    """What is to be measured for it: nothing if it has no conclusions in numbers, or rests on no fitted value."""
    narrowed = getattr(experiment, "SENSITIVITY", None)
    if getattr(experiment, "conclusions", None) is None or narrowed is None or "profile" not in chosen:
        return []
    base = str(chosen["profile"][0])
    changed = [_changed(base, field, factor) for field in profile_of(base).fitted for factor in FACTORS]
    if not changed:
        return []
    points = experiment.points({**read_all(experiment.OPTIONS, {**chosen, **narrowed}), "profile": (base,)})
    return named(
        experiment.NAME, [{**point, "profile": each} for each in (base, *changed) for point in points]
    )


def moved(
    experiment: Experiment, chosen: Mapping[str, Values], rows: Iterable[Mapping[str, Any]]
) -> pd.DataFrame:
    """From the rows of all variants: a row a conclusion and change, with its value as fitted, its value then, and the
    ratio."""
    conclusions: Any = experiment.conclusions  # type: ignore[attr-defined]
    base, found = str(chosen["profile"][0]), list(rows)
    fitted = list(profile_of(base).fitted)
    names = [base] + [_changed(base, field, factor) for field in fitted for factor in FACTORS]
    values = {each: _of(found, each, conclusions) for each in names}
    return tidy([
        {
            "fitted": field, "factor": factor, "conclusion": name, "value": value,
            "then": values[_changed(base, field, factor)].get(name),
            "ratio": _ratio(values[_changed(base, field, factor)].get(name), value),
        }
        for field in fitted for factor in FACTORS for name, value in values[base].items()
    ])  # fmt: skip


def _changed(base: str, field: str, factor: float) -> str:
    return f"{base}{'+' if ':' in base else ':'}{field}*{factor:g}"


def _of(rows: Any, variant: str, conclusions: Any) -> dict[str, float]:
    frame = tidy([row for row in rows if row["profile"] == variant])
    found: dict[str, float] = conclusions(frame)
    return found


def _ratio(then: float | None, value: float) -> float | None:
    return then / value if then is not None and value else None
