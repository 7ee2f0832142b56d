"""Tell the story: start a broker, let everybody talk, compute, and stay until Ctrl-C.

python -m examples.demo [--once] [--any-port]
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from examples.demo import addresses, listeners, orders, report, sensors, service, spark, tables
from examples.demo.broker import broker
from examples.demo.errors import DemoFailed
from examples.demo.screen import chapter, problem, seen
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
    ORDERS: ("lamamq", orders.TAKEN),
}
"""For each topic by which protocol it is sent, and how many messages are taken."""


async def talk(url: str, service_id: int) -> None:
    """Let all senders send at once; show who heard what, and what was answered."""
    async with listeners.listeners(url, SENT) as ears:
        async with asyncio.TaskGroup() as together:
            together.create_task(sensors.measure(url))
            together.create_task(service.publish_stock(url))
            said = together.create_task(service.ask(url, service_id))
            pushed = together.create_task(orders.push(url))
        await listeners.tell(ears, SENT)
    service.tell(said.result())
    orders.tell(pushed.result())


async def tell(folder: Path, *, once: bool, usual_ports: bool) -> int:
    """Tell the whole story; return the exit code."""
    async with (
        broker(folder, usual_ports=usual_ports) as where,
        service.pricing(where.url) as prices,
        orders.guarded(where.url),
        listeners.listeners(where.url, [REPORT]) as ears,
    ):
        await talk(where.url, prices.identity or 0)
        with_tables = await spark.computed(folder, where)
        if with_tables:
            tables.tell(folder / "warehouse")
            await report.tell(ears)
        if once:
            chapter("The end", "Without --once the broker would go on, for you to try.")
            return 0 if with_tables else EXIT_PARTLY
        addresses.tell(where, folder, service_id=prices.identity or 0, with_tables=with_tables)
        await addresses.stay(where)
        return 0


def main() -> int:
    """Run the demo until its end or Ctrl-C; nothing of it is left."""
    parser = argparse.ArgumentParser(
        prog="make demo", description="A small story in five protocols."
    )
    parser.add_argument("--once", action="store_true", help="end by itself")
    parser.add_argument("--any-port", action="store_true", help="leave 7000, 7080 and 7090 alone")
    arguments = parser.parse_args()

    async def until_told(folder: Path) -> int:
        loop = asyncio.get_running_loop()
        story = asyncio.ensure_future(
            tell(folder, once=arguments.once, usual_ports=not arguments.any_port)
        )
        for number in ENDS:
            loop.add_signal_handler(number, story.cancel)
        try:
            return await story
        finally:  # from here on only the folder has to go, and nothing may come between
            for number in ENDS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)

    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        try:
            return asyncio.run(until_told(Path(folder)))
        except asyncio.CancelledError:
            seen("Ended.")
            return EXIT_INTERRUPTED
        except (*EXPECTED, ExceptionGroup) as error:
            first = _first(error)
            if not isinstance(first, EXPECTED):
                raise
            problem(str(first) or "nothing came in time; is the machine very busy?")
            return EXIT_PARTLY


def _first(error: Exception) -> Exception:
    """Return an error itself, or the first of a group: senders fail together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


sys.exit(main())
