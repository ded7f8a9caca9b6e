"""Options are data: what the command line takes, what it refuses, and its messages."""

import pytest

from experiments.framework.options import BadOption, Option, command, read_all

HOSTS = Option("hosts", (2, 8, 32), "hosts of the island", least=1)
COMPUTE = Option("compute_ms", 0.33, "of a computation")
POLICY = Option("policy", "fifo", "who goes next", choices=("fifo", "stride", "priority"))
CLUSTER = Option("cluster", "A", "where")
NOISY = Option("noisy", False, "with jitter")
ALL = (HOSTS, COMPUTE, POLICY, CLUSTER, NOISY)


def test_an_option_that_is_not_given_has_its_defaults() -> None:
    assert read_all(ALL, {}) == {
        "hosts": (2, 8, 32), "compute_ms": (0.33,), "policy": ("fifo",), "cluster": ("A",), "noisy": (False,),
    }  # fmt: skip


def test_a_text_a_value_and_a_list_are_all_accepted() -> None:
    assert HOSTS.read("2, 512") == HOSTS.read([2, 512]) == (2, 512)
    assert HOSTS.read(64) == HOSTS.read("64") == (64,)
    assert HOSTS.read("64k") == (65_536,)
    assert COMPUTE.read("1,2.5") == (1.0, 2.5)
    assert NOISY.read("yes,no") == (True, False)


@pytest.mark.parametrize(
    ("option", "asked", "says"),
    [
        (HOSTS, "two", "--hosts cannot be 'two': a whole number is wanted"),
        (HOSTS, 2.5, "--hosts cannot be 2.5: a whole number is wanted"),
        (HOSTS, "0", "--hosts is at least 1, not 0"),
        (HOSTS, "2,2", "--hosts names 2 twice"),
        (HOSTS, (), "--hosts is empty"),
        (COMPUTE, "fast", "--compute-ms cannot be 'fast': a number is wanted"),
        (POLICY, "strid", "did you mean stride?"),
        (NOISY, "maybe", "--noisy cannot be 'maybe': yes or no is wanted"),
    ],
)
def test_invalid_values_are_refused_by_name(option: Option, asked: object, says: str) -> None:
    with pytest.raises(BadOption) as refused:
        option.read(asked)
    assert says in str(refused.value)


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadOption, match=r"no option --host; did you mean --hosts\? there is: --hosts, --compute-ms"):
        read_all(ALL, {"host": 3})


def test_the_command_to_repeat_a_run_names_all_non_default_options() -> None:
    chosen = read_all(ALL, {"hosts": "2,8", "compute_ms": 1.5, "policy": "fifo", "noisy": "yes"})
    assert command("fig6", ALL, chosen) == "python -m experiments fig6 --hosts 2,8 --compute-ms 1.5 --noisy yes"
