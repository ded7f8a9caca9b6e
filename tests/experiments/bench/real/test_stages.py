"""Fig 7 on real hosts, tiny: each stage has a place of its own, and both kinds of dispatch are timed."""

from experiments.bench.real import stages


def test_each_stage_is_on_a_host_of_its_own() -> None:
    found = list(stages.rows("timed", [1, 3], calls=2))
    assert [row.stages for row in found] == [1, 3]
    assert [row.places for row in found] == [1, 3]
    assert all(row.parallel > 0 and row.sequential > 0 for row in found)
