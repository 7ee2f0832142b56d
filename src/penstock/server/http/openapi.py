"""The OpenAPI document, built from the table of operations and their schemas."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

import penstock
from penstock.server.http.routes import Access, Operation
from penstock.server.http.schemas import Document, Failure

__all__ = ["describe"]

_REFERENCE: Final = "#/components/schemas/{name}"
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_FAULTS: Final = {
    "400": "The request is not valid; the message says what is expected.",
    "401": "Credentials are missing or not valid.",
    "403": "The caller may not do that.",
    "503": "Not now; the message says why.",
}


_DELETION_FAULTS: Final = {
    "404": "There is no such topic.",
    "409": "The topic belongs to a herald channel.",
}


def describe(table: Sequence[Operation]) -> Document:
    """Return the document."""
    shapes = [Failure]
    for each in table:
        shapes += [shape for shape in (each.answer, each.body) if shape is not None]  # type: ignore[misc]
    _, components = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    paths: dict[str, Any] = {}
    for each in table:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return Document(
        openapi="3.1.0",
        info={
            "title": "Penstock",
            "version": penstock.__version__,
            "description": "A message broker for five wire protocols.",
        },
        paths=paths,
        components={
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
        security=[{}, {"bearer": []}, {"basic": []}],
    )


def _operation(each: Operation) -> dict[str, Any]:
    content = _TEXT if each.answer is None else _json(each.answer)
    made: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "description": f"For {each.access.value}.",
        "parameters": _parameters(each),
        "responses": {"200": {"description": "Done.", "content": content}},
    }
    if each.access is Access.PUBLIC:
        made["security"] = []
        if each.path == "/readyz":
            made["responses"]["503"] = {"description": _FAULTS["503"], "content": _TEXT}
        return made
    faults = _FAULTS | (_DELETION_FAULTS if each.access is Access.ADMINISTERS else {})
    for status, text in sorted(faults.items()):
        made["responses"][status] = {"description": text, "content": _json(Failure)}
    if each.body is not None:
        made["requestBody"] = {"required": True, "content": _json(each.body)}
    return made


def _json(shape: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(name=shape.__name__)}}}


def _parameters(each: Operation) -> list[dict[str, Any]]:
    query = each.query
    _, found = msgspec.json.schema_components([query], ref_template=_REFERENCE)
    properties = found[query.__name__]["properties"]
    in_path = {name for name in properties if f"{{{name}}}" in each.path}
    return [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path,
            "schema": schema,
        }
        for name, schema in properties.items()
    ]
