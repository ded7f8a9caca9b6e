"""The in-memory world: controller, hosts, clients, network and devices in plain Python, all from one seed."""
