"""Chapter 4: orders over LamaMQ, and a middleware that refuses those above the stock."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from examples.demo.screen import chapter, line
from examples.demo.service import LITRES
from examples.demo.topics import ORDERS

import penstock
from penstock.client import HookCall, Refused, TopicIs

__all__ = ["ACCEPTED", "REQUESTED", "Order", "check_orders", "push", "show"]

REQUESTED = (
    {"beer": "pils", "litres": 50},
    {"beer": "stout", "litres": 20},
    {"beer": "stout", "litres": 900},
    {"beer": "weizen", "litres": 100},
    {"beer": "cider", "litres": 5},
    {"beer": "pils"},  # the middleware accepts it; the pipeline finds that litres are missing
    {"beer": "pils", "litres": 200},
)
ACCEPTED = 5


class Order(NamedTuple):
    """A pushed order; `refusal` is the middleware's reason, empty if it was accepted."""

    text: str
    refusal: str


async def in_stock(call: HookCall) -> str | None:
    """Return None to accept an order, or a text to refuse it."""
    order = json.loads(call.value)
    beer, litres = order["beer"], order.get("litres", 0)
    there = LITRES.get(beer, 0)
    return f"there are {there} litres of {beer}, not {litres}" if litres > there else None


@asynccontextmanager
async def check_orders(url: str) -> AsyncIterator[None]:
    """Check the orders of all protocols with a middleware, for the time of the context."""
    async with (
        penstock.connect(url, protocol="lamamq", name="guard") as guard,
        await guard.middleware("in_stock", in_stock, conditions=[TopicIs(ORDERS)]),
    ):
        yield


async def push(url: str) -> list[Order]:
    """Push all orders; return them with their refusals."""
    pushed = []
    async with penstock.connect(url, protocol="lamamq", name="shop") as shop:
        for requested in REQUESTED:
            text = json.dumps(requested)
            try:
                await shop.publish(ORDERS, text.encode(), headers={"source": "web"})
                pushed.append(Order(text, ""))
            except Refused as refused:
                pushed.append(Order(text, refused.text))
    return pushed


def show(pushed: list[Order]) -> None:
    """Show the accepted and the refused orders."""
    chapter("4 Orders", "A shop pushes orders over LamaMQ, and a middleware checks each of them.")
    refused = [order for order in pushed if order.refusal]
    line(f"{len(pushed)} orders, {len(pushed) - len(refused)} accepted and on disk.")
    for order in refused:
        line(f"{order.text} refused: {order.refusal}")
