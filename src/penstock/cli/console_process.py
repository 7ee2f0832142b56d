"""The console as a process beside `penstock serve`."""

import contextlib
import subprocess
import sys
from typing import Final

from penstock.transport.addresses import Address

__all__ = ["ConsoleProcess", "api_url"]

_STOP_SECONDS_MAX: Final = 3.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def api_url(addresses: tuple[Address, ...], http: Address | None) -> str | None:
    """Return the URL of the HTTP API for a client on this machine, None if there is none."""
    places = [each for each in (http, *addresses) if each is not None]
    found = next((each for each in places if each.scheme in {"ws", "wss", "http", "https"}), http)
    if found is None:
        return None
    host = _EVERYWHERE.get(found.host, found.host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if found.is_secure else 'http'}://{shown}:{found.port}"


class ConsoleProcess:
    """`penstock console` for a broker; it prints its own address, or why it cannot run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, url: str) -> None:
        """Start it; the broker goes on if it fails."""
        words = [sys.executable, "-m", "penstock.cli", "console", "--url", url]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL)  # noqa: S603

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS_MAX)
        self._process.kill()
        self._process.wait()
