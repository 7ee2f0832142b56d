"""`penstock hash-key`: what the configuration holds of an API key or a LamaMQ key."""

import secrets
from typing import Annotated, Final

import typer

from penstock.cli.client_options import examples
from penstock.cli.secrets import read_secret

__all__ = ["KEY_EXAMPLES", "hash_key"]

KEY_EXAMPLES: Final = examples("penstock hash-key --new", "penstock hash-key < key.txt")


def hash_key(
    *,
    new: Annotated[
        bool, typer.Option("--new", help="Make a random key and print it on the line before.")
    ] = False,
) -> None:
    """Print the SHA-256 of a key, for api_key_sha256 and lamamq.key_sha256 in penstock.toml."""
    from penstock.server.credentials import hash_key as hashed  # noqa: PLC0415  (start fast)

    key = secrets.token_urlsafe(32) if new else read_secret("Key")
    if new:
        typer.echo(key)
    typer.echo(hashed(key.encode()))
