"""The console as a process beside `penstock serve`."""

import contextlib
import os
import subprocess
import sys
from typing import Final

from penstock.environment import own_module_variables
from penstock.transport.addresses import Address

__all__ = ["ConsoleProcess", "api_url", "console_variables"]

_STOP_SECONDS_MAX: Final = 3.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_VARIABLES: Final = (
    "PENSTOCK_CONSOLE_LISTEN",
    "PENSTOCK_PASSWORD",
    "PENSTOCK_TOKEN",
    "PENSTOCK_USERNAME",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""Variables of the broker's environment that are meant for the console."""


def api_url(addresses: tuple[Address, ...], http: Address | None) -> str | None:
    """Return the URL of the HTTP API for a client on this machine, None if there is none."""
    places = [each for each in (http, *addresses) if each is not None]
    found = next((each for each in places if each.scheme in {"ws", "wss", "http", "https"}), http)
    if found is None:
        return None
    host = _EVERYWHERE.get(found.host, found.host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if found.is_secure else 'http'}://{shown}:{found.port}"


def console_variables() -> dict[str, str]:
    """Return the environment of the console, without the secrets of the broker's log."""
    given = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return {**own_module_variables(), **given}


class ConsoleProcess:
    """`penstock console` for a broker; it prints its own address, or why it cannot run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, url: str) -> None:
        """Start it; the broker goes on if it fails."""
        words = [sys.executable, "-m", "penstock.cli", "console", "--url", url]
        self._process = subprocess.Popen(  # noqa: S603
            words, stdin=subprocess.DEVNULL, env=console_variables(), close_fds=True
        )

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS_MAX)
        self._process.kill()
        self._process.wait()
