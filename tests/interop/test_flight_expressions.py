"""A regular expression that would backtrack does not stop a broker."""

import re
import threading
import time
from pathlib import Path

import msgspec
import pyarrow.flight as pf
import pytest

from penstock.flight.client import FlightClient
from penstock.flight.errors import BadRequest
from penstock.flight.protocol import ActionName, ReadRange, Splits
from tests.support.flight import rows, table
from tests.support.running import Running

_FLIGHT = re.compile(r"  flight  (grpc://127\.0\.0\.1:\d+) ")
SECONDS_MAX = 10.0


def test_a_broker_answers_while_an_expression_is_matched(tmp_path: Path) -> None:
    place = ("--listen", "tcp://127.0.0.1:0", "--flight", "127.0.0.1:0", "--data", tmp_path)
    with Running("serve", *place) as broker:
        lines = [broker.line()]
        while lines[-1] != "Ready.":
            lines.append(broker.line())
        found = _FLIGHT.search("\n".join(lines))
        assert found, lines
        with FlightClient(found[1]) as client:
            names = ["a" * size for size in (40, 60, 10_000)]
            client.stage([rows([b"1", b"2", b"3"], topics=names)], writer="w", epoch=0, partition=0)
            client.publish_epoch("w", 0, [0])
            assert table(client, expression="a{40}").num_rows == 1
        for text in ("(.+)+!", "(a|a)*!", "(a*)*[^a]"):
            thread = threading.Thread(target=_read, args=(found[1], text), daemon=True)
            thread.start()
            _ask(found[1])
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()
        with FlightClient(found[1]) as client, pytest.raises(BadRequest, match="look-around"):
            client.splits(Splits(0, 3, 1, expression="(?=a).*"))


def _read(endpoint: str, text: str) -> None:
    ticket = pf.Ticket(msgspec.json.encode(ReadRange(0, 3, expression=text)))
    with pf.FlightClient(endpoint) as client:
        assert client.do_get(ticket).read_all().num_rows == 0


def _ask(endpoint: str) -> None:
    """Ask something else, until the expression has had time to begin; each answer comes soon."""
    options = pf.FlightCallOptions(timeout=SECONDS_MAX)
    until = time.monotonic() + 0.3
    with pf.FlightClient(endpoint) as client:
        while time.monotonic() < until:
            list(client.do_action(pf.Action(ActionName.BOUNDS, b""), options))
