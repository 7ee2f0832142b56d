"""`penstock hash-password` and `penstock hash-key`: hash secrets for a configuration.

Secrets are typed or piped in, never given as arguments: other users can read a command line.
"""

import secrets
from typing import Annotated, Final

import typer

from penstock.cli.common.secret_input import read_secret
from penstock.cli.lazy_command import examples

__all__ = ["HASH_KEY_EXAMPLES", "HASH_PASSWORD_EXAMPLES", "hash_key", "hash_password"]

HASH_PASSWORD_EXAMPLES: Final = examples("penstock hash-password", "penstock hash-password < file")
HASH_KEY_EXAMPLES: Final = examples("penstock hash-key --new", "penstock hash-key < key.txt")


def hash_password() -> None:
    """Print the argon2id hash of a password, for basic.password_hash in penstock.toml."""
    from penstock.server import credentials  # noqa: PLC0415  (--help stays fast)

    typer.echo(credentials.hash_password(read_secret("Password")))


def hash_key(
    *,
    new: Annotated[
        bool, typer.Option("--new", help="Generate a random key and print it first.")
    ] = False,
) -> None:
    """Print the SHA-256 of a key, for api_key_sha256 or key_sha256 in penstock.toml."""
    from penstock.server import credentials  # noqa: PLC0415  (--help stays fast)

    key = secrets.token_urlsafe(32) if new else read_secret("Key")
    if new:
        typer.echo(key)
    typer.echo(credentials.hash_key(key.encode()))
