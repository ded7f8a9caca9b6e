"""What all tests share: the settings of hypothesis, and the option that rewrites golden files."""

import signal

import pytest
from hypothesis import HealthCheck, settings

# `repeat` draws the same examples every time: a red `make test` means that the code changed, not the random seed.
# `explore` draws afresh, and many more: `make test-full`. Neither judges by the clock: machines are shared.
settings.register_profile("repeat", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "explore", max_examples=1000, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeat")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a shell ignores Ctrl-C, and so would all processes that it starts. Some tests press Ctrl-C.
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
