"""The fast tier stays within its time, and a run fails if other tests are skipped than the list names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiers

pytest_plugins = ["pytester"]

CONFTEST = """
import sys
sys.path.insert(0, {folder!r})
import tiers
from pathlib import Path
tiers.DURATIONS, tiers.SKIPPED = Path("durations.json"), Path("skipped.txt")

def pytest_addoption(parser):
    tiers.add_options(parser)

def pytest_configure(config):
    tiers.register(config)

def pytest_collection_modifyitems(config, items):
    tiers.choose(config, items)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(10))
def test_cases(number): pass

def test_slow(): pass

def test_new(): pass

def test_skipped(): pytest.skip("no reason")
"""


def test_the_fast_tier_takes_less_than_it_may(request: pytest.FixtureRequest) -> None:
    """Count what is recorded of all collected tests; a part of them takes less than all do."""
    assert request.config.stash[tiers.PLANNED_S] <= tiers.FAST_TIER_S


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing all plugins takes seconds
    pytester.makeconftest(CONFTEST.format(folder=str(Path(tiers.__file__).parent)))
    pytester.makepyfile(test_some=TESTS)
    functions = {"test_some.py::test_cases": tiers.SHARE_S / 3, "test_some.py::test_slow": 2 * tiers.SHARE_S}
    (pytester.path / "durations.json").write_text(json.dumps({"fixtures": {}, "functions": functions}))

    def run_with(*options: str, skipped: str = "") -> pytest.RunResult:
        (pytester.path / "skipped.txt").write_text(skipped)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run_with


def test_cases_that_fit_are_run_and_slow_functions_are_left_out(run) -> None:
    result = run("--fast", "-v")
    result.assert_outcomes(passed=4, skipped=1, deselected=8)
    result.stdout.fnmatch_lines(["*test_cases?0?*", "*test_cases?3?*", "*test_cases?6?*", "*test_new*"])
    run(skipped="test_some.py::test_skipped  another").assert_outcomes(passed=12, skipped=1)


def test_durations_are_recorded(run, pytester: pytest.Pytester) -> None:
    run("--record-durations")
    assert (
        json.loads((pytester.path / "durations.json").read_text())["functions"] == {}
    )  # all take less than is recorded


@pytest.mark.parametrize(
    ("skipped", "message"),
    [
        ("", "skipped, but not listed: test_some.py::test_skipped  no reason"),
        ("test_some.py::test_skipped  another", "listed, but not skipped: test_some.py::test_skipped  another"),
        ("# a comment\n\ntest_some.py::test_skipped  no reason", None),
        ("?test_*::test_skipped  no *\n?test_other  *", None),
    ],
)
def test_tests_that_are_skipped_are_those_of_the_list(run, skipped: str, message: str | None) -> None:
    result = run("--check-skips", skipped=skipped)
    assert result.ret == (message is not None)
    if message is not None:
        result.stdout.fnmatch_lines([f"*{message}"])
