"""Which web pages may speak to a listener: without this, any page that a browser runs could."""

import ipaddress
from urllib.parse import urlsplit

from penstock.transport.addresses import Address

__all__ = ["Pages"]


class Pages:
    """Judges by what a browser says of a page. Programs say nothing of the kind."""

    def __init__(self, address: Address) -> None:
        self._only_this_machine = address.is_loopback
        self._origins = frozenset(address.origins)
        self._hosts = {urlsplit(origin).hostname for origin in address.origins}

    def may_ask(self, origin: str | None, host: str | None) -> bool:
        """Tell whether a page of `origin` may ask for `host`: it came from there or is listed."""
        return self._is_listed(origin) or _is_same(origin, host)

    def may_connect(self, origin: str | None, host: str | None) -> bool:
        """Likewise for a connection, before anyone could send credentials."""
        if self._is_listed(origin):
            return True
        return _is_same(origin, host) and self.is_our_name(host)

    def _is_listed(self, origin: str | None) -> bool:
        return origin is None or "*" in self._origins or origin in self._origins

    def is_our_name(self, host: str | None) -> bool:
        """Tell whether `host` may stand for this listener.

        Where only this machine can ask, nobody has a reason to call it anything but that, except a
        page whose own name was made to lead here.
        """
        if not self._only_this_machine:
            return True
        try:
            name = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:
            return False
        return name in self._hosts or _is_this_machine(name)


def _is_same(origin: str | None, host: str | None) -> bool:
    try:
        return urlsplit(origin or "").netloc == host
    except ValueError:
        return False


def _is_this_machine(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
