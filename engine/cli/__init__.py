"""The command ``quarry``.

Start with `commands`: arguments and subcommands. `output` formats hits, `demo` is ``quarry demo``. Other
packages add subcommands by the entry point ``quarry.commands``.

May import: `quarry.engine`.
"""
