"""The files that docs/flight.md shows are those of rows that wait."""

import re
from pathlib import Path

from penstock.flight.client import FlightClient
from tests.support.flight import rows, serve_tables
from tests.support.live import LiveBroker

PAGE = (Path(__file__).parents[2] / "docs" / "flight.md").read_text()


def test_rows_wait_in_the_files_shown(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    folder, state, waiting = re.findall(r"^(DATA/sinks/<writer>)/(\S+).*\n\s+(\S+)", block)[0]
    data = tmp_path / "data"
    sink = data / folder.removeprefix("DATA/").replace("<writer>", "w")
    with LiveBroker(data=data) as broker:
        url = serve_tables(broker, data)
        with FlightClient(url) as client:
            client.stage([rows([b"1"])], writer="w", epoch=3, partition=2)
            assert (sink / waiting.replace("<epoch>", "3").replace("<partition>", "2")).exists()
            client.publish_epoch("w", 3, [2])
    assert (sink / state).exists()
    assert not list(sink.glob("*.arrows"))
