"""Errors of libraries that are imported when they are first needed, or not installed."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from quarry.formats.errors import BackendUnavailable, QuarryError
from quarry.formats.system_errors import access_failed

__all__ = ["importing", "loading", "requiring"]

_REFUSALS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EIO)


@contextlib.contextmanager
def loading(name: str) -> Iterator[None]:
    """Import a library within the block.

    Raises:
        AccessFailed: it is installed, but the operating system refuses one of its files.
        ImportError: it is missing, or on Windows the runtime of C++ that it needs, which the message names.
    """
    try:
        yield
    except QuarryError:
        raise
    except OSError as error:
        raise access_failed(error, "loaded", error.filename or name) from error
    except ImportError as error:  # of the dynamic loader, which gives the reason as text only
        for number in _REFUSALS:
            if os.strerror(number) in str(error):
                reason = OSError(number, os.strerror(number))
                raise access_failed(reason, "loaded", error.path or name) from error
        if sys.platform == "win32" and str(error).startswith("DLL load failed"):
            message = f"{error}; install the Visual C++ redistributable, or run pip install msvc-runtime"
            raise ImportError(message, name=error.name, path=error.path) from error
        raise


@contextlib.contextmanager
def importing(extra: str) -> Iterator[None]:
    """Import, within the block, the libraries of an extra, where a module is imported that cannot do without.

    Raises:
        ImportError: one of them is missing, or of another version; the message says how to install it.
    """
    try:
        yield
    except ImportError as error:
        message = f"{error}; this needs pip install 'quarry-search[{extra}]'"
        raise type(error)(message, name=error.name, path=error.path) from error


@contextlib.contextmanager
def requiring(what: str, packages: str, path: Path | None = None) -> Iterator[None]:
    """Import, within the block, libraries that not every installation has.

    Args:
        what: the first words of the message: what is missing, or cannot be done.
        packages: arguments of ``pip install``.
        path: what it is needed for, if that is a file or folder.

    Raises:
        BackendUnavailable: one of them is missing.
    """
    try:
        yield
    except ImportError as error:
        raise BackendUnavailable(what, path=path, expected=f"pip install {packages}", actual=str(error)) from error
