"""The options of `penstock user`.

Passwords are typed or piped in, never given as arguments: other users can read a command line.
Tokens and keys are generated and printed once.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.common.output import Json
from penstock.cli.lazy_command import examples

__all__ = [
    "ADD_EXAMPLES",
    "KEY_EXAMPLES",
    "LIST_EXAMPLES",
    "PASSWD_EXAMPLES",
    "REMOVE_EXAMPLES",
    "TOKEN_EXAMPLES",
    "add",
    "key",
    "list",
    "passwd",
    "remove",
    "token",
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.", show_default=False)]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A penstock.toml whose auth.users names the file; by default PENSTOCK_CONFIG.",
        show_default=False,
    ),
]
UsersFile = Annotated[
    Path | None,
    typer.Option(
        "--users", metavar="FILE", help="The file itself, such as users.toml.", show_default=False
    ),
]
Identity = Annotated[
    bool, typer.Option("--identity", help="A key of LamaMQ, whose identity is NAME; no API key.")
]

ADD_EXAMPLES: Final = examples(
    "penstock user add ada --config penstock.toml",
    "penstock user add ada --users users.toml < password.txt",
    "penstock user add press-4 --no-password --users users.toml",
)
PASSWD_EXAMPLES: Final = examples("penstock user passwd ada --config penstock.toml")
TOKEN_EXAMPLES: Final = examples("penstock user token ada --config penstock.toml > token.txt")
KEY_EXAMPLES: Final = examples(
    "penstock user key ada --config penstock.toml",
    "penstock user key press-4 --identity --config penstock.toml",
)
LIST_EXAMPLES: Final = examples(
    "penstock user list --config penstock.toml",
    "penstock user list --json --users users.toml | jq -r '.users[].name'",
)
REMOVE_EXAMPLES: Final = examples("penstock user remove ada --config penstock.toml")


def add(
    name: Name,
    *,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Add a user that gets a token or a key later.")
    ] = False,
    allow_all: Annotated[
        bool,
        typer.Option("--allow-all", help="Allow everything, unless a [[principal]] has rules."),
    ] = False,
    config: ConfigFile = None,
    users: UsersFile = None,
) -> None:
    """Add a user with a password, which is asked for or read from standard input.

    A user may do what the [[principal]] of the same name may do; without one, nothing.
    """
    from penstock.cli.users import changes  # noqa: PLC0415  (--help stays fast)

    changes.add(
        changes.users_file(config, users), name, password=not no_password, allow_all=allow_all
    )


def passwd(name: Name, *, config: ConfigFile = None, users: UsersFile = None) -> None:
    """Change the password of a user; it is asked for or read from standard input."""
    from penstock.cli.users import changes  # noqa: PLC0415  (--help stays fast)

    changes.set_password(changes.users_file(config, users), name)


def token(name: Name, *, config: ConfigFile = None, users: UsersFile = None) -> None:
    """Generate a token, replace that of a user, and print it once."""
    from penstock.cli.users import changes  # noqa: PLC0415  (--help stays fast)

    changes.new_secret(changes.users_file(config, users), name, "token_sha256")


def key(
    name: Name, *, identity: Identity = False, config: ConfigFile = None, users: UsersFile = None
) -> None:
    """Generate an API key, replace that of a user, and print it once."""
    from penstock.cli.users import changes  # noqa: PLC0415  (--help stays fast)

    file = changes.users_file(config, users)
    if identity:
        changes.new_secret(file, name, "identity_key_sha256")
    else:
        changes.new_secret(file, name, "api_key_sha256")


def list(*, config: ConfigFile = None, users: UsersFile = None, json: Json = False) -> None:  # noqa: A001
    """List users and the kinds of their credentials."""
    from penstock.cli.users import changes  # noqa: PLC0415  (--help stays fast)

    changes.list_users(changes.users_file(config, users), json=json)


def remove(name: Name, *, config: ConfigFile = None, users: UsersFile = None) -> None:
    """Remove a user with all credentials."""
    from penstock.cli.users import changes  # noqa: PLC0415  (--help stays fast)

    changes.remove(changes.users_file(config, users), name)
