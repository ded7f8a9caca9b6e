"""When an island begins although some of its hosts are missing: their grace period is counted from the last arrival."""

from __future__ import annotations

from core import protocol as p
from core.controller import Bounds, Config, Controller
from core.model.topology import small

SECOND = 1_000_000_000
GRACE = 5 * SECOND
HOSTS = 8


def formed(controller: Controller, event: object, now: int) -> list[p.FormWorld]:
    return [effect for effect in controller.handle(event, now) if isinstance(effect, p.FormWorld)]  # type: ignore[arg-type]


def test_hosts_that_start_one_after_another_form_one_epoch() -> None:
    controller = Controller(small(HOSTS, 1), config=Config(bounds=Bounds(floor=GRACE)))
    last = (HOSTS - 2) * (GRACE - SECOND)  # in all, far longer than the grace period
    for host in range(HOSTS - 1):
        now = host * (GRACE - SECOND)
        assert formed(controller, p.Wakeup(), now) == []
        assert formed(controller, p.MessageReceived(host, p.Join(host, 0)), now) == []
    (world,) = formed(controller, p.MessageReceived(HOSTS - 1, p.Join(HOSTS - 1, 0)), last + SECOND)
    assert world.members == ((0, HOSTS),)


def test_a_missing_host_is_waited_for_as_long_as_the_grace_period() -> None:
    controller = Controller(small(HOSTS, 1), config=Config(bounds=Bounds(floor=GRACE)))
    for host in range(3):
        assert formed(controller, p.MessageReceived(host, p.Join(host, 0)), host * SECOND) == []
    due = controller.next_wakeup()
    assert due == 2 * SECOND + GRACE
    (world,) = formed(controller, p.Wakeup(), due)
    assert world.members == ((0, 3),)
