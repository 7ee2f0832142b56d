"""The page for an address that the console does not have."""

from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from penstock.console.logging_in import page_theme

__all__ = ["missing_page"]

_FILES: Final = "/_nicegui"
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Not found · Penstock</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/console.css"><link rel="icon" href="/console.svg"></head>
<body class="login {theme}"><main class="box">
<h1>Not found</h1>
<p class="muted">The console has no page at this address.</p>
<p><a href="/">First page</a> · <a href="/topics">Topics</a> · <a href="/messages">Messages</a></p>
</main></body></html>
"""


async def missing_page(request: Request, _error: Exception) -> Response:
    """Return the page, for files of the pages only a line of text."""
    if request.url.path.startswith(_FILES):
        return PlainTextResponse("not found\n", 404)
    return HTMLResponse(_PAGE.format(theme=page_theme(request)), 404)
