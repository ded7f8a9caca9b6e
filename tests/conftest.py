"""What all tests share: hypothesis's settings, and the option that rewrites golden files."""

import signal

import pytest
from hypothesis import HealthCheck, settings

# `repeat` draws the same examples every time: a red `make test` means that the code changed, not the dice.
# `explore` draws afresh, and many more: `make test-full`. Neither judges by the clock: machines are shared.
settings.register_profile(
    "repeat", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", max_examples=1000, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeat")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would all that it starts; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        default=False,
        help="rewrite golden files with what the code now says; review them as a diff",
    )


@pytest.fixture(scope="session")
def rewrite(pytestconfig: pytest.Config) -> bool:
    """Whether golden files are to be rewritten rather than compared."""
    return bool(pytestconfig.getoption("--rewrite"))
