"""With which credentials the console measures, and what it does after a refusal."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra console is not installed")

from penstock.console.api import BrokerApi, bearer
from penstock.console.history import Collector
from penstock.console.limits import REFUSED_SECONDS
from penstock.console.logging_in import LogInPage
from penstock.console.sessions import LogIn, LogIns
from penstock.gateway.options import GatewayOptions
from penstock.ports import AuditEvent
from penstock.server.config import Config, PrincipalConfig, RuleConfig
from penstock.server.credentials import Authenticator, hash_key
from tests.support.http_live import HttpBroker

SECONDS_MAX = 60.0


class Failures:
    """A `ports.Audit` that keeps log-ins that failed, and acts that were refused."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def record(self, event: AuditEvent, /, **fields: Any) -> None:
        if event in (AuditEvent.LOGIN_FAILED, AuditEvent.REFUSED):
            self.found.append(str(fields.get("reason") or fields.get("name")))


def principal(name: str, *areas: str) -> PrincipalConfig:
    rule = RuleConfig(allow=("administer",), topics=areas)
    return PrincipalConfig(name=name, token_sha256=hash_key(name.encode()), rule=(rule,))


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def broker(
    tmp_path: Path, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HttpBroker]:
    """A broker without anonymous clients; names of principals are their tokens."""
    monkeypatch.setattr("penstock.console.history.MEASURE_SECONDS", 0.02)
    monkeypatch.setattr("penstock.console.history.STATE_SECONDS", 0.0)
    monkeypatch.setattr("penstock.console.history._PAUSE_SECONDS", 0.02)
    authenticator = Authenticator(
        Config(principal=(principal("operator", "#"), principal("meter", "rates")))
    )
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    with HttpBroker(data=tmp_path, web_options=options, audit=failures) as live:
        yield live
    authenticator.close()


class Api(BrokerApi):
    """An API that can be closed without a request under way, whose socket would stay open."""

    def __init__(self, url: str, authorization: str | None) -> None:
        super().__init__(url, authorization=authorization)
        self._asking = asyncio.Lock()

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> dict[str, Any]:
        async with self._asking:
            return await super().get(path, query or {})

    async def close(self) -> None:
        async with self._asking:
            await super().close()


class LogInMaker:
    """Makes log-ins, and closes them at the end."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.made: list[BrokerApi] = []

    def __call__(self, token: str | None, *, ends: float = float("inf")) -> LogIn:
        api = Api(self._url, None if token is None else bearer(token))
        self.made.append(api)
        return LogIn(api, token or "", anonymous=False, administers=frozenset(), ends=ends)


def run(broker: HttpBroker, test: Callable[[LogInMaker], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        login = LogInMaker(broker.url)
        async with asyncio.timeout(SECONDS_MAX):
            await test(login)
            for api in login.made:
                await api.close()

    asyncio.run(all_of_it())


@asynccontextmanager
async def running(collector: Collector, login: LogInMaker) -> AsyncIterator[None]:
    """Run a collector; close all log-ins before it ends."""
    task = asyncio.create_task(collector.run())
    yield
    for api in login.made:
        await api.close()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def measured(collector: Collector, points: int = 3) -> None:
    """Wait for further points."""
    before = len(collector.points)
    await until(lambda: len(collector.points) >= before + points)


@pytest.mark.parametrize("token", [None, "unknown"])
def test_refused_credentials_are_not_used_again_and_a_log_in_measures(
    broker: HttpBroker, failures: Failures, token: str | None
) -> None:
    async def test(login: LogInMaker) -> None:
        collector = Collector(login(token).api)
        async with running(collector, login):
            await until(lambda: collector.state.refused)
            visitor = login("operator")
            collector.adopt(visitor)
            await measured(collector)
            assert collector.state.refused is None
            assert collector.state.log["kept"]
            await visitor.api.close()
            await until(lambda: collector.state.refused)
            collector.adopt(visitor)  # a page that is still open
            collector.adopt(login("operator"))
            await measured(collector)

    run(broker, test)
    assert len(failures.found) == 1


def test_own_credentials_are_tried_again_after_some_minutes(
    broker: HttpBroker, failures: Failures
) -> None:
    now = [1000.0]

    async def test(login: LogInMaker) -> None:
        collector = Collector(login("unknown").api, monotonic=lambda: now[0])
        collector.adopt(login("operator", ends=now[0] + 2 * REFUSED_SECONDS))
        async with running(collector, login):
            await measured(collector)
            assert len(failures.found) == 1
            now[0] += REFUSED_SECONDS
            await measured(collector)
            assert len(failures.found) == 2
            now[0] += REFUSED_SECONDS  # the log-in has ended
            await until(lambda: collector.state.refused)

    run(broker, test)
    assert len(failures.found) == 3


def test_credentials_without_all_rights_measure_what_they_may(
    broker: HttpBroker, failures: Failures
) -> None:
    async def test(login: LogInMaker) -> None:
        collector = Collector(login("meter").api)
        async with running(collector, login):
            await measured(collector)
            await until(lambda: len(failures.found) == 3)
            await measured(collector)
            assert collector.state.log == {}
            collector.adopt(login("operator"))
            await until(lambda: collector.state.log)
            await measured(collector)

    run(broker, test)
    assert failures.found == ["log", "limits", "refusals"]


def test_pages_without_a_log_in_do_not_each_cause_a_refusal(
    broker: HttpBroker, failures: Failures
) -> None:
    async def test(login: LogInMaker) -> None:
        page = LogInPage(login(None).api, LogIns(), open_to_all=True)
        for _ in range(3):
            assert await page.find(None) is None

    run(broker, test)
    assert failures.found == ["no credentials"]
