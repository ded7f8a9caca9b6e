"""What it costs to say what devices are to do: core's state machines by themselves, and the controller over streams."""
