"""Answers to health checks where no other request is answered: beyond the limit of connections."""

from penstock.server.http.context import HttpContext

__all__ = ["answer_when_crowded"]


def answer_when_crowded(context: HttpContext, request_line: bytes) -> bytes:
    """Return the whole answer to a request with this first line; the connection closes after it.

    Health and readiness have their usual answer. Every other request is answered with 503.
    """
    method, _, rest = request_line.partition(b" ")
    path = rest.split(b" ", 1)[0].partition(b"?")[0]
    status, text = "503 Service Unavailable", "too many connections; ask again later"
    if method in {b"GET", b"HEAD"} and path == b"/healthz":
        status, text = "200 OK", "ok"
    elif method in {b"GET", b"HEAD"} and path == b"/readyz":
        problem = context.not_ready()
        if problem is None:
            status, text = "200 OK", "ok"
        else:
            text = problem
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)
