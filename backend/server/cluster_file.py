"""The file of a cluster: read when the controller starts, and again when the cluster grows; and what is kept of it.

A cluster that has grown is kept in the controller's folder, since hosts and devices have numbers by it: a later start
has at least these hosts, or is refused.

Neighbours: `controller_cli` and `operator_calls`, which read it; `core.model.growth`, what a cluster may become.
The functions that matter: `cluster_in`, `keep`, `at_start`.
"""

import logging
import tomllib
from pathlib import Path

import msgspec

from core.model import SIMULATED_KEYS, Cluster, Impossible, larger_of, table_of

from ..auth import AccessRefused
from ..plain_files import plain_bytes, replace_file

KEPT = "cluster.json"
log = logging.getLogger("seaway.controller")


def read_cluster(path: Path) -> Cluster:
    """Raises Impossible, which names the file and what is wrong with it."""
    try:
        data = plain_bytes(path)
    except OSError as error:
        raise Impossible(f"cannot read {path}: {error.strerror}") from None
    return cluster_in(data, str(path))


def cluster_in(data: bytes, name: str) -> Cluster:
    """`name`: of the file with these bytes."""
    try:
        table = table_of(data, tomllib.loads)
    except Impossible as error:
        raise Impossible(f"{name} {error}") from None
    try:
        cluster = Cluster.from_table(table)
    except Impossible as error:
        raise Impossible(f"{name}: {error}") from None
    if simulated := [key for key in SIMULATED_KEYS if key in table]:
        log.warning("%s: only the simulator reads %s; a real cluster leaves that out", name, ", ".join(simulated))
    return cluster


def keep(folder: Path, cluster: Cluster) -> None:
    """Raises OSError."""
    replace_file(folder / KEPT, msgspec.json.encode(cluster))


def keep_larger(folder: Path | None, cluster: Cluster) -> None:
    """A controller has started with this cluster, which may be larger than the one that is kept. Raises
    AccessRefused."""
    if folder is not None and (folder / KEPT).exists():
        try:
            keep(folder, cluster)
        except OSError as error:
            raise AccessRefused(f"--state {folder}: {folder / KEPT}: {error.strerror}") from None


def at_start(folder: Path | None, given: Cluster) -> Cluster:
    """The cluster with which a controller starts: as it is given, or as it had grown. Raises AccessRefused if both
    cannot be."""
    path = folder / KEPT if folder is not None else None
    if path is None or not path.exists():
        return given
    try:
        kept = msgspec.json.decode(plain_bytes(path), type=Cluster)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError, Impossible) as error:
        raise AccessRefused(
            f"--state {folder}: {path} is damaged ({' '.join(str(error).split()):.200}). Put back a copy of it; or add "
            "--forget, once: agents enrol again, and clients lose what they hold"
        ) from None
    found = larger_of(kept, given)
    if found is None:
        had, asked = ("; ".join(each.describe().splitlines()) for each in (kept, given))
        raise AccessRefused(
            f"--state {folder}: this cluster has grown to {had}, and the one given now has other hosts: {asked}. Give "
            "the file with which it was grown; or add --forget, once: agents enrol again, and clients lose what they "
            "hold"
        )
    if found != given:
        log.warning("--state %s has a cluster that has grown, to %d hosts: the one given now is not used",
                    folder, found.hosts)  # fmt: skip
    return found
