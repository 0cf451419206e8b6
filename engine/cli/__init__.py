"""The command ``quarry``.

Start with `commands`: arguments and subcommands. `words` converts what is typed, `output` formats hits; longer
commands have modules of their own. Other packages add subcommands by the entry point ``quarry.commands``.
"""
