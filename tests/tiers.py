"""Choose the tests of the fast tier by recorded durations, and compare the skipped tests with a list of them.

`--fast` runs as many cases of each test function as fit in `SHARE_S`, evenly spaced among its parameters, and none
if one takes longer, or if the fixtures of its file take longer than `FIXTURES_S`. tests/durations.json holds the
durations, which `--record-durations` writes anew. Several processes begin with the files that take longest.
`--check-skips` fails if tests are skipped that tests/skipped.txt does not name, or not skipped although it does.
"""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
DURATIONS = FOLDER / "durations.json"
SKIPPED = FOLDER / "skipped.txt"

SHARE_S = 0.15
"""What the cases of one test function may take in the fast tier, in seconds."""

FIXTURES_S = 10.0
"""What the fixtures of a file may take in the fast tier, in seconds."""

FAST_TIER_S = 320.0
"""What all cases of the fast tier may take, in seconds of one process."""

SMALLEST_S = 0.02
"""Functions of which a case takes less, in seconds, are not recorded."""

UNKNOWN_S = 0.005
"""What a case of a function without a record counts as, in seconds: about the mean of those that take less."""

PLANNED_S = pytest.StashKey[float]()


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def add_options(parser: pytest.Parser) -> None:
    """Add the options of the tiers."""
    group = parser.getgroup("tiers")
    group.addoption("--fast", action="store_true", help="run the fast tier only")
    group.addoption("--record-durations", action="store_true", help=f"write the durations to {DURATIONS.name}")
    group.addoption(
        "--check-skips", action="store_true", help=f"fail if the skipped tests are not {SKIPPED.name}'s"
    )


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find the cases of the fast tier and what they take; leave out all others if only these are to run."""
    recorded = json.loads(DURATIONS.read_text(encoding="utf-8"))
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        functions[_function(item.nodeid)].append(item)
    chosen: set[pytest.Item] = set()
    planned_s = 0.0
    file_s: dict[str, float] = defaultdict(float, recorded["fixtures"])
    for function, cases in functions.items():
        case_s = recorded["functions"].get(function, UNKNOWN_S)
        file_s[function.partition("::")[0]] += len(cases) * case_s
        if recorded["fixtures"].get(function.partition("::")[0], 0) > FIXTURES_S:
            continue
        n = min(len(cases), int(SHARE_S / case_s)) if case_s else len(cases)
        chosen.update(cases[number * len(cases) // n] for number in range(n))
        planned_s += n * case_s
    files = {item.nodeid.partition("::")[0] for item in chosen}
    config.stash[PLANNED_S] = planned_s + sum(recorded["fixtures"].get(each, 0) for each in files)
    if config.getoption("fast"):
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    if hasattr(config, "workerinput"):  # the last tests that several processes share are then short
        items.sort(key=lambda item: -file_s[item.nodeid.partition("::")[0]])


class Durations:
    """Adds up what functions, and the fixtures of files, take, and writes it at the end."""

    def __init__(self) -> None:
        self._calls: dict[str, list[float]] = defaultdict(list)
        self._fixtures: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a duration."""
        if report.when == "call":
            self._calls[_function(report.nodeid)].append(report.duration)
        else:
            self._fixtures[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the file, with the mean duration of a case of each function and the sum of a file's fixtures."""
        means = {name: round(sum(each) / len(each), 3) for name, each in sorted(self._calls.items())}
        contents = {
            "machine": f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}",
            "fixtures": {name: round(s, 2) for name, s in sorted(self._fixtures.items()) if s >= SMALLEST_S},
            "functions": {name: s for name, s in means.items() if s >= SMALLEST_S},
        }
        DURATIONS.write_text(json.dumps(contents, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class SkippedTests:
    """Compares the tests that are skipped with those of the list.

    A line of the list is a test function, or a file, and the reason after two spaces; one that begins with "?"
    is a pattern of what some machines skip.
    """

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._different: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that is skipped, and why."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file whose tests are all skipped, and why."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            reason = " ".join(report.longrepr[2].removeprefix("Skipped: ").split())
            self._found.add(f"{_function(report.nodeid)}  {reason}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Change the exit status if the tests differ."""
        lines = [each for each in SKIPPED.read_text(encoding="utf-8").splitlines() if each and each[0] != "#"]
        always = {each for each in lines if each[0] != "?"}
        patterns = [each[1:] for each in lines if each[0] == "?"]
        others = [each for each in self._found - always if not any(fnmatchcase(each, every) for every in patterns)]
        self._different = [f"skipped, but not listed: {each}" for each in sorted(others)]
        self._different += [f"listed, but not skipped: {each}" for each in sorted(always - self._found)]
        if self._different and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what differs."""
        for each in self._different:
            terminalreporter.write_line(f"{SKIPPED.name}: {each}", red=True)


def register(config: pytest.Config) -> None:
    """Register what this run's options ask for, in the process that gets all reports."""
    if hasattr(config, "workerinput"):
        return
    if config.getoption("record_durations"):
        config.pluginmanager.register(Durations())
    if config.getoption("check_skips"):
        config.pluginmanager.register(SkippedTests())
