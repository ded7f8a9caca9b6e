"""What README and docs/ show is run: Python, commands, errors, links. `table` says what is run instead, and why."""
