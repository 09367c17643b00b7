"""Decisions: one function a command, `(states, command, now) -> (Draft, answer)`, pure. `calls`, `settle`, `holds`, `runs`, `turns`."""
