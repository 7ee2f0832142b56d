"""Runs the console: a web server of its own, in this process."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import uvicorn

from penstock.console.api import BrokerApi
from penstock.console.security import is_loopback_name
from penstock.console.site import new_site

__all__ = ["bind", "run_console"]

_STOP_SECONDS_MAX = 2


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; raise OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening


class _Server(uvicorn.Server):
    """A server whose process ends with 0 after a signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run_console`: uvicorn would raise them again at the end."""
        yield

    def stop(self) -> None:
        """Stop; at the second call do not wait for requests."""
        self.force_exit = self.should_exit
        self.should_exit = True


def run_console(
    api: BrokerApi,
    listening: socket.socket,
    *,
    hosts: Collection[str] = (),
    warehouse: Path | None = None,
    announce: Callable[[], None],
) -> None:
    """Serve the console until SIGINT or SIGTERM; `announce` is called when it answers."""
    config = uvicorn.Config(
        new_site(
            api,
            hosts=hosts,
            is_local=is_loopback_name(listening.getsockname()[0]),
            warehouse=warehouse,
        ),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_SECONDS_MAX,
        ws_max_size=1 << 20,
    )
    server = _Server(config)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.stop)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        if server.started:
            announce()
        await serving

    asyncio.run(serve())
