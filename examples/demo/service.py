"""Chapter 3: a service that answers requests over fleximq, and publishes MessagePack."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from examples.demo.screen import chapter, line
from examples.demo.topics import STOCK

import penstock
from penstock.client import Client, Refused, Request, RequestFailed

__all__ = ["LITRES", "Exchange", "ask", "pricing", "publish_stock", "show"]

LITRES = {"pils": 1200, "stout": 300, "weizen": 800}
EURO = {"pils": 3.2, "stout": 4.5, "weizen": 3.6}
ASKED = 12


class Exchange(NamedTuple):
    """A request and its answer; `answered` is false if it was refused."""

    question: str
    answer: str
    answered: bool


async def price(request: Request) -> object:
    """Answer with a price, or with an error status."""
    beer, litres = request.payload["beer"], request.payload["litres"]
    if beer not in EURO:
        raise RequestFailed(404, f"{beer} is not brewed here")
    return {"euro": round(EURO[beer] * litres, 2)}


@asynccontextmanager
async def pricing(url: str) -> AsyncIterator[Client]:
    """Serve `/price` for the time of the context; requests go to the client's id."""
    async with penstock.connect(url, protocol="fleximq") as client:
        with client.serve("/price", price):
            yield client


async def publish_stock(url: str) -> None:
    """Publish the stock of each beer as MessagePack."""
    async with penstock.connect(url, protocol="fleximq") as client:
        for beer, litres in LITRES.items():
            await client.publish(STOCK, payload={"beer": beer, "litres": litres})
        await client.ping()


async def ask(url: str, service: int) -> list[Exchange]:
    """Request prices; return the requests and answers."""
    exchanges = []
    async with penstock.connect(url, protocol="fleximq") as till:
        for number in range(ASKED):
            beer = ("pils", "stout", "weizen", "cider")[number % 4]
            question = {"beer": beer, "litres": 5 + number}
            try:
                reply = await till.request(service, "/price", question)
                exchanges.append(
                    Exchange(json.dumps(question), json.dumps(reply.payload), answered=True)
                )
            except Refused as refused:
                exchanges.append(Exchange(json.dumps(question), refused.text, answered=False))
    return exchanges


def show(exchanges: list[Exchange]) -> None:
    """Show an answer and a refusal."""
    chapter("3 A service", "A till requests prices over fleximq, and a service answers.")
    answers = [each for each in exchanges if each.answered]
    refusals = [each for each in exchanges if not each.answered]
    line(f"{len(exchanges)} requests, {len(answers)} prices.")
    line(f"{answers[0].question} answered: {answers[0].answer}")
    line(f"{refusals[0].question} refused: {refusals[0].answer}")
