"""What docs/http.md shows of requests and answers is what a broker takes and says."""

import json
import re
from pathlib import Path

from tests.support.http_live import JSON, HttpBroker

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
ERROR, REQUEST, ANSWER = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_error_is_the_one_shown(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        answer = broker.get("/api/topics?limit=0")
    assert answer.status == 400
    assert answer.json() == json.loads(ERROR)


def test_the_message_is_published_and_answered_as_shown(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        answer = broker.ask("POST", "/api/publish", body=REQUEST.encode(), headers=JSON)
    assert answer.status == 200
    said, shown = answer.json(), json.loads(ANSWER)
    assert list(said) == list(shown)
    for known in ("topic", "partition", "durable"):
        assert said[known] == shown[known]
    assert [type(value) for value in said.values()] == [type(value) for value in shown.values()]
    # The last digits of an id are the offset, behind the bits that say what kind of id it is.
    assert int(shown["message_id"][-12:], 16) == shown["offset"]
    assert int(said["message_id"][-12:], 16) == said["offset"]
