"""PyInstaller's hook for the package `quarry`; see `quarry.engine.pyinstaller`."""  # noqa: N999

from __future__ import annotations

from PyInstaller.utils.hooks import collect_data_files

from quarry.engine.pyinstaller import hidden_imports

hiddenimports = hidden_imports()
datas = collect_data_files("quarry.engine.bundled")
