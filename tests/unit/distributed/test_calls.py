"""Calls of deployments, with a substitute for a handle of Ray Serve."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.processes import run_python

from quarry.formats.errors import IndexNotFound, ShardTimeout

pytest.importorskip("ray", reason="the extra distributed is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of Ray while it is imported


def handle(error: Exception) -> SimpleNamespace:
    """Return a handle whose method raises an error of another process."""
    from ray.exceptions import RayTaskError

    wrapped = RayTaskError("state", "a traceback", error).as_instanceof_cause()
    assert isinstance(wrapped, RayTaskError)

    def result(**_: object) -> None:
        raise wrapped

    return SimpleNamespace(state=SimpleNamespace(remote=lambda: SimpleNamespace(result=result)))


@pytest.mark.parametrize(
    "error", [IndexNotFound("there is no index", path="idx"), ShardTimeout("late"), KeyError("x")], ids=repr
)
def test_an_error_of_the_method_is_raised_as_it_was(error: Exception) -> None:
    from ray.exceptions import RayTaskError

    from quarry.distributed.calls import call

    with pytest.raises(type(error)) as raised:
        call(handle(error), "state", (), 5, "the shard")
    if isinstance(error, KeyError):  # clients do not handle this type
        assert isinstance(raised.value, RayTaskError)
    else:
        assert type(raised.value) is type(error)
        assert str(raised.value) == str(error)


@pytest.mark.parametrize("name", ["QuarryDatasink", "serve_index"])
def test_a_missing_library_is_named(name: str) -> None:
    done = run_python("-c", f"import sys; sys.modules['ray'] = None; from quarry.distributed import {name}")
    assert done.returncode == 1
    assert "Ray is not installed; expected pip install 'quarry-search[distributed]'" in done.stderr
