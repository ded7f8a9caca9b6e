"""What it costs the controller to say what devices are to do."""
