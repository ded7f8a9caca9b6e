"""What the live page costs the controller is measured by turns, at a load that does not depend on who looks."""

from __future__ import annotations

from core.record import Look
from experiments.bench.control import dashboard
from experiments.bench.frame.deployed import deployed


def test_one_who_looks_gets_all_that_happens_and_each_thing_once() -> None:
    with deployed(2, processes=1) as cluster:
        watcher = dashboard.Watcher(cluster.address)
        with dashboard.load(cluster, on=True):
            watcher.look()
            with watcher.looking():
                found = dashboard.measured(cluster, busy=False, seconds=1.2, rounds=1)
        watcher.look()
        everything = watcher._source.look(Look())
        watcher.close()
    assert found.looks >= 2
    assert found.watched > 0
    assert watcher.gangs == len(everything.trace.column("gangs", "seq")) > 10
    assert not any(watcher._reader.open[name] for name in ("gangs", "runs")), "it knows that all is over"
