"""Numbers of clients are not assigned again after a restart."""

from pathlib import Path

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.limits import SESSION_NUMBERS_BLOCK
from penstock.storage.session_numbers import FILE_NAME, SessionNumbers
from tests.conformance.fleximq.client import Client
from tests.support.live import LiveBroker


def numbers(folder: Path, count: int = 2) -> list[int]:
    """Client ids of one run of a broker."""
    found = []
    with LiveBroker(options=GatewayOptions(), numbers=SessionNumbers(folder)) as live:
        for _ in range(count):
            with Client(live.address) as client:
                found.append(client.number)
    return found


def test_a_restart_assigns_other_numbers(tmp_path: Path) -> None:
    assert numbers(tmp_path) == [1000, 1001]
    second = numbers(tmp_path)
    assert second == [1000 + SESSION_NUMBERS_BLOCK, 1001 + SESSION_NUMBERS_BLOCK]
    assert numbers(tmp_path)[0] > second[-1]


@pytest.mark.parametrize("content", [b"", b"x", b"-5", b"99999999999999999999999999999999999"])
def test_a_damaged_file_starts_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert numbers(tmp_path) == [1000, 1001]
    assert numbers(tmp_path)[0] > 1001


def test_numbers_are_assigned_without_a_disk(tmp_path: Path) -> None:
    assert numbers(tmp_path / "missing") == [1000, 1001]
