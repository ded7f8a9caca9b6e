"""pathwaysutils' elastic loop, its own code from its wheel, over a cluster that loses hosts or its controller."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from backend.door.cluster.cluster_link import fault_of_blame
from backend.door.protocol.ifrt_messages import StatusCode
from core.protocol import Blame
from experiments.bench.frame.deployed import Deployed
from experiments.bench.frame.door_server import on_cluster

from .jax_programs import await_nothing_held, program

pytestmark = pytest.mark.skipif(
    find_spec("pathwaysutils") is None, reason="pathwaysutils is not installed: pip install 'seaway[elastic]'"
)
TRAINING, SLICES = ((Path(__file__).parent / f"elastic_{name}.py").read_text() for name in ("training", "slices"))


@pytest.mark.parametrize(
    "code", ["host-lost", "host-left", "restart", "world", "lost", "client-lost", "user", "cancelled", "refused"]
)
def test_what_the_cluster_lost_is_a_slice_that_is_down_and_nothing_else_is(code: str) -> None:
    from jax.errors import JaxRuntimeError
    from pathwaysutils.elastic.elastic import _ELASTIC_DOWN_ERROR_TYPES, is_error_due_to_slice_down

    fault = fault_of_blame(Blame(code, "it went wrong"))
    raised = JaxRuntimeError(f"{StatusCode.Name(fault.code)}: {fault.text}")  # as JAX's client raises it
    lost = code not in ("user", "cancelled", "refused")
    assert any(each in str(raised) for each in _ELASTIC_DOWN_ERROR_TYPES) == lost
    if lost:
        assert is_error_due_to_slice_down(raised)


def kill_a_host(cluster: Deployed) -> None:
    cluster.agents[1].process.kill()
    cluster.agents[1].process.wait()


def host_is_back(cluster: Deployed) -> None:
    cluster.again(1)


def kill_the_controller(cluster: Deployed) -> None:
    cluster.controller.process.kill()
    cluster.controller.process.wait()
    cluster.controller_again()


@pytest.mark.full
@pytest.mark.parametrize(
    ("breaks", "mends", "cause"),
    [
        pytest.param(kill_a_host, host_is_back, "[host-lost] host 1 of island 'i0' was lost", id="host"),
        pytest.param(kill_the_controller, lambda cluster: None, "[restart]", id="controller"),
    ],
)
def test_training_goes_on_from_its_last_checkpoint_and_ends_as_if_nothing_had_happened(
    breaks: Callable[[Deployed], None], mends: Callable[[Deployed], None], cause: str, tmp_path: Path
) -> None:
    options = ["--lease", "3", "--state", str(tmp_path / "state")]
    with on_cluster(controller=options) as (cluster, door):
        with program(TRAINING, door.env, str(tmp_path / "undisturbed")) as found:
            assert found.until("from") == "from 0"
            wanted = found.until("digest")
        with program(TRAINING, door.env, str(tmp_path / "disturbed")) as found:
            assert found.until("from") == "from 0"
            found.until("step 17 ")
            breaks(cluster)
            down = found.until("down")
            assert "DATA_LOSS" in down
            assert cause in down
            mends(cluster)
            again = int(found.until("from").split()[1])
            assert 10 < again < 40  # of the last checkpoint, whose save may have been under way
            assert found.until("digest") == wanted
            assert found.process.wait(60) == 0
        await_nothing_held(cluster)


@pytest.mark.full
def test_training_goes_on_with_the_other_slice_and_takes_one_back_that_is_up_again() -> None:
    """Each slice is down once: all agents of its island are killed."""
    with on_cluster(1, 2, islands=2, controller=["--lease", "3"]) as (cluster, door):
        with program(SLICES, door.env) as found:
            assert found.until("slices") == "slices 2"
            assert found.until("on") == "on 0 1 from 0"
            found.until("step 5")
            for down in (1, 0):
                cluster.agents[down].process.kill()
                cluster.agents[down].process.wait()
                assert "JaxRuntimeError DATA_LOSS: [host-lost]" in found.until("again")
                assert found.until("on").startswith(f"on {1 - down} from ")
                for _ in range(3):
                    found.until("step")
                cluster.again(down)
                assert found.until("again").split()[1] == "ScaleUpSignalError"
                assert found.until("on").startswith("on 0 1 from ")
                for _ in range(3):
                    found.until("step")
            found.go_on()
            assert found.until("as by hand") == "as by hand True"
            assert found.process.wait(60) == 0
        await_nothing_held(cluster)
