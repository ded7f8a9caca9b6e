"""`seaway whatif LOG`: runs a recorded workload again in the simulator, under other settings, and compares."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.server import HELP, eventlogs, policy_from

from .replaying import add_log
from .simulate import weights_of

if TYPE_CHECKING:
    from sim.hardware import Profile, Setup

    from ..tools.whatif import Settings, Workload


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "whatif",
        help="run a recorded workload under other settings",
        description="Runs the workload of an event log again in the simulator, with its measured durations: once under "
        "the recorded settings (which shows the model's error), and once for each --policy. Prints all side by side.",
        epilog="Example: seaway whatif run.log --policy fifo --policy stride:1,2,4,8 --dispatch sequential",
    )
    option = parser.add_argument
    add_log(parser)
    option("--partial", action="store_true", help="accept a log that was cut short, and use it as far as it goes")
    option("--recorded-policy", default="", metavar="FILE.py:NAME",
                        help="the policy of the recorded run, if it was a program's own")  # fmt: skip
    what = parser.add_argument_group("what is changed").add_argument
    what("--policy", action="append", default=[],
                      help=f"{HELP}; or weights, one for each client in the order of joining "
                      "(stride:1,2,4,8). May be repeated")  # fmt: skip
    what("--dispatch", choices=("parallel", "sequential"), default="", help="dispatch of all runs")
    what("--window", type=int, help="gangs enqueued ahead on a device")
    what(
        "--early",
        choices=("always", "idle", "never"),
        help="whether a gang may enter the order before its inputs are ready",
    )
    what("--fanout", type=int, help="fan-out of the tree to the hosts")
    what("--cluster", default="", help="A, v4-512, ..., or a TOML file; default: the recorded one")
    what("--hosts", type=int, help="hosts on each island")
    what("--islands", type=int, help="islands")
    what("--anywhere", action="store_true", help="let slices that name an island or kind be placed on any")
    how = parser.add_argument_group("how it is run").add_argument
    how(
        "--profile",
        default="",
        help="host costs: seaway, paper, ideal, or a TOML file (default: what the cluster file measured, else seaway)",
    )
    how("--open-loop", action="store_true",
                     help="make calls at their recorded times; without it, a client that waited for runs waits here, "
                          "too")  # fmt: skip
    how("--measured", default="", metavar="FILE.toml",
                     help="a cluster file of the recorded cluster, as `seaway calibrate` writes it: its network, "
                          "which hosts share cores, what messages cost")  # fmt: skip
    option(
        "--repeats",
        type=int,
        default=3,
        metavar="N",
        help="simulate the record's settings so many times more, each a little different (%(default)s)",
    )
    option("--out", type=Path, metavar="FOLDER", help="keep the table (CSV, Parquet)")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from sim.hardware import setups as hardware

    from ..sessions import text_of
    from ..tools.whatif import call_durations, report, settings, whatif_runs, workload
    from ..wording import plural

    known = hardware.load(given.measured) if given.measured else None
    brought = policy_from(given.recorded_policy, "--recorded-policy") if given.recorded_policy else None
    costs = _profile(given, known)
    path = eventlogs.chosen_log(given.log, given.start)
    recorded = workload.read(path, policy=brought, partial=given.partial)
    same = settings.as_recorded(recorded, costs, known)._replace(open_loop=given.open_loop)
    changed = _changed(given, recorded, known)
    for each in changed:
        settings.check(recorded, each)
    took = call_durations.measured(recorded)
    runs = sum(person.runs for person in recorded.people)
    print(
        f"{path}: {plural(runs, 'run')} of {plural(len(recorded.people), 'client')} under {recorded.policy}; "
        f"{'open' if given.open_loop else 'closed'} loop, profile {costs.name} ({costs.status})"
    )
    for line in report.notes(recorded, took):
        print(f"note: {line}")
    same, first = whatif_runs.fitted(recorded, same, took)
    if same.alone:
        print("note: hosts did not wait for one another in collectives (as those of timed devices), and do not here")
    worlds = [first, *(whatif_runs.run(recorded, each._replace(alone=same.alone), took) for each in changed)]
    for world in worlds:
        if replaced := text_of(world.simulation.replaced):
            print(f"note: under {world.settings.title}, {replaced}")
    record, *columns = [report.of_record(recorded, took), *map(report.of_world, worlds)]
    again = [report.of_world(whatif_runs.run(recorded, same, took, seed)) for seed in range(1, given.repeats + 1)]
    doubt = report.doubts(record, [columns[0], *again])
    columns = [record, *columns]
    print("\n".join(report.lines(columns, doubt)))
    print(
        f"under the record's own settings a percentage is the model's error, in {plural(1 + len(again), 'simulation')} "
        f"at most {max(doubt.values(), default=0.0):.0%}; in other columns it is the change from there, where that is "
        "larger than the error in its row, and else ±that error: then no change can be told"
    )
    if given.out:
        print(f"wrote {', '.join(map(str, report.save(columns, given.out)))}")
    return 0


def _profile(given: argparse.Namespace, *setups: Setup | None) -> Profile:
    """The profile asked for; or else the first one that a cluster file has."""
    from sim.hardware import profile

    found = next((setup.profile for setup in setups if setup is not None and setup.profile is not None), None)
    return found if found is not None and not given.profile else profile(given.profile or "seaway")


def _changed(given: argparse.Namespace, recorded: Workload, known: Setup | None) -> list[Settings]:
    """Settings for each policy; or one, if only other things are changed; or none."""
    from sim.hardware import setups as hardware

    from ..tools.whatif import Settings, changed_setup, config_of

    shape = {"hosts": given.hosts, "islands": given.islands}
    for key, value in shape.items():
        if value is not None and value < 1:
            raise ValueError(f"--{key} {value}: at least 1")
    if given.cluster:
        setup = hardware.load(given.cluster, **{key: value for key, value in shape.items() if value is not None})
    else:
        setup = changed_setup(recorded.cluster, given.hosts, given.islands, known)
    costs = _profile(given, setup, known)
    config = config_of(recorded, setup, costs, window=given.window, early=given.early, fanout=given.fanout)
    found = []
    rest = _rest(given)
    for policy in given.policy or ([""] if rest else []):
        make, weights = _policy_of(policy, recorded)
        title = ", ".join(filter(None, (policy, *rest)))
        found.append(
            Settings(title, setup, make, config, costs, weights, given.dispatch, given.open_loop, given.anywhere)
        )
    return found


def _rest(given: argparse.Namespace) -> list[str]:
    """Texts for the changes other than the policy."""
    words = [given.dispatch, given.cluster]
    words += [
        f"{key} {getattr(given, key)}"
        for key in ("hosts", "islands", "window", "early", "fanout")
        if getattr(given, key) is not None
    ]
    return [word for word in words if word]


def _policy_of(text: str, recorded: Workload) -> tuple[Any, tuple[int, ...]]:
    """(function that makes the policy, weights of clients)."""
    if not text:
        return recorded.make, ()
    name, weights = weights_of(text, None)
    return policy_from(name), tuple(weights) if name != text else ()
