"""Which host of which TPU slice this machine is, by the environment variables of Cloud TPU, GKE and Slurm.

TPU_WORKER_ID          this host's rank in its slice
TPU_WORKER_HOSTNAMES   all hosts of the slice, in order of their ranks
MEGASCALE_SLICE_ID     which slice, if there are several
SLURM_PROCID           the rank, if Slurm started this process
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from ..auth import AccessRefused


class TpuSeat(NamedTuple):
    """A host's place. rank: within the slice, which is an island; -1: unknown."""

    rank: int = -1
    hosts: int = 0  # of the slice; 0: unknown
    island: str = ""


def seat(env: Mapping[str, str] = os.environ) -> TpuSeat:
    """This host's place. Raises Refused if the variables contradict each other."""
    rank = _number(env, "TPU_WORKER_ID")
    if rank < 0:
        return TpuSeat(_number(env, "SLURM_PROCID"), max(0, _number(env, "SLURM_NTASKS")))
    names = [name for name in env.get("TPU_WORKER_HOSTNAMES", "").split(",") if name.strip()]
    if names and rank >= len(names):
        raise AccessRefused(
            f"TPU_WORKER_ID is {rank}, but TPU_WORKER_HOSTNAMES names only {len(names)} hosts"
        )
    number = _number(env, "MEGASCALE_SLICE_ID")
    return TpuSeat(rank, len(names), f"slice{number}" if number >= 0 else "")


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "").strip()
    if not text:
        return -1
    if not text.isdigit():
        raise AccessRefused(f"{name}={text!r} is no whole number")
    return int(text)
