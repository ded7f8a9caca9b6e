"""The machines of the tests: their names, their hosts files, what is cut between them, and that nothing is left."""

from __future__ import annotations

import socket
import subprocess

import pytest

from tests.machines import HOSTS, Machines, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def answers(machines: Machines, name: str, to: str, *, seconds: float = 5.0) -> bool:
    dial = f"import socket; socket.create_connection(({to!r}, 7000), {seconds}).close()"
    return subprocess.run(machines.words(name, "python3", "-c", dial), capture_output=True, check=False).returncode == 0


def test_machines_have_names_and_wires_and_leave_nothing() -> None:
    with Machines(["a", "b"]) as machines:
        said = subprocess.check_output(machines.words("a", "sh", "-c", "uname -n; cat /etc/hosts"), text=True)
        assert said == f"a\n127.0.0.1 localhost\n127.0.1.1 a\n{machines.addresses['b']} b\n"

        serve = "import socket; s = socket.create_server(('', 7000)); print(flush=True)\nwhile True: s.accept()"
        server = subprocess.Popen(machines.words("b", "python3", "-c", serve), stdout=subprocess.PIPE)
        with server:
            assert server.stdout is not None
            server.stdout.readline()
            assert answers(machines, "a", "b")
            socket.create_connection((machines.addresses["b"], 7000), 5).close()  # this process reaches them, too
            machines.cut("b", "a", 7001)
            assert answers(machines, "a", "b")
            machines.cut("b", "a", 7000)
            assert not answers(machines, "a", "b", seconds=0.2)
            machines.mend()
            machines.cut("a", "b")
            assert not answers(machines, "a", "b", seconds=0.2)
            machines.mend()
            assert answers(machines, "a", "b")
            machines.close()
            assert server.wait(5) < 0
    assert not [each for each in HOSTS.glob("*") if each.name == machines._space("a")]
    assert machines._space("a") not in subprocess.check_output(["ip", "netns", "list"], text=True)
