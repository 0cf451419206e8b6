"""Limits of requests to a server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from quarry.engine.process.cpus import n_cpus
from quarry.formats.errors import InvalidSetting

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of requests to a server.

    Attributes:
        max_k: hits of a search; a batch may have ten times as many in all.
        max_queries: queries of a batch.
        max_body_bytes: body of a request, except for documents that are added.
        max_upload_bytes: documents that are added in one request.
        timeout_s: seconds until a request must have arrived, and then until it must be answered; adding documents
            may take longer, but not waiting for its turn, nor for the next part of the body.
        threads: searches that are computed at once; None: one for each available CPU, and one more.
        max_waiting: requests that wait for a thread; further ones are refused.
    """

    max_k: int = 1000
    max_queries: int = 100
    max_body_bytes: int = 1 << 20
    max_upload_bytes: int = 1 << 30
    timeout_s: float = 30.0
    threads: int | None = None
    max_waiting: int = 100

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            kinds = (int, float) if each.name == "timeout_s" else (int,)
            if not (each.name == "threads" and value is None) and (type(value) not in kinds or not value > 0):
                raise InvalidSetting(
                    f"{each.name} is out of range", expected="a number above 0", actual=repr(value)
                )

    @property
    def n_threads(self) -> int:
        """The number of threads for searches."""
        return n_cpus() + 1 if self.threads is None else self.threads
