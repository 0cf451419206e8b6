"""Calls of deployments: repeated if the process that has them ends, and given up after some time."""

from __future__ import annotations

import time
from typing import Any

from quarry.distributed import importing_ray
from quarry.formats.errors import QuarryError, ShardTimeout

with importing_ray():
    from ray.exceptions import RayActorError, RayTaskError
    from ray.serve.exceptions import DeploymentUnavailableError, ReplicaUnavailableError

__all__ = ["call"]

_PAUSE_S = 0.05  # before a call is repeated


def call(handle: Any, method: str, arguments: tuple[Any, ...], timeout_s: float, name: str) -> Any:  # noqa: ANN401  # types of Ray
    """Call a method of a deployment; if the process of the copy ends meanwhile, call another copy.

    Only for methods that change nothing. A call that is given up is canceled, so that it does not wait for a copy
    any longer, and no copy counts it as ongoing.

    Args:
        handle: the handle of the deployment.
        method: name of the method.
        arguments: the arguments of the method.
        timeout_s: seconds for all attempts together.
        name: the name of the deployment, for messages.

    Returns:
        What the method returned.

    Raises:
        ShardTimeout: there was no answer in time, for example because no copy is running.
        QuarryError: the method raised it.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        response = getattr(handle, method).remote(*arguments)
        try:
            return response.result(
                timeout_s=max(0.001, deadline - time.monotonic()),
                _skip_asyncio_check=True,  # threads of a deployment may wait
            )
        except RayTaskError as error:  # Ray's wrapping of an error has another class and name
            cause: object = error.cause
            if isinstance(cause, QuarryError):
                raise cause from None
            raise
        except TimeoutError:
            response.cancel()
            raise _late(name, timeout_s) from None
        except (RayActorError, DeploymentUnavailableError, ReplicaUnavailableError) as error:
            if time.monotonic() > deadline:
                raise _late(name, timeout_s, str(error).partition("\n")[0]) from error
            time.sleep(_PAUSE_S)


def _late(name: str, timeout_s: float, actual: str | None = None) -> ShardTimeout:
    return ShardTimeout(
        f"{name} did not answer in time", expected=f"an answer within {timeout_s:g} s", actual=actual
    )
