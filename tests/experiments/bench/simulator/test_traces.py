"""The benchmark of traces: its figures are there, and its sums agree with the baseline's."""

import re

import pytest

from experiments.bench.simulator import traces


@pytest.mark.full
def test_the_report_has_its_figures() -> None:
    report = traces.report(hosts=16, gangs=80)
    number = r"[\d,.]+"
    assert re.search(rf"8 us of jitter +{number} +{number} +{number}\n", report)
    assert re.search(rf"baseline: a list of tuples +{number} +{number}\n", report)
    apart = re.search(r"largest difference .*: ([-\d.e+]+)$", report)
    assert apart is not None
    assert float(apart[1]) < 1e-9


def test_with_each_hosts_arrival_an_interval_takes_under_a_byte() -> None:
    """As large as the paper's trace, except for the number of gangs."""
    for name, delays in traces.arrivals(512, 40).items():
        trace = traces.record(512, 40, delays)
        assert trace.nbytes / (40 * 2048) < 0.7, name
