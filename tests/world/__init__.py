"""The in-memory world of the tests: controller, hosts, clients, network and devices in plain Python, from one seed."""
