"""Run the broker in this process."""

import importlib.abc
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import typer
import uvloop

import penstock
from penstock.cli.common.log_output import EventRateLimit, LineWriter
from penstock.cli.console_process import ConsoleProcess, api_url
from penstock.server.banner import banner
from penstock.server.config import Config, EventsConfig
from penstock.server.config_loading import load
from penstock.server.folder_access import warn_of_open_folder
from penstock.server.log_escapes import escape_controls
from penstock.server.run import Running, serve
from penstock.server.stop_watchdog import StopWatchdog

__all__ = ["check_configuration", "run_broker"]

log = structlog.get_logger("penstock.serve")

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def check_configuration(file: Path | None, options: dict[str, Any]) -> None:
    """Print the listeners of a configuration; raise InvalidConfig."""
    found = load(file, environment=os.environ, **options)
    places = ", ".join(listener.address.location for listener in found.listener)
    typer.echo(f"The configuration is valid. It listens on {places}.")


def run_broker(file: Path | None, options: dict[str, Any], *, console: bool = False) -> None:
    """Run the broker until a signal; raise OperatorError. `options` are arguments of `load`.

    With `console`, the console runs beside it.
    """

    def read() -> Config:
        return load(file, environment=os.environ, **options)

    started = time.monotonic()
    found = read()
    output = LineWriter(sys.stderr.fileno())
    _log_to(output, found.events)
    log.info("starting", version=penstock.__version__, process=os.getpid())
    os.umask(0o077)  # all that the broker creates is for its user alone
    warn_of_open_folder(found)
    _hide_numpy_and_pandas()

    beside = ConsoleProcess()

    def announce(running: Running) -> None:
        _announce(running)
        log.info(
            "ready",
            version=penstock.__version__,
            process=os.getpid(),
            seconds=round(time.monotonic() - started, 3),
            listeners=", ".join(map(str, running.addresses)),
        )
        url = api_url(running.addresses, running.http)
        if console and url is not None:
            beside.start(url)

    def stopping(running: Running) -> None:
        _limit_stop(running, output)

    try:
        uvloop.run(serve(found, announce=announce, stopping=stopping, reread=read))
    finally:
        beside.stop()
        output.close()


def _limit_stop(running: Running, output: LineWriter) -> None:
    """End the process after `stop_seconds_max`, whatever hangs."""
    StopWatchdog(
        seconds_max=running.stop_seconds_max,
        stopped=lambda: running.stopped,
        kill=running.kill_programs,
        flush=output.close,
    ).start()


def _announce(running: Running) -> None:
    typer.echo(
        banner(
            running.config,
            running.addresses,
            version=penstock.__version__,
            flight=running.flight,
            http=running.http,
        )
    )


def _log_to(output: LineWriter, events: EventsConfig) -> None:
    """Write log events, one line each: `key=value`, or an object of JSON."""
    renderer: Any = structlog.processors.LogfmtRenderer(
        key_order=["timestamp", "level", "event"], drop_missing=True
    )
    if events.format == "json":
        renderer = structlog.processors.JSONRenderer(serializer=_json)
    structlog.configure(
        processors=[
            EventRateLimit(),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            escape_controls,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[events.level]),
        logger_factory=structlog.WriteLoggerFactory(output),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )


def _json(event: dict[str, Any], **_options: object) -> str:
    """Return an event as JSON; what JSON does not have becomes text."""
    return msgspec.json.encode(event, enc_hook=str).decode()


class _HiddenModules(importlib.abc.MetaPathFinder):
    """Makes the import of some modules fail."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in self._names:
            raise ModuleNotFoundError(fullname)


def _hide_numpy_and_pandas() -> None:
    """Keep pyarrow from importing NumPy and pandas: 80 MiB that the broker does not need."""
    if "pyarrow" not in sys.modules:
        sys.meta_path.insert(0, _HiddenModules("numpy", "pandas"))
