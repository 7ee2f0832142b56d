"""`penstock hash-password`: what the configuration holds of a password."""

from typing import Final

import typer

from penstock.cli.client_options import examples
from penstock.cli.secrets import read_secret

__all__ = ["PASSWORD_EXAMPLES", "hash_password"]

PASSWORD_EXAMPLES: Final = examples("penstock hash-password", "penstock hash-password < file")


def hash_password() -> None:
    """Print the argon2id hash of a password, for basic.password_hash in penstock.toml."""
    from penstock.server.credentials import hash_password as hashed  # noqa: PLC0415  (start fast)

    typer.echo(hashed(read_secret("Password")))
