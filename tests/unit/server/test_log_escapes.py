"""Names and topics of clients in log events: no forged lines, no terminal escapes."""

import structlog

from penstock.server.log_escapes import escape_controls


def rendered(**fields: object) -> str:
    event = escape_controls(None, "info", {"event": "client refused", **fields})
    return str(structlog.processors.LogfmtRenderer()(None, "info", event))


def test_control_characters_are_escaped() -> None:
    forged = "x\r\nlevel=info event=forged\x1b[31m\x9b\u2028\u202e\ud800"
    line = rendered(name=forged, names=[forged], number=7)
    assert line.isprintable()
    assert "\\x1b" in line
    assert "number=7" in line


def test_plain_text_stays_as_it_is() -> None:
    assert (
        rendered(topic="Wärme/läuft", path="a\\b")
        == 'event="client refused" topic=Wärme/läuft path=a\\b'
    )


def test_a_traceback_is_one_line() -> None:
    line = rendered(exception="Traceback:\n  x\x1b[0m")
    assert line.isprintable()
    assert "Traceback:\\n" in line
