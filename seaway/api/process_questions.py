"""`jax.process_index()` and its like in a function of `sw.jit`: they would be answered for the client's process.

A computation runs on devices of other processes, and one program drives all of them. So while such a function is
traced, a question about "this process" raises, and the error says what to ask instead. Outside of that, in other
threads too, JAX answers as always.

Neighbours: `jitted` traces functions. The function that matters: `refused`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, NoReturn

from ..errors import NotNow
from ..specs import Slice

# Each question -> what to use instead. {devices} is the slice's number of them.
QUESTIONS = {
    "process_index": "one program drives all hosts: to tell devices apart, jax.lax.axis_index('{axis}') in "
    "jax.shard_map over slice.mesh",
    "process_count": "one program drives all hosts, and none of it depends on their number: the slice has {devices} "
    "devices (slice.devices)",
    "device_count": "the slice has {devices} devices: slice.devices",
    "local_device_count": "the slice has {devices} devices: slice.devices",
}


class _Traced(threading.local):
    """What this thread traces: (what the computation is called, its slice), innermost last."""

    def __init__(self) -> None:
        self.under_way: list[tuple[str, Slice]] = []


_here = _Traced()


@contextmanager
def refused(name: str, home: Slice) -> Iterator[None]:
    """Inside, this thread traces a function for this slice."""
    _guard()
    _here.under_way.append((name, home))
    try:
        yield
    finally:
        _here.under_way.pop()


@cache
def _guard() -> None:
    """Put in front of JAX's functions ones that look what this thread traces, once and for all."""
    import jax

    for question in QUESTIONS:
        setattr(jax, question, _guarded(question, getattr(jax, question)))


def _guarded(question: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(answer)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if _here.under_way:
            _refuse(question)
        return answer(*args, **kwargs)

    return asked


def _refuse(question: str) -> NoReturn:
    name, home = _here.under_way[-1]
    instead = QUESTIONS[question].format(devices=home.devices, axis=home.axis_names[0])
    raise NotNow(
        f"jax.{question}() in {name} would tell of this client's process, and {name} runs on devices of others; "
        f"{instead}"
    )
