"""The application of the console: its pages, and what every request passes."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from penstock.console.api import ApiRefused, BrokerApi, BrokerAway
from penstock.console.history import Collector
from penstock.console.logging_in import LogInPage, log_in_address
from penstock.console.missing import missing_page
from penstock.console.pages.clients import ClientsPage
from penstock.console.pages.cluster import ClusterPage
from penstock.console.pages.groups import GroupsPage
from penstock.console.pages.hooks import HooksPage
from penstock.console.pages.messages import MessagesPage
from penstock.console.pages.overview import Overview
from penstock.console.pages.refusals import RefusalsPage
from penstock.console.pages.storage import StoragePage
from penstock.console.pages.topics import TopicsPage
from penstock.console.query_turns import QueryTurns
from penstock.console.readable import first_pattern
from penstock.console.security import PageSecurity
from penstock.console.sessions import COOKIE, LogIn, LogIns
from penstock.console.shell import PLACES, Shell, problem_card

__all__ = ["new_site"]

log = structlog.get_logger("penstock.console")

_FOLDER: Final = Path(__file__).parent
_BUILD_SECONDS_MAX: Final = 30.0
_FIRST_WITHOUT_RATES: Final = "/topics"
"""The first page of principals that may not see the rates of Overview."""

Build = Callable[[Shell, LogIn, Request], Awaitable[None]]


class _Site:
    """The state that pages share."""

    def __init__(self, api: BrokerApi, *, open_to_all: bool, warehouse: Path | None) -> None:
        self.api = api.with_credentials(None)
        self.collector = Collector(api)
        self.logins = LogIns()
        self.log_in = LogInPage(self.api, self.logins, open_to_all=open_to_all)
        self.warehouse = warehouse
        self.queries = QueryTurns()
        self.optional = [] if warehouse is None else ["/pipeline"]

    def page(self, path: str, build: Build) -> None:
        """Serve a page with the shell around it, for those who may see it."""
        area = next(place.area for place in PLACES if place.path == path)

        async def show(request: Request) -> Response | None:
            dark = {"dark": True, "light": False}.get(request.cookies.get("theme", ""))
            try:
                login = await self.log_in.find(request.cookies.get(COOKIE))
            except BrokerAway as error:
                login = None
                away = str(error)
            else:
                away = ""
            if login is None and not away:
                return RedirectResponse(log_in_address(request), 303)
            if path == "/" and login is not None and not login.has_area(area):
                return RedirectResponse(_FIRST_WITHOUT_RATES, 303)
            visitor = login or LogIn(self.api, "", anonymous=True, administers=frozenset())
            optional = [*self.optional, *(["/cluster"] if visitor.log == "kafka" else [])]
            back = log_in_address(request)
            shell = Shell(visitor, path, dark=dark, optional=optional, log_in=back)
            with shell.content:
                if away:
                    problem_card(away)
                elif area and not visitor.has_area(area):
                    problem_card(
                        f"You may not see this page: it needs the right to administer {area}."
                    )
                else:
                    await self._build(build, shell, visitor, request)
            return None

        show.__name__ = f"show_{path.strip('/') or 'overview'}"
        ui.page(path, response_timeout=_BUILD_SECONDS_MAX)(show)

    async def _build(self, build: Build, shell: Shell, login: LogIn, request: Request) -> None:
        try:
            await build(shell, login, request)
        except (ApiRefused, BrokerAway) as error:
            problem_card(str(error))

    @contextlib.asynccontextmanager
    async def running(self, _application: FastAPI) -> AsyncIterator[None]:
        """Collect as long as the application runs."""
        task = asyncio.create_task(self.collector.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def new_site(
    api: BrokerApi,
    *,
    hosts: Collection[str] = (),
    is_local: bool = True,
    warehouse: Path | None = None,
) -> ASGIApp:
    """Return the application; one in a process, because NiceGUI has one table of pages.

    `api` has the console's own credentials, with which it measures. `is_local` says whether only
    this machine can reach it. `warehouse` is the folder of a pipeline's tables.
    """
    site = _Site(api, open_to_all=is_local and not hosts, warehouse=warehouse)
    application = FastAPI(
        title="Penstock", openapi_url=None, docs_url=None, redoc_url=None, lifespan=site.running
    )
    for path, handler, methods in (
        ("/login", site.log_in.show, ["GET"]),
        ("/login", site.log_in.log_in, ["POST"]),
        ("/logout", site.log_in.log_out, ["GET"]),
        ("/console.css", _file("console.css", "text/css"), ["GET"]),
        ("/console.js", _file("console.js", "text/javascript"), ["GET"]),
        ("/console.svg", _file("console.svg", "image/svg+xml"), ["GET"]),
    ):
        application.add_api_route(path, handler, methods=methods, include_in_schema=False)
    _add_pages(site)
    ui.add_head_html('<link rel="stylesheet" href="/console.css">', shared=True)
    ui.add_head_html('<script src="/console.js" defer></script>', shared=True)
    nicegui_app.on_exception(_log_fault)
    nicegui_app.add_exception_handler(404, missing_page)
    ui.run_with(
        application,
        title="Penstock",
        favicon=_FOLDER / "console.svg",
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
    )
    return PageSecurity(application, hosts)


def _add_pages(site: _Site) -> None:
    async def overview(_shell: Shell, login: LogIn, _request: Request) -> None:
        Overview(site.collector, login)

    async def topics(shell: Shell, login: LogIn, request: Request) -> None:
        await TopicsPage(shell, login, request.query_params.get("prefix", "")).start()

    async def messages(shell: Shell, login: LogIn, request: Request) -> None:
        topic = request.query_params.get("topic") or await first_pattern(login.api)
        await MessagesPage(shell, login, topic).start()

    async def clients(shell: Shell, login: LogIn, request: Request) -> None:
        given = request.query_params
        page = ClientsPage(
            shell, login, slow=given.get("slow") == "true", search=given.get("search", "")
        )
        await page.start()

    async def groups(_shell: Shell, login: LogIn, _request: Request) -> None:
        await GroupsPage(login, site.collector).start()

    async def hooks(_shell: Shell, login: LogIn, _request: Request) -> None:
        await HooksPage(login).start()

    async def cluster(_shell: Shell, login: LogIn, _request: Request) -> None:
        await ClusterPage(login).start()

    async def refusals(_shell: Shell, login: LogIn, _request: Request) -> None:
        await RefusalsPage(login).start()

    async def storage(_shell: Shell, login: LogIn, _request: Request) -> None:
        await StoragePage(login, await login.api.get("/api/log")).start()

    for path, build in (
        ("/", overview),
        ("/topics", topics),
        ("/messages", messages),
        ("/clients", clients),
        ("/groups", groups),
        ("/hooks", hooks),
        ("/refusals", refusals),
        ("/storage", storage),
        ("/cluster", cluster),
    ):
        site.page(path, build)
    site.page("/sql", _sql(site.warehouse, site.queries))
    if site.warehouse is not None:
        site.page("/pipeline", _pipeline(site.warehouse, site.queries))


def _sql(folder: Path | None, turns: QueryTurns) -> Build:
    async def sql(_shell: Shell, login: LogIn, _request: Request) -> None:
        # DuckDB and deltalake are loaded with the first page that needs them.
        from penstock.console.pages.sql import SqlPage  # noqa: PLC0415
        from penstock.console.warehouse import Warehouse  # noqa: PLC0415

        SqlPage(
            login,
            None if folder is None else Warehouse(folder),
            turns,
            pattern=await first_pattern(login.api),
        )

    return sql


def _pipeline(folder: Path, turns: QueryTurns) -> Build:
    # DuckDB and deltalake are loaded only if there are tables to show.
    from penstock.console.pages.pipeline import PipelinePage  # noqa: PLC0415
    from penstock.console.warehouse import Warehouse  # noqa: PLC0415

    async def pipeline(_shell: Shell, login: LogIn, _request: Request) -> None:
        await PipelinePage(login, Warehouse(folder), turns).start()

    return pipeline


def _file(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return FileResponse(_FOLDER / name, media_type=kind)

    return send


def _log_fault(error: Exception) -> Any:  # noqa: ANN401
    log.error("page failed", error="".join(traceback.format_exception(error)))
