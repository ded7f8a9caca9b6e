"""Clusters of TPU v3 hosts with given numbers of cores and islands, and the slices on which training steps run."""

from core.model import SliceSpec
from sim.hardware import Setup, load

from ..framework import BadOption
from ..pricing import jobs

PER_HOST = 8  # cores, as in the paper's set-ups B and C


def cluster(cores: int, islands: int = 1) -> Setup:
    """A set-up with `cores` in all. One island is part of set-up B, several are like C's."""
    if islands < 1 or cores % (PER_HOST * islands):
        raise BadOption(f"{cores} cores on {islands} islands are not whole hosts of {PER_HOST} cores on each")
    hosts = cores // PER_HOST // islands
    return load("B", hosts=hosts) if islands == 1 else load("C", islands=islands, hosts=hosts)


def stages(setup: Setup, count: int) -> list[SliceSpec]:
    """One slice a stage, with equal numbers of cores, island after island.

    If such blocks tile the island, each is the block of the torus that its computations are compiled for.
    """
    cores, names = setup.cluster.devices, [island.name for island in setup.cluster.islands]
    if cores % count or count % len(names):
        raise BadOption(f"{count} stages do not share {cores} cores on {len(names)} islands evenly")
    each, torus = cores // count, setup.cluster.islands[0].torus
    short, long = jobs.torus(each)
    block = (short, 2 * long)
    tiles = all(size % part == 0 for size, part in zip(torus, block, strict=True))
    return [
        SliceSpec(f"stage {at}", each, block if tiles else (), island=names[at * len(names) // count], exclusive=True)
        for at in range(count)
    ]


def whole(setup: Setup, split: int) -> list[SliceSpec]:
    """One slice for each whole island, as a mesh whose last axis is the cores that share a matrix.

    These are neighbours along the longer side of the torus. Virtual devices are numbered as in the mesh (data, model)
    that computations are compiled for.
    """
    found = []
    for at, island in enumerate(setup.cluster.islands):
        rows, columns = island.torus
        if columns % split:
            raise BadOption(f"{split} cores to a matrix do not divide the {columns} along a side of {setup.name}")
        mesh = (rows, columns // split, split)
        found.append(SliceSpec(f"island {at}", island.devices, mesh, island=island.name))
    return found
