"""Stage 1, once per kind of machine: `protocol` says what a backend promises, `registry` finds it."""
