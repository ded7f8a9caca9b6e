"""Tests that are coroutines run in a loop of their own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

BOUND = 900.0  # seconds; the longest tests are `full`


def coroutine_of(item: pytest.Function) -> Coroutine[Any, Any, None] | None:
    """None: the test is no coroutine."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    work: Coroutine[Any, Any, None] = item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
    return work


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    work = coroutine_of(pyfuncitem)
    if work is None:
        return None
    asyncio.run(asyncio.wait_for(work, BOUND))
    return True
