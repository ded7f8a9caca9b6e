"""Coroutines of these tests run as those of streams: in uvloop's loop, where an unhandled error fails the test."""

from ...streams.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
