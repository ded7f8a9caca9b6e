"""What tests of streams share: their loops, refusals in the log, and a listener that is impatient."""

import logging

import pytest

from backend.streams import listener

from ..conftest import coroutine_of
from .rig import LOOPS, drive


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    work = coroutine_of(pyfuncitem)
    if work is None:
        return None
    drive(work, LOOPS[str(pyfuncitem.funcargs.get("loop", "uvloop"))])
    return True


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller has a moment to introduce itself, and to read why it was refused."""
    monkeypatch.setattr(listener, "READING", 0.05)
    monkeypatch.setattr(listener, "LAST", 0.05)
