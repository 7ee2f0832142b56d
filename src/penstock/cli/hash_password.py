"""`penstock hash-password`: what the configuration holds of a password."""

import typer

from penstock.cli.secrets import read_secret

__all__ = ["hash_password"]


def hash_password() -> None:
    """Print the argon2id hash of a password, for basic.password_hash in penstock.toml."""
    from penstock.server.credentials import hash_password as hashed  # noqa: PLC0415  (start fast)

    typer.echo(hashed(read_secret("Password")))
