"""MPMD programs through a door to local devices, by jaxlib's own client."""

from __future__ import annotations

from experiments.bench.frame.door_server import opened

from ..program_runs import DEVICES, MPMD_CLIENT, MPMD_RAN, output, python


def test_programs_of_several_stages_compute_what_plain_jax_does_and_refusals_name_what_they_refuse() -> None:
    with opened(DEVICES) as door:
        ran = output(python(str(MPMD_CLIENT), "3", "two_stages", "pipeline", "refused", "reshard", env=door.env))
    *said, custom_call, reshard = ran.splitlines()
    assert said == MPMD_RAN
    assert (
        "it calls 'never_heard_of', which is not on the list of foreign functions that clients may call" in custom_call
    )
    assert reshard == "reshard True True"
