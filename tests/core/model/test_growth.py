"""What a running cluster may become, and what its processes learn of it."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from core.model import Cluster, Hosts, Island, KnownHosts, all_hosts, larger_of, why_not_grown

A = Island(name="a", hosts=2, devices_per_host=4, memory=1 << 30)
B = Island(name="b", hosts=1, devices_per_host=2, memory=1 << 30)
C = Island(name="c", hosts=3, devices_per_host=2)
HERE = Cluster((A, B))


@pytest.mark.parametrize(
    "larger",
    [
        (A, B, C),
        (A, replace(B, hosts=2)),
        (A, replace(B, hosts=2), C, replace(C, name="d")),
        (A, replace(B, hosts=2, assumed=True)),
    ],
)
def test_what_is_there_keeps_its_numbers_and_more_comes_behind_it(larger: tuple[Island, ...]) -> None:
    grown = Cluster(larger)
    assert why_not_grown(HERE, grown) == ""
    assert [grown.devices_of(host) for host in range(3)] == [HERE.devices_of(host) for host in range(3)]


@pytest.mark.parametrize(
    ("larger", "why"),
    [
        (HERE, "it has no more hosts than there are, 3"),
        (Cluster((A,)), "it has no island 'b' any more: drain the hosts of an island, and leave it in the file"),
        (Cluster((A, C, B)), "island 'c' comes before island 'b': new islands come last, behind all others"),
        (Cluster((B, A)), "island 'b' comes before island 'a': new islands come last, behind all others"),
        (
            Cluster((replace(A, hosts=3), B)),
            (
                "island 'a' has 3 hosts, not 2, but only the last island takes more, since hosts keep their numbers: "
                "give new hosts an island of their own, behind the others"
            ),
        ),
        (
            Cluster((replace(A, hosts=1), B, C)),
            "island 'a' has 1 hosts, not 2: drain hosts that are to go, and leave them there",
        ),
        (
            Cluster((A, replace(B, memory=1 << 31), C)),
            (
                "island 'b': `memory` was 1073741824 and is 2147483648. What is there does not change while it runs: "
                "change it back, or start the controller again"
            ),
        ),
        (
            Cluster((A, replace(B, hosts=2), C), dcn_latency=5),
            "`dcn_latency` has changed, and what is there does not change while it runs",
        ),
    ],
)
def test_all_else_is_refused_by_name_and_the_fix_is_said(larger: Cluster, why: str) -> None:
    assert why_not_grown(HERE, larger) == why


def test_a_torus_takes_no_more_hosts() -> None:
    torus = Island(name="t", hosts=2, devices_per_host=4, torus=(2, 4))
    more = replace(torus, hosts=4, torus=(4, 4), block=())
    why = why_not_grown(Cluster((torus,)), Cluster((more,)))
    assert why == (
        "island 't' is a torus, whose shape cannot change: give new hosts an island of their own, behind the others"
    )
    assert why_not_grown(Cluster((torus,)), Cluster((torus, replace(torus, name="u")))) == ""


# --- a controller that is started again -------------------------------------------------------------------------------


def test_a_controller_begins_with_the_cluster_that_has_all_its_hosts() -> None:
    grown = Cluster((A, replace(B, hosts=2), C))
    assert larger_of(grown, HERE) == grown
    assert larger_of(HERE, grown) == grown
    roomy = Cluster((replace(A, memory=1 << 34), replace(B, hosts=2), C))
    assert larger_of(grown, roomy) == roomy, "what is known of devices may change with a start"
    torus = replace(C, devices_per_host=4, hosts=4, torus=(4, 4), block=(2, 2))
    turned = replace(torus, torus=(2, 8), wraps=(), block=(2, 2))
    assert larger_of(Cluster((torus,)), Cluster((turned,))) is None, "its devices have other places"
    for other in (Cluster((B, A)), Cluster((replace(A, memory=1 << 34), B)), Cluster((A, C))):
        assert larger_of(grown, other) is None


# --- which hosts a process knows --------------------------------------------------------------------------------------


def islands() -> list[Cluster]:
    names = "abcd"
    return [
        Cluster(tuple(Island(name=names[at], hosts=h, devices_per_host=d) for at, (h, d) in enumerate(pairs)))
        for count in (1, 2, 3)
        for pairs in product(product((1, 3), (1, 4)), repeat=count)
    ]


def answers(hosts: Hosts, cluster: Cluster) -> list[object]:
    return [*map(hosts.host_of, range(cluster.devices)), *map(hosts.devices_of, range(cluster.hosts))]


def test_the_short_form_says_which_devices_each_host_has() -> None:
    assert all_hosts(Cluster((A, B, C))) == ((2, 4), (4, 2))
    for cluster in islands():
        known = KnownHosts(Cluster((Island(name="x", hosts=1, devices_per_host=1),)))
        assert known.learn(all_hosts(cluster)) == ""
        assert answers(known, cluster) == answers(cluster, cluster)
        assert answers(KnownHosts(known), cluster) == answers(cluster, cluster)


@pytest.mark.parametrize("told", [(), ((0, 1),), ((1, -1),), ((1, 1 << 25),), ((1 << 20, 1 << 20),)])
def test_hosts_that_no_cluster_has_are_refused(told: tuple[tuple[int, int], ...]) -> None:
    known = KnownHosts(HERE)
    known.learn(all_hosts(HERE))
    assert "a cluster cannot have the hosts" in known.learn(told)
    assert answers(known, HERE) == answers(HERE, HERE)
