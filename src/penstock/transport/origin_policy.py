"""Which web pages may use a listener, by the Origin and Host headers that browsers send."""

import ipaddress
from urllib.parse import urlsplit

from penstock.transport.addresses import Address

__all__ = ["OriginPolicy"]


class OriginPolicy:
    """The origin checks of one listener. Requests without an Origin come from programs and pass."""

    def __init__(self, address: Address) -> None:
        self._is_loopback = address.is_loopback
        self._origins = frozenset(address.origins)
        self._hosts = {urlsplit(origin).hostname for origin in address.origins}

    def allows_request(self, origin: str | None, host: str | None) -> bool:
        """Return whether a page may send requests: its origin is listed, or its host is `host`."""
        return self._is_listed(origin) or _is_same_host(origin, host)

    def allows_websocket(self, origin: str | None, host: str | None) -> bool:
        """Return whether a page of `origin` may open a WebSocket, which has no credentials yet.

        If its origin is not listed, its host must be `host` and pass `allows_host`.
        """
        if self._is_listed(origin):
            return True
        return _is_same_host(origin, host) and self.allows_host(host)

    def _is_listed(self, origin: str | None) -> bool:
        return origin is None or "*" in self._origins or origin in self._origins

    def allows_host(self, host: str | None) -> bool:
        """Return whether the Host header is a name of this listener.

        A loopback listener takes loopback names and the hosts of listed origins only. This stops
        DNS rebinding: a page whose own host name resolves to 127.0.0.1.
        """
        if not self._is_loopback:
            return True
        try:
            name = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:
            return False
        return name in self._hosts or _is_loopback_name(name)


def _is_same_host(origin: str | None, host: str | None) -> bool:
    try:
        return urlsplit(origin or "").netloc == host
    except ValueError:
        return False


def _is_loopback_name(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
