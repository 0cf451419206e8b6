"""Running an application with uvicorn: sockets, signals, and clients that send too slowly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from quarry.formats.errors import AccessFailed, InvalidSetting
from quarry.server.application import SearchApp

__all__ = ["StopSignals", "is_loopback", "listen", "make_server", "run_server", "url_of"]

_HEADERS_TIMEOUT_S = 10.0
"""Seconds in which the headers of a request must arrive."""
_KEEP_ALIVE_S = 30  # that a connection without a request stays open
_MAX_CONNECTIONS = 500  # further ones get 503
_BACKLOG = 512  # connections that the system accepts before the server does
_END_AFTER_S = 2.5  # in which requests are given up when their time is over, and then the rest of a process ends
_LOOK_EVERY_S = 0.1  # whether a change is still being made
_SAME_S = 1.0  # timeout(1) sends its signal to a process and then to its group, terminals and supervisors to all
_log = logging.getLogger(__name__)


class StopSignals:
    """Tells a second signal, which ends a server at once, from a first one that arrives several times."""

    def __init__(self) -> None:
        self._first: float | None = None

    def is_second(self) -> bool:
        """Return whether the signal that has just arrived is a second one."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now > self._first + _SAME_S


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server at an address."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections.

    Args:
        host: name or address of this machine.
        port: the port; 0: any free one.

    Raises:
        InvalidSetting: there is no such port, or the host is not this machine.
        AccessFailed: another program uses the port, or the system does not allow it.
    """
    if not 0 <= port <= 65_535:
        raise InvalidSetting("not a port", expected="0 to 65535", actual=port)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidSetting("not an address of this machine", expected="a host", actual=host) from error
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        # With SO_REUSEADDR, Windows lets a second server take the port.
        opened.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise AccessFailed(
            f"cannot listen on {host} port {port}", expected="a free port, such as --port 0", error=error
        ) from error
    return opened


def url_of(opened: socket.socket) -> str:
    """Return the address of the page of a server."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def run_server(
    app: SearchApp,
    opened: socket.socket,
    grace_s: float,
    started: Callable[[], None],
    *,
    is_one_of_several: bool = False,
    end_after_s: float = _END_AFTER_S,
) -> None:
    """Serve until SIGINT or SIGTERM; then finish the requests that have begun, and close the application.

    Args:
        app: the application.
        opened: the socket.
        grace_s: seconds after which requests that have begun are given up, except for changes.
        started: called when requests are answered, and signals end the server.
        is_one_of_several: another process waits for this one and kills it after a second signal. This one ignores
            it; otherwise a second signal ends it at once.
        end_after_s: seconds in which requests are given up when their time is over, and then again those in which
            the rest of the process ends; otherwise a search does not end, and the process ends without it.
    """
    server = make_server(app, grace_s, started)
    server.second_signal_ends = not is_one_of_several
    limits = (app, grace_s, end_after_s)
    server.when_stopping = threading.Thread(target=_end_in_time, args=limits, daemon=True).start
    with _signals_end_only_the_server():
        server.run(sockets=[opened])


def _end_in_time(app: SearchApp, grace_s: float, end_after_s: float) -> None:
    """End this process if it has not ended a while after the time of requests and the last change are over."""
    time.sleep(grace_s + end_after_s)
    while app.is_writing:
        time.sleep(_LOOK_EVERY_S)
    time.sleep(end_after_s)
    _log.warning("a search that does not end is given up")
    os._exit(0)


def make_server(
    app: ASGIApp,
    grace_s: float,
    started: Callable[[], None] | None = None,
    headers_timeout_s: float = _HEADERS_TIMEOUT_S,
) -> _Server:
    """Return a server for an application, with the settings of `run_server`."""
    config = uvicorn.Config(
        app,
        http=functools.partial(_Protocol, headers_timeout_s),  # type: ignore[arg-type]  # made by a call
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,  # type: ignore[arg-type]  # a fraction works, too
    )
    return _Server(config, started)


class _Server(uvicorn.Server):
    """A server that says when it has started, and when it begins to stop.

    Attributes:
        when_stopping: called when it begins to stop.
        second_signal_ends: whether a second signal ends the process at once.
    """

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._when_started = started
        self._signals = StopSignals()
        self.when_stopping: Callable[[], None] | None = None
        self.second_signal_ends = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._when_started and not self.should_exit:
            self._when_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.when_stopping:
            self.when_stopping()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signals.is_second() and self.second_signal_ends:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        if not self.should_exit:
            super().handle_exit(sig, frame)


class _Protocol(H11Protocol):
    """Connections whose requests must begin in time: uvicorn waits without limit for the end of headers."""

    _timer: asyncio.TimerHandle | None = None

    def __init__(self, headers_timeout_s: float, **uvicorns: Any) -> None:  # noqa: ANN401  # what uvicorn gives
        super().__init__(**uvicorns)
        self._headers_timeout_s = headers_timeout_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, unless a response has begun; their request gets no other one."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        with contextlib.suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()

    def _watch(self) -> None:
        """Run the timer exactly while headers are awaited."""
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._headers_timeout_s, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


@contextlib.contextmanager
def _signals_end_only_the_server() -> Iterator[None]:
    """Ignore the signals that uvicorn raises again when it has ended because of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[signal.Signals, Any] = {each: signal.signal(each, _ignore) for each in numbers}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
