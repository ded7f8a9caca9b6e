"""Epochs of an island that broke one after another: how many, since when, why, and when the next may begin.

An epoch counts if it does not form, or if the connections between its hosts break before they have computed anything
together. Such a cause often persists, as a firewall does: the first is followed by the next at once, later ones after
pauses that double. From the second on, people are told: `status`, the log, and those whose calls fail or wait.

Neighbours: `membership` and `failures`, which count; `completion`, which says that hosts have computed together;
`live_view`, `snapshot` and `stalls`, which show it.
"""

SECOND = 1_000_000_000
LONGEST = 30 * SECOND  # a pause before the next epoch
APART = (
    "Each host must reach the others directly, on any port, at the address where its agent listens: look for firewalls "
    "between them, and at the agents' --bind and --advertise"
)


class BrokenEpochs:
    """Those of one island, in a row."""

    def __init__(self) -> None:
        self.number = 0
        self.since = 0  # when the first of them broke
        self.apart = False  # connections broke: only a computation of several hosts shows that they hold
        self._last = -1
        self._reasons: dict[int, str] = {}  # by host; -1: of none

    def add(self, epoch: int, host: int, reason: str, now: int, *, apart: bool = False) -> None:
        if not self.number:
            self.since = now
        self.number += epoch != self._last
        self._last = epoch
        self.apart |= apart
        self._reasons.pop(host, None)
        self._reasons[host] = reason.partition("\n")[0]

    def worked(self) -> None:
        """An epoch has held."""
        self.number, self.apart, self._last, self._reasons = 0, False, -1, {}

    @property
    def pause(self) -> int:
        """How long to wait before the next epoch."""
        return min(SECOND << min(self.number - 2, 8), LONGEST) if self.number > 1 else 0

    @property
    def text(self) -> str:
        """The reasons, and the fix; "" if that would be too much for one epoch that broke."""
        if self.number < 2:
            return ""
        reasons = "; ".join(
            f"host {host}: {reason}" if host >= 0 else reason for host, reason in sorted(self._reasons.items())
        )
        return f"{self.number} epochs in a row broke. {reasons}{f'. {APART}' if self.apart else ''}"
