"""A test that hangs fails and shows the stacks of all threads."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.processes import environment

HANGS = {
    "in Python": (
        """
def test_hangs():
    threading.Event().wait()
""",
        ["Failed: Timeout (>1.0s)", "1 failed"],
    ),
    "where no signal is noticed": (
        """
def test_hangs():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    threading.Event().wait()
""",
        ["Timeout (0:00:03)!", "in test_hangs"],
    ),
    "at the end of the interpreter": (
        """
def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait).start()
""",
        ["1 passed", "Timeout (0:00:03)!", "in _shutdown"],
    ),
}


@pytest.mark.skipif(sys.platform == "win32", reason="tests cannot be stopped by a signal on this system")
@pytest.mark.parametrize("where", HANGS)
def test_a_hang_is_a_failure_with_stacks(tmp_path, repository, where):
    test, expected = HANGS[where]
    script = f"""
import signal, threading

def worker_that_waits():
    threading.Event().wait()

threading.Thread(target=worker_that_waits, daemon=True).start()
{test}"""
    (tmp_path / "test_it.py").write_text(script)
    plugins = [
        f"-p{name}" for name in ("pytest_timeout", "pytest_asyncio.plugin") if find_spec(name.partition(".")[0])
    ]
    limits = ("-o", "timeout=1", "-o", "faulthandler_timeout=3")
    settings = (
        "-c",
        repository / "pyproject.toml",
        "--rootdir",
        tmp_path,
        "-p",
        "asyncio_settings",
        "-p",
        "exit_limit",
        "-p",
        "no:cacheprovider",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *settings, *limits, tmp_path / "test_it.py"],
        env=environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # which would load large libraries
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    assert all(words in printed for words in ("worker_that_waits", *expected)), printed
