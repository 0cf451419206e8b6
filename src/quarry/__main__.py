"""``python -m quarry``: the command ``quarry``."""

from __future__ import annotations

import sys

from quarry.engine.cli.commands import main

sys.exit(main())
