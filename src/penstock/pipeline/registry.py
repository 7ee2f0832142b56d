"""Schemas of a registry, over HTTP: Confluent's API.

    byte 0     1 … 4       5 …
    ─────────  ──────────  ───────────────────────────────
    00         schema id,  the payload; for Protobuf after
               big-endian  the indexes of its message type

`GET /schemas/ids/{id}` returns the schema, `GET /subjects/{subject}/versions/{version}` one that it
refers to. A schema with an id never changes, so each process asks once.
"""

import base64
import http.client
import ssl
import time
import urllib.parse
from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec

from penstock.limits import (
    PIPELINE_REGISTRY_BYTES_MAX,
    PIPELINE_REGISTRY_REFERENCES_MAX,
    PIPELINE_REGISTRY_SCHEMAS_MAX,
    PIPELINE_REGISTRY_UNKNOWN_MAX,
)
from penstock.pipeline.config import RegistryConfig
from penstock.pipeline.errors import RegistryFailed

__all__ = ["RegisteredSchema", "Registry", "SchemaProblem", "registry_of", "split_header"]

_HEADER_BYTES: Final = 5
_CHUNK_BYTES: Final = 65_536
_NOT_FOUND: Final = 404


class SchemaProblem(Exception):
    """A message's schema cannot be used; the text is the problem of the message."""


class RegisteredSchema(NamedTuple):
    """A schema and all schemas that it refers to, by name, those without references first."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


class Registry:
    """Client of a registry. One thread calls it.

    A schema that the registry does not have, or that is too large, is a problem of the message. Any
    other failure is RegistryFailed: the step is retried, and no message becomes a dead letter.
    """

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._schemas: OrderedDict[tuple[int, str], RegisteredSchema] = OrderedDict()
        self._unknown: dict[int, str] = {}

    def begin(self) -> None:
        """Forget which ids the registry did not know: it may have them now."""
        self._unknown.clear()

    def schema(self, identifier: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema of an id; raise SchemaProblem or RegistryFailed.

        With `serialized` the text of a Protobuf schema is a FileDescriptorProto in base64.
        """
        form = "?format=serialized" if serialized else ""
        key = identifier, form
        if key in self._schemas:
            self._schemas.move_to_end(key)
            return self._schemas[key]
        if identifier in self._unknown:
            raise SchemaProblem(self._unknown[identifier])
        if len(self._unknown) >= PIPELINE_REGISTRY_UNKNOWN_MAX:
            raise SchemaProblem(f"schema {identifier} was not looked up: too many unknown ids")
        try:
            found = self._load(identifier, form)
        except SchemaProblem as problem:
            self._unknown[identifier] = str(problem)
            raise
        self._schemas[key] = found
        if len(self._schemas) > PIPELINE_REGISTRY_SCHEMAS_MAX:
            self._schemas.popitem(last=False)
        return found

    def _load(self, identifier: int, form: str) -> RegisteredSchema:
        answer = self._get(f"/schemas/ids/{identifier}{form}", f"schema {identifier}")
        references: dict[str, str] = {}
        self._add_references(answer, form, references)
        kind = str(answer.get("schemaType") or "AVRO")
        return RegisteredSchema(kind, str(answer.get("schema", "")), tuple(references.items()))

    def _add_references(
        self, answer: dict[str, Any], form: str, found: dict[str, str], outer: tuple[str, ...] = ()
    ) -> None:
        """Add the schemas that a schema refers to, each after those that it needs itself."""
        for each in answer.get("references") or ():
            name = str(each["name"])
            if name in found or name in outer:
                continue
            if len(found) + len(outer) >= PIPELINE_REGISTRY_REFERENCES_MAX:
                raise SchemaProblem(
                    f"the schema refers to more than {PIPELINE_REGISTRY_REFERENCES_MAX} others"
                )
            subject = urllib.parse.quote(str(each["subject"]), safe="")
            path = f"/subjects/{subject}/versions/{int(each['version'])}{form}"
            inner = self._get(path, f"schema {name}")
            self._add_references(inner, form, found, (*outer, name))
            found[name] = str(inner.get("schema", ""))

    def _get(self, path: str, what: str) -> dict[str, Any]:
        """Return the JSON object at a path; raise SchemaProblem or RegistryFailed."""
        try:
            status, body = self._request(path)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise RegistryFailed(self._config.url, reason.lower()) from None
        if status == _NOT_FOUND:
            raise SchemaProblem(f"{what} is not in the registry")
        if status != http.client.OK:
            raise RegistryFailed(self._config.url, f"it answered with status {status}")
        if len(body) > PIPELINE_REGISTRY_BYTES_MAX:
            raise SchemaProblem(f"{what} has more than {PIPELINE_REGISTRY_BYTES_MAX} bytes")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError:
            raise RegistryFailed(self._config.url, "its answer is no JSON object") from None

    def _request(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body, which ends one byte after the limit."""
        deadline = time.monotonic() + self._config.timeout_seconds
        parsed = urllib.parse.urlsplit(self._config.url)
        connection = self._connection(parsed)
        try:
            connection.request("GET", parsed.path.rstrip("/") + path, headers=self._headers())
            answer = connection.getresponse()
            body = bytearray()
            while len(body) <= PIPELINE_REGISTRY_BYTES_MAX:
                chunk = answer.read1(_CHUNK_BYTES)
                if not chunk:
                    break
                body += chunk
                if time.monotonic() > deadline:
                    raise TimeoutError("timed out")
            return answer.status, bytes(body)
        finally:
            connection.close()

    def _connection(self, parsed: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        host, seconds = parsed.hostname or "", self._config.timeout_seconds
        if parsed.scheme != "https":
            return http.client.HTTPConnection(host, parsed.port, timeout=seconds)
        authority = self._config.certificate or None
        context = ssl.create_default_context(cafile=authority)
        return http.client.HTTPSConnection(host, parsed.port, timeout=seconds, context=context)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._config.user:
            pair = f"{self._config.user}:{self._config.password}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        return headers


def split_header(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the rest of a payload in Confluent's format; raise SchemaProblem."""
    if len(value) < _HEADER_BYTES or value[0] != 0:
        raise SchemaProblem("no payload with a schema id: expected byte 0 and a 4-byte id")
    return int.from_bytes(value[1:_HEADER_BYTES], "big"), value[_HEADER_BYTES:]


_REGISTRIES: Final[dict[RegistryConfig, Registry]] = {}
"""One for each configuration in a process, so that its schemas stay known between steps."""


def registry_of(config: RegistryConfig) -> Registry:
    """Return the registry of a configuration."""
    return _REGISTRIES.setdefault(config, Registry(config))
