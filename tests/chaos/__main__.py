"""`python -m tests.chaos --minutes 10`: faults on a real cluster, from one seed, until the time is over or one fails.

`--schedule TEXT|FILE` plays the faults that it names, in that order. `--faults N` ends after N of them. A schedule that
fails is made shorter for `--shrink` minutes and printed. Returns 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

import msgspec

from tests.machines import why_not

from .campaign import Campaign, NotReady, Round, last_words
from .cluster import Named, clients_of
from .machine_network import apart
from .processes import adopt_orphans
from .report import table
from .schedule import JAX_ROLES, Fault, Schedule, Shape, draw, misfit, parse, rounds, text
from .shrink import shrink


def main() -> int:
    chosen = _options().parse_args()
    try:
        schedule = _schedule(chosen.schedule)
    except ValueError as error:
        print(f"--schedule: {error}", file=sys.stderr)
        return 2
    if chosen.machines and (why := why_not()):
        print(f"processes of this machine instead of --machines: {why}", flush=True)
        chosen.machines = False
    shape = _shape(chosen)
    if words := misfit(schedule, shape):
        print(f"--schedule: {words}", file=sys.stderr)
        return 2
    if chosen.machines and chosen.together > 1:
        print("--machines: each agent plays one host there, so leave --together out", file=sys.stderr)
        return 2
    if chosen.machines:
        apart()
    signal.signal(signal.SIGTERM, _interrupted)
    folder = Path(tempfile.mkdtemp(prefix="seaway-chaos-"))
    run = Run(chosen, shape, schedule, folder)
    adopt_orphans()
    try:
        return run.whole()
    except KeyboardInterrupt:
        print("interrupted")
        run.print_table()
        return 130
    except NotReady as error:
        run.print_table()
        print(f"the cluster did not stand: {error}", file=sys.stderr)
        run.failed += 1
        return 2
    finally:
        run.close()
        if not chosen.keep and not run.failed:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"logs: {folder}")


class Run:
    def __init__(self, chosen: argparse.Namespace, shape: Shape, schedule: Schedule, folder: Path) -> None:
        self.chosen, self.shape, self.schedule, self.folder = chosen, shape, schedule, folder
        self.clients = _clients(chosen)
        self.rounds: list[Round] = []
        self.played: list[Fault] = []  # on the cluster that runs now
        self.failed = 0
        self.begun = time.monotonic()
        self._campaign: Campaign | None = None
        self._clusters = 0

    def whole(self) -> int:
        chosen = self.chosen
        print(
            f"seed {chosen.seed}, {chosen.minutes:g} minutes, {chosen.islands} islands of {chosen.hosts} hosts "
            f"({chosen.platform}), lease {chosen.lease:g} s, clients {', '.join(self.clients)}",
            flush=True,
        )
        for faults in rounds(self.faults()):
            if time.monotonic() - self.begun > 60 * chosen.minutes:
                break
            if self.play(faults):
                continue
            if not chosen.go_on:
                break
        self.look_at_the_end()
        self.print_table()
        if self.failed and chosen.shrink and not chosen.go_on:
            self.make_shorter()
        return 1 if self.failed else 0

    def faults(self) -> Iterator[Fault]:
        chosen = self.chosen
        if self.schedule:
            for _ in range(chosen.repeat):
                yield from self.schedule
        else:
            yield from islice(draw(chosen.seed, self.shape), chosen.faults or None)

    def campaign(self) -> Campaign:
        if self._campaign is None:
            self._clusters += 1
            self.played = []
            folder = self.folder / f"cluster-{self._clusters}"
            folder.mkdir()
            self._campaign = Campaign(
                folder,
                self.shape,
                self.clients,
                slack=self.chosen.slack,
                devices=self.chosen.devices,
                forgiven=self.chosen.forgive.split(","),
                tell=self.tell,
            )
            self._campaign.open()
        return self._campaign

    def play(self, faults: Schedule) -> bool:
        """Play faults. Returns False if one failed; the cluster is then gone."""
        campaign = self.campaign()
        self.tell(text(faults).replace("\n", "; "))
        self.played += faults
        verdict = campaign.round(faults)
        self.rounds.append(Round(faults, verdict))
        if self.chosen.append:
            with Path(self.chosen.append).open("ab") as rounds_so_far:
                rounds_so_far.write(msgspec.json.encode(self.rounds[-1]) + b"\n")
        times = [
            f"{name} {value:.1f} s"
            for name, value in (("error", verdict.to_error), ("resumed", verdict.to_resume))
            if value
        ]
        codes = [f"{count} x {code}" for code, count in verdict.codes.items()]
        self.tell(f"    {verdict.outcome}  {', '.join([*times, *codes])}")
        for words in verdict.findings[:12]:
            self.tell(f"    {words}")
        if not verdict.failed:
            return True
        self.failed += 1
        if verdict.outcome == "hang":
            path = campaign.cluster.folder / "last-words.txt"
            path.write_text(last_words(campaign))
            self.tell(f"    what all processes said last: {path}")
        if verdict.outcome == "hang" or not self.chosen.go_on:
            self.close()
        return False

    def look_at_the_end(self) -> None:
        """Look for what is still left behind, on the last cluster, if it runs."""
        if self._campaign is None:
            return
        left = self._campaign.at_the_end()
        for words in left:
            self.tell(f"leak, for good: {words}")
        self.failed += bool(left)
        self.tell(f"what was held before any fault, and is at the end: {self._campaign.held()}")
        self.tell("at the end no process holds more than at first" if not left else "at the end")

    def make_shorter(self) -> None:
        kind, whole = self.rounds[-1].verdict.outcome, tuple(self.played)
        self.tell(f"making it shorter, for {self.chosen.shrink:g} minutes: {len(whole)} faults")

        def fails(schedule: Schedule) -> bool:
            try:
                for faults in rounds(schedule):
                    if not self.play(faults):
                        return self.rounds[-1].verdict.outcome == kind
                return False
            finally:
                self.close()

        found = shrink(whole, fails, 60 * self.chosen.shrink)
        shape = self.shape
        options = f"--islands {shape.islands} --hosts {shape.hosts} --lease {shape.lease:g} --platform {shape.platform}"
        options += f" --together {shape.together}" if shape.together > 1 else ""
        options += f" --spare {shape.spare}" if shape.spare else ""
        options += " --machines" * shape.machines + " --no-trust-clients" * shape.checked
        print(
            f"the shortest that ends in {kind}:\npython -m tests.chaos {options} --roles {self.chosen.roles} "
            f"--schedule '{text(found).replace(chr(10), '; ')}'",
            flush=True,
        )

    def print_table(self) -> None:
        spent = time.monotonic() - self.begun
        faults = sum(len(each.faults) for each in self.rounds)
        print(f"\nseed {self.chosen.seed}: {faults} faults in {spent / 60:.1f} minutes, {self.failed} rounds failed")
        if self.rounds:
            print(table(self.rounds), flush=True)

    def tell(self, words: str) -> None:
        print(f"{time.monotonic() - self.begun:7.1f} s  {words}", flush=True)

    def close(self) -> None:
        if self._campaign is not None:
            campaign, self._campaign = self._campaign, None
            campaign.close()


def _clients(chosen: argparse.Namespace) -> dict[str, Named]:
    roles = [each for each in chosen.roles.split(",") if each not in JAX_ROLES or chosen.platform == "cpu"]
    return clients_of(chosen.islands, tuple(roles))


def _shape(chosen: argparse.Namespace) -> Shape:
    return Shape(
        chosen.islands, chosen.hosts, tuple(_clients(chosen)), chosen.lease, chosen.platform, chosen.together,
        chosen.machines, chosen.no_trust_clients, chosen.spare,
    )  # fmt: skip


def _schedule(given: str) -> Schedule:
    return parse(Path(given).read_text() if os.path.isfile(given) else given)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, help="no round begins later")
    add("--faults", type=int, default=0, help="so many; 0: as many as fit")
    add("--seed", type=int, default=0)
    add("--schedule", default="", help="faults to play instead: a file, or lines (';' between them)")
    add("--repeat", type=int, default=1, help="the schedule so many times")
    add("--platform", default="cpu", choices=("cpu", "timed"))
    add("--hosts", type=int, default=2, help="of each island")
    add("--islands", type=int, default=2)
    add("--spare", type=int, default=0, help="hosts of each island that clients leave free, for moves and drains")
    add("--together", type=int, default=1, help="hosts that one agent plays, of timed devices")
    add("--devices", type=int, default=2, help="of each host")
    add("--machines", action="store_true", help="each process on one of its own: a network namespace")
    add("--no-trust-clients", action="store_true", help="agents try clients' code in a child first")
    add("--lease", type=float, default=3.0, help="seconds")
    add(
        "--roles", default="train,puts,retry,transfer,jax",
        help="what clients do; also: small, reads, given, many, saves, moves, slices. jax and slices need devices that "
        "compute",
    )  # fmt: skip
    add("--slack", type=float, default=1.0, help="all bounds are multiplied by it")
    add("--forgive", default="", help="outcomes that are told and fail nothing, as leak,late")
    add("--go-on", action="store_true", help="after a failure, on another cluster")
    add("--append", default="", help="a file for each round's verdict, a line each: see tests.chaos.report")
    add("--shrink", type=float, default=0.0, help="minutes")
    add("--keep", action="store_true", help="the logs, also when nothing failed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
