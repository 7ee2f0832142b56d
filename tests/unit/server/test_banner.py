"""The banner names every place, and says where strangers are let in."""

from penstock.server.banner import banner
from penstock.server.config import BrokerConfig, Config, ProgramConfig
from penstock.transport.addresses import parse_address


def lines(*urls: str, config: Config | None = None) -> list[str]:
    addresses = [parse_address(url) for url in urls]
    return banner(config or Config(), addresses, version="1.2.3").split("\n")


def test_it_lists_listeners_data_and_http() -> None:
    assert lines("tcp://127.0.0.1:7000", "udp://127.0.0.1:7000", "ws://127.0.0.1:7080/ws") == [
        "Penstock 1.2.3",
        "  listen  tcp://127.0.0.1:7000    rheos1, rheos2, fleximq, herald, lamamq",
        "  listen  udp://127.0.0.1:7000    herald",
        "  listen  ws://127.0.0.1:7080/ws  fleximq",
        "  data    penstock-data           acknowledged messages are on the disk",
        "  http    http://127.0.0.1:7080",
        "Ready.",
    ]


def test_it_names_no_folder_where_nothing_is_kept() -> None:
    config = Config(broker=BrokerConfig(durability="memory"))
    shown = lines("tcp://127.0.0.1:7000", config=config)
    assert (
        "  data    -                     messages are in memory and lost when the process ends"
        in (shown)
    )


def test_it_does_not_promise_http_where_nothing_answers() -> None:
    assert any("off: give --http" in line for line in lines("tcp://127.0.0.1:7000"))


def test_it_says_who_is_let_in() -> None:
    shown = lines(
        "tcp://0.0.0.0:1?anonymous=true",
        "tcp://0.0.0.0:2?protocol=fleximq",
        "tcp://127.0.0.1:3?protocol=fleximq&anonymous=false",
    )
    assert shown[1].endswith("; open to everyone")
    assert shown[2].endswith("fleximq; credentials needed")
    assert shown[3].endswith("fleximq; credentials needed")


def test_it_lists_programs() -> None:
    config = Config(program=(ProgramConfig(command=("worker", "--fast")),))
    assert "  program worker --fast" in lines("tcp://127.0.0.1:1", config=config)
