"""``python -m engine``: the command ``quarry``."""

from __future__ import annotations

import sys

from engine.cli import main

sys.exit(main())
