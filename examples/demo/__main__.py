"""Run the demo: start a broker, send messages, run the pipeline, and wait for Ctrl-C.

python -m examples.demo [--once] [--any-port]
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from examples.demo import addresses, orders, report, sensors, service, spark, subscribers, tables
from examples.demo.broker import broker
from examples.demo.console import console
from examples.demo.errors import DemoFailed
from examples.demo.screen import chapter, line, problem
from examples.demo.topics import CELLAR, KETTLE, ORDERS, REPORT, STOCK, TANK

from penstock.errors import PenstockError

EXPECTED = (DemoFailed, PenstockError, TimeoutError)
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_PARTLY = 1
EXIT_INTERRUPTED = 130
SENT = {
    KETTLE: ("herald", sensors.READINGS),
    CELLAR: ("rheos1", sensors.READINGS),
    TANK: ("rheos2", sensors.READINGS),
    STOCK: ("fleximq", len(service.LITRES)),
    ORDERS: ("lamamq", orders.ACCEPTED),
}
"""The sending protocol and the number of accepted messages of each topic."""


async def send_and_show(url: str, service_id: int) -> None:
    """Run all senders at once; show the messages received and the answers."""
    async with subscribers.subscribe_all(url, SENT) as subscriptions:
        async with asyncio.TaskGroup() as together:
            together.create_task(sensors.measure(url))
            together.create_task(service.publish_stock(url))
            exchanges = together.create_task(service.ask(url, service_id))
            pushed = together.create_task(orders.push(url))
        await subscribers.show(subscriptions, SENT)
    service.show(exchanges.result())
    orders.show(pushed.result())


async def run(folder: Path, *, once: bool, usual_ports: bool) -> int:
    """Run all chapters; return the exit code."""
    async with (
        broker(folder, usual_ports=usual_ports) as where,
        nullcontext("") if once else console(where, folder, usual_ports=usual_ports) as page,
        service.pricing(where.url) as prices,
        orders.check_orders(where.url),
        subscribers.subscribe_all(where.url, [REPORT]) as subscriptions,
    ):
        await send_and_show(where.url, prices.identity or 0)
        with_tables = await spark.run_spark(folder, where)
        if with_tables:
            tables.show(folder / "warehouse")
            await report.show(subscriptions)
        if once:
            chapter("The end", "Without --once the broker keeps running, for you to try.")
            return 0 if with_tables else EXIT_PARTLY
        addresses.show(
            where,
            folder,
            service_id=prices.identity or 0,
            with_tables=with_tables,
            console=page,
        )
        await addresses.wait(where)
        return 0


def main() -> int:
    """Run the demo until its end or Ctrl-C, and remove its files."""
    parser = argparse.ArgumentParser(
        prog="make demo", description="A demo of five protocols and a pipeline."
    )
    parser.add_argument("--once", action="store_true", help="exit at the end")
    parser.add_argument(
        "--any-port",
        action="store_true",
        help="use free ports instead of 7000, 7070 and so on",
    )
    arguments = parser.parse_args()

    async def run_until_signal(folder: Path) -> int:
        loop = asyncio.get_running_loop()
        demo = asyncio.ensure_future(
            run(folder, once=arguments.once, usual_ports=not arguments.any_port)
        )
        for number in ENDS:
            loop.add_signal_handler(number, demo.cancel)
        try:
            return await demo
        finally:  # ignore signals while the folder is removed
            for number in ENDS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)

    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        try:
            return asyncio.run(run_until_signal(Path(folder)))
        except asyncio.CancelledError:
            line("Ended.")
            return EXIT_INTERRUPTED
        except (*EXPECTED, ExceptionGroup) as error:
            first = _first(error)
            if not isinstance(first, EXPECTED):
                raise
            problem(str(first) or "a message did not arrive in time; is the machine very busy?")
            return EXIT_PARTLY


def _first(error: Exception) -> Exception:
    """Return the error, or the first one of a group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


sys.exit(main())
