"""What clients do is in the audit log: logins, refusals with their peer, acts; and no secret."""

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.conform.fleximq import encoding as fx
from penstock.conform.herald import encoding as herald
from penstock.conform.lamamq import encoding as lama
from penstock.conform.rheos.encoding import CREATE
from penstock.core.access import Action, Principal, authorize
from penstock.errors import AuthenticationFailed, NotAllowed
from penstock.server.audit_log import AuditLog
from penstock.server.config import (
    AnonymousConfig,
    Config,
    IdentityConfig,
    PrincipalConfig,
    RuleConfig,
)
from penstock.server.credentials import hash_key
from penstock.server.http import application
from penstock.server.http.context import HttpContext
from penstock.server.http.routes import Access, Operation
from tests.support.rights_broker import RightsBroker
from tests.support.running import Running, environment
from tests.support.served import until
from tests.support.settling_peers import Closed, FleximqPeer, HeraldPeer, LamamqPeer, RheosPeer

CONFIG = Config(
    principal=(
        PrincipalConfig(
            name="ann",
            token="hunter2",  # noqa: S106
            identity_key=IdentityConfig(identity="ann", key_sha256=hash_key(b"hunter3")),
            rule=(RuleConfig(allow=("publish", "group"), topics=("plant/#", "g")),),
        ),
    ),
    anonymous=AnonymousConfig(default="deny"),
)


class Audited(RightsBroker):
    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        self.audit = AuditLog(self.path)
        super().__init__(CONFIG, folder / "data", audit=self.audit)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.audit.close()

    def events(self, **fields: Any) -> list[dict[str, Any]]:
        """Events with these fields; waits for the first."""
        deadline = time.monotonic() + 5
        while True:
            found = [json.loads(line) for line in self.path.read_text().splitlines()]
            matching = [each for each in found if fields.items() <= each.items()]
            if matching:
                return matching
            assert time.monotonic() < deadline, (fields, found)
            time.sleep(0.01)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    with Audited(tmp_path_factory.mktemp("audit")) as live:
        yield live
    assert "hunter" not in live.path.read_text()


def local(peer: str) -> bool:
    return peer.removeprefix("ipv4:").startswith("127.0.0.1:")


def test_logins_name_principal_peer_protocol_and_method(broker: Audited) -> None:
    with FleximqPeer(broker.address, token="hunter2") as client:  # noqa: S106
        port = client.socket.getsockname()[1]
    (found,) = broker.events(event="login", protocol="fleximq")
    del found["time"], found["connection"], found["client"]
    assert found == {
        "event": "login",
        "principal": "ann",
        "peer": f"127.0.0.1:{port}",
        "protocol": "fleximq",
        "method": "token",
    }
    with LamamqPeer(broker.address, name="ann", key="hunter3"):
        broker.events(event="login", protocol="lamamq", principal="ann", method="identity-key")
    broker.http("hunter2", "/api/topics")
    broker.events(event="login", protocol="http", principal="ann", method="token")
    broker.http(None, "/api/topics")
    broker.events(event="login", protocol="http", principal="anonymous", method="anonymous")
    with broker.flight("hunter2") as client:
        client.topics()
    (found,) = broker.events(event="login", protocol="flight", principal="ann", method="token")
    assert local(found["peer"])


def test_logins_that_fail_have_their_reason(broker: Audited) -> None:
    with contextlib.suppress(Closed), FleximqPeer(broker.address, token="hunter4"):  # noqa: S106
        pass
    with contextlib.suppress(Closed), LamamqPeer(broker.address, name="ann", key="hunter5"):
        pass
    broker.http("hunter6", "/api/topics")
    with broker.flight("hunter7") as client, pytest.raises(AuthenticationFailed):
        client.topics()
    for protocol, method, reason in (
        ("fleximq", "token", "unknown token"),
        ("lamamq", "identity-key", "wrong key"),
        ("http", "token", "unknown token"),
        ("flight", "token", "unknown token"),
    ):
        fields = {"protocol": protocol, "method": method, "reason": reason}
        (found,) = broker.events(event="login-failed", **fields)
        assert local(found["peer"]), found
        assert found.get("client") == ("ann" if protocol == "lamamq" else None)


def test_refusals_of_all_protocols_have_action_name_and_peer(broker: Audited) -> None:
    with FleximqPeer(broker.address, token="hunter2") as client:  # noqa: S106
        client.say(fx.PUB, fx.topic("office\n"))
        client.say(fx.SUB, fx.topic("plant/a"))
        client.say(fx.NOTIF, fx.routing((client.number, "/p")))
        client.say(fx.REQ, fx.routing((1, "/clients")), fx.request("q"))
        client.settle()
    with LamamqPeer(broker.address, name="ann", key="hunter3") as lamamq:
        lamamq.ask(lama.register(0, b"h", lama.PUSHED))
        lamamq.settle()
    with RheosPeer(broker.address) as rheos:
        rheos.ask(CREATE, "made")
        rheos.settle()
    with HeraldPeer(broker.address, herald.handshake_pub(7), {}) as refused:
        assert not refused.accepted
    assert broker.http("hunter2", "/api/clients")[0] == 403
    with broker.flight("hunter2") as flight, pytest.raises(NotAllowed):
        flight.commit_group("other", {0: 0})
    for protocol, principal, action, name in (
        ("fleximq", "ann", "publish", "office\n"),
        ("fleximq", "ann", "subscribe", "plant/a"),
        ("fleximq", "ann", "request", "p"),
        ("fleximq", "ann", "administer", "clients"),
        ("lamamq", "ann", "hook", "#"),
        ("rheos2", "anonymous", "publish", "made"),
        ("herald", "anonymous", "publish", "channel/7"),
        ("http", "ann", "administer", "clients"),
        ("flight", "ann", "group", "other"),
    ):
        fields = {"protocol": protocol, "principal": principal, "action": action, "name": name}
        (found,) = broker.events(event="refused", **fields)
        assert local(found["peer"]), found


def test_a_commit_of_a_group_is_an_administrative_act(broker: Audited) -> None:
    with broker.flight("hunter2") as flight:
        flight.commit_group("g", {0: 0})
    (found,) = broker.events(event="administered", act="commit-group", name="g", principal="ann")
    assert local(found["peer"])


def test_an_operation_of_administrators_that_changes_something_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Named(msgspec.Struct):
        name: str

    async def act(_context: HttpContext, principal: Principal, asked: Named) -> Named:
        authorize(principal, Action.ADMINISTER, f"things/{asked.name}")
        return asked

    made = application.operations
    new = Operation("POST", "/api/act", "actOn", "", Access.ADMINISTERS, Named, body=Named, run=act)
    monkeypatch.setattr(application, "operations", lambda document: [*made(document), new])
    with Audited(tmp_path) as other:
        may = RuleConfig(allow=("administer",), topics=("things/+",))
        ann = PrincipalConfig(name="ann", token="hunter2", rule=(may,))  # noqa: S106
        assert other.http("hunter2", "/api/act", name="x")[0] == 403
        other.reload(Config(principal=(ann,)))
        assert other.http("hunter2", "/api/act", name="y")[0] == 200
        (found,) = other.events(event="administered")
        assert (found["act"], found["name"], found["principal"]) == ("actOn", "y", "ann")
        assert local(found["peer"])


def test_a_reload_is_recorded(broker: Audited) -> None:
    broker.reload(Config(principal=CONFIG.principal, anonymous=AnonymousConfig(default="allow")))
    broker.events(event="configuration-changed", changed=["anonymous.default"])
    broker.events(
        event="rules-changed",
        owner="anonymous",
        added=["default allow"],
        removed=["default deny"],
    )
    broker.reload(CONFIG)


def test_a_flood_of_refusals_is_a_few_lines(broker: Audited) -> None:
    with FleximqPeer(broker.address, token="hunter2") as client:  # noqa: S106
        for number in range(3000):
            client.say(fx.NOTIF, fx.routing((1, f"/{number}")))
        assert client.settle()[1] == 3000
    size = broker.path.stat().st_size
    assert size < 50_000
    broker.audit.close()
    (found,) = [each for each in broker.events(action="request") if "repeated" in each]
    assert found["repeated"] > 2900


def test_the_file_of_a_broker_is_opened_again_on_sighup(tmp_path: Path) -> None:
    path, moved = tmp_path / "data" / "audit.jsonl", tmp_path / "old"
    arguments = ("serve", "--listen", "tcp://127.0.0.1:0", "--data", tmp_path / "data")
    with Running(*arguments, **environment()) as broker:
        while broker.line() != "Ready.":
            pass
        until(path.read_text, "the first event")
        path.rename(moved)
        broker.popen.send_signal(signal.SIGHUP)
        until(lambda: path.exists() and "configuration-changed" in path.read_text(), "a new file")
        assert path.stat().st_mode & 0o777 == 0o600
        broker.end(signal.SIGTERM)
    assert [json.loads(line)["event"] for line in moved.read_text().splitlines()] == ["started"]
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["configuration-changed", "stopped"]
