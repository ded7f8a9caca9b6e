"""What tests of streams share: refusals in the log, and a listener that is impatient."""

import logging

import pytest

from backend.streams import listener


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller has a moment to introduce itself, and to read why it was refused."""
    monkeypatch.setattr(listener, "READING", 0.05)
    monkeypatch.setattr(listener, "LAST", 0.05)
