"""`penstock groups`: consumer groups, their lag, and their lag by topic."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.broker import BrokerSettings
from penstock.core.groups import GroupSettings
from penstock.ports import Subscription
from penstock.storage.group_offsets import GroupOffsets
from tests.support import lamamq_bytes as lm
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_HTTP_URL", "PENSTOCK_TOKEN", "PENSTOCK_API_KEY", "PENSTOCK_USERNAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    data: Path = tmp_path_factory.mktemp("data")
    with HttpBroker(data=data) as live:
        for topic in ("plant/a", "plant/b", "plant/b", "office/\x1b[31m"):
            assert live.publish(topic=topic, text="x").status == 200
        offsets = GroupOffsets(data)
        offsets.commit("all", {0: 1}, lost=2)
        offsets.commit("plant", {0: 0}, subscription=Subscription(patterns=("plant/+",)))
        yield live


def test_groups_are_listed_with_their_topics(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("groups", "--url", broker.url)
    assert (done.code, done.err) == (0, "")
    title, *lines, total = done.out.splitlines()
    assert title.split() == [
        "LAG",
        "UNACKED",
        "MEMBERS",
        "LOST",
        "UPDATED",
        "GROUP",
        "TOPIC",
    ]
    found = [line.split() for line in lines]
    assert [row[:4] for row in found if len(row) == 6] == [
        ["3", "0", "0", "2"],
        ["3", "0", "0", "0"],
    ]
    assert [row for row in found if len(row) == 3] == [
        ["2", "all", "plant/b"],
        ["1", "all", r"office/\x1b[31m"],  # what a name says cannot steer the terminal
        ["2", "plant", "plant/b"],
        ["1", "plant", "plant/a"],
    ]
    assert total == "2 groups"


def test_groups_are_named_and_topics_are_limited(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("groups", "plant", "--topics", "1", "--json", "--url", broker.url)
    (group,) = json.loads(done.out)["groups"]
    assert (group["name"], group["lag"]) == ("plant", 3)
    assert group["topics"] == [{"topic": "plant/b", "lag": 2}]
    for arguments in (("none",), ("plant", "none"), ("ls", "none")):
        done = commands.run("groups", *arguments, "--url", broker.url)
        assert (done.code, "plant" in done.out) == (2, "plant" in arguments)
        assert "there is no group none; commands are ls, show, reset, redrive and rm" in done.err
    assert commands.run("groups", "--topics", "5000", "--url", broker.url).code == 2


def test_a_group_is_shown_reset_driven_again_and_removed(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = BrokerSettings(groups=GroupSettings(deliveries_max=1))
    with HttpBroker(data=tmp_path, settings=settings) as broker:

        def run(*arguments: str) -> str:
            done = commands.run("groups", *arguments, "--url", broker.url)
            assert (done.code, done.err) == (0, "")
            return done.out

        with lm.subscriber(broker, b"plant/+@group=billing") as member:
            for value in "abc":
                assert broker.publish(topic=f"plant/{value}", text=value).status == 200
            found = [member.forwarded() for _ in "abc"]
            member.answer(found[0], 1, b"no")
            while "dead:            1\n" not in run("show", "billing"):
                pass
            shown = run("show", "billing")
            assert "unacknowledged:  2" in shown
            assert "lamamq    subscriber" in shown
            assert shown.endswith("1 member\n")
            assert run("redrive", "billing") == "1 message delivered again\n"
            again = member.forwarded()
            assert again.payload == b"a"
            member.answer(again, 1, b"no")
            while "unacknowledged:  2" not in run("show", "billing"):
                pass
            assert (
                commands.run("topics", "delete", "plant/a", "--yes", "--url", broker.url).code == 0
            )
            gone = commands.run("groups", "redrive", "billing", "--url", broker.url)
            assert (gone.code, gone.out) == (0, "0 messages delivered again\n")
            assert "1 dead letter not delivered again" in gone.err
            assert "dead/billing" in gone.err
            assert run("reset", "billing", "--to", "1", "--yes") == (
                "group billing goes on at offset 1\n"
            )
            assert [member.forwarded().payload for _ in "bc"] == [b"b", b"c"]
        broker.until(lambda: broker.server.broker.groups.figures("billing") is None)  # type: ignore[union-attr]
        for place in ("99999999", "latest"):  # it has no members now
            done = run("reset", "billing", "--to", place, "--yes")
            assert done == "group billing goes on at offset 6\n", "the end of the log"
        for act in (("rm", "billing"), ("reset", "billing", "--to", "1")):
            monkeypatch.setattr("sys.stdin", io.StringIO(""))
            asked = commands.run("groups", *act, "--url", broker.url)
            assert asked.code == 2
            assert "there is no terminal to ask: confirm it with --yes" in asked.err
        assert json.loads(run("show", "billing", "--json"))["lag"] == 0
        assert run("rm", "billing", "--yes") == "group billing removed\n"
        assert run("ls") == "0 groups\n"
        refused = commands.run("groups", "show", "billing", "--url", broker.url)
        assert "there is no group 'billing'" in refused.err
