"""Pages of a listener: its own, those that are listed, and none whose name was made to lead here."""

import pytest

from penstock.transport.addresses import Address
from penstock.transport.pages import Pages

LOCAL = Pages(Address("ws", "127.0.0.1", origins=("https://app.example",)))
OPEN = Pages(Address("ws", "0.0.0.0"))  # noqa: S104
ANY = Pages(Address("ws", "127.0.0.1", origins=("*",)))


@pytest.mark.parametrize(
    ("pages", "origin", "host", "asks", "connects"),
    [
        (LOCAL, None, "127.0.0.1:7080", True, True),
        (LOCAL, None, "evil.example", True, True),  # a program; see is_our_name
        (LOCAL, "http://localhost:7080", "localhost:7080", True, True),
        (LOCAL, "http://[::1]:7080", "[::1]:7080", True, True),
        (LOCAL, "https://app.example", "127.0.0.1:7080", True, True),
        (LOCAL, "https://app.example:1", "app.example:1", True, True),  # through a proxy
        (LOCAL, "http://evil.example:7080", "evil.example:7080", True, False),
        (LOCAL, "http://evil.example", "127.0.0.1:7080", False, False),
        (LOCAL, "null", "127.0.0.1:7080", False, False),
        (LOCAL, "http://[", "[", False, False),
        (LOCAL, "", "", True, False),
        (OPEN, "http://plant.example:7080", "plant.example:7080", True, True),
        (OPEN, "http://evil.example", "plant.example:7080", False, False),
        (ANY, "http://evil.example:7080", "evil.example:7080", True, True),
    ],
)
def test_who_may_ask_and_who_may_connect(
    *, pages: Pages, origin: str | None, host: str, asks: bool, connects: bool
) -> None:
    assert pages.may_ask(origin, host) is asks
    assert pages.may_connect(origin, host) is connects
