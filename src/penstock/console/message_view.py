"""One message: its fields, its payload in each form, its frame in each protocol; publishing."""

import base64
from datetime import datetime
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.dialogs import attempt, show_facts
from penstock.console.frames import ShownFrame, frames_of
from penstock.console.limits import FRAME_BYTES_MAX
from penstock.console.payloads import FORMS, best_form, payload_text
from penstock.console.sessions import LogIn
from penstock.console.tables import Column, Table
from penstock.console.text import bytes_text, time_text
from penstock.protocols import PROTOCOLS

__all__ = ["open_message", "open_publish", "sender_of"]

_TITLES = {"json": "JSON", "messagepack": "MessagePack", "text": "Text", "hex": "Hex"}
_FIELD_COLUMNS = (
    Column("at", "At"),
    Column("name", "Field", is_name=True),
    Column("bytes", "Bytes", is_name=True, cut=True),
    Column("meaning", "Meaning", cut=True),
)
_FIELD_BYTES_SHOWN = 10
_BUTTON = "outline no-caps padding='4px 12px'"


async def sender_of(login: LogIn, message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the client that sent a message, if it is connected and the visitor may see it."""
    if not login.has_area("clients") or message["protocol"] not in PROTOCOLS.labels:
        return None
    query = {"protocol": message["protocol"], "contains": message["sender"]}
    try:
        found = await login.api.get("/api/clients", query)
    except (ApiRefused, BrokerAway):
        return None
    sent = datetime.fromisoformat(message["time"])
    for client in found["clients"]:
        is_its_name = client["name"] == message["sender"]
        if is_its_name and datetime.fromisoformat(client["since"]) <= sent:
            return dict(client)
    return None


def open_message(
    login: LogIn, message: dict[str, Any], sender: dict[str, Any] | None, *, may_publish: bool
) -> None:
    """Open the dialog of a message; `sender` is the client that sent it, None if not known."""
    value = base64.b64decode(message["value"])
    headers = tuple((each["name"], base64.b64decode(each["value"])) for each in message["headers"])
    with ui.dialog() as dialog, ui.card().classes("card"):
        ui.label(f"Message {message['offset']:,}").classes("heading")
        show_facts(_facts(message, headers, sender))
        if sender is not None:
            address = f"/clients?search={quote(sender['name'], safe='')}"
            ui.link("Sender among the clients", address)
        _payload(value, whole=message["bytes"])
        with ui.expansion("As a frame of each protocol").classes("whole") as frames:
            ui.label("").classes("muted")
        frames.on_value_change(lambda: _fill_frames(frames, message["topic"] or "", value, headers))
        with ui.element("div").classes("bar"):
            text = payload_text(value, best_form(value)) or ""
            ui.button("Copy", on_click=lambda: _copy(text)).props(_BUTTON)
            if may_publish:
                again = ui.button(
                    "Publish again",
                    on_click=lambda: open_publish(
                        login, topic=message["topic"] or "", value=value, headers=headers
                    ),
                )
                again.props(_BUTTON)
            ui.button("Close", on_click=dialog.close).props("flat no-caps padding='4px 12px'")
    dialog.on("hide", dialog.delete)
    dialog.open()


def _facts(
    message: dict[str, Any],
    headers: tuple[tuple[str, bytes], ...],
    sender: dict[str, Any] | None,
) -> dict[str, object]:
    principal = "" if sender is None else f", principal {sender['principal']}"
    facts: dict[str, object] = {
        "Topic": message["topic"] or "(none)",
        "Time": f"{time_text(message['time'])} UTC",
        "Sender": f"{message['sender'] or '(none)'}, over {message['protocol']}{principal}",
        "Kind": message["kind"],
        "Size": bytes_text(message["bytes"]),
        "Message id": message["message_id"],
    }
    if message["key"] is not None:
        facts["Key"] = base64.b64decode(message["key"]).decode("utf-8", "backslashreplace")
    for name, text in headers:
        facts[f"Header {name}"] = text.decode("utf-8", "backslashreplace")
    if message["correlation"]:
        facts["Correlation"] = message["correlation"]
    return facts


def _payload(value: bytes, *, whole: int) -> None:
    """Show a payload in the form that fits, with tabs for the others that do."""
    texts = {form: payload_text(value, form) for form in FORMS}
    with ui.tabs().props("dense align=left no-caps") as tabs:
        for form in FORMS:
            if texts[form] is not None:
                ui.tab(form, label=_TITLES[form])
    with ui.tab_panels(tabs, value=best_form(value), animated=False).classes("whole"):
        for form, text in texts.items():
            if text is not None:
                with ui.tab_panel(form).style("padding: 0"):
                    _preformatted(text, "payload hex" if form == "hex" else "payload")
    if whole > len(value):
        ui.label(f"The first {bytes_text(len(value))} of {bytes_text(whole)}.").classes("muted")


def _preformatted(text: str, classes: str) -> None:
    shown = ui.element("pre").classes(classes).props("tabindex=0")
    shown._text = text  # noqa: SLF001


def _fill_frames(
    place: ui.expansion, topic: str, value: bytes, headers: tuple[tuple[str, bytes], ...]
) -> None:
    """Encode and explain the frames once the reader wants them."""
    if not place.value:
        return
    place.clear()
    with place:
        if len(value) > FRAME_BYTES_MAX or not topic:
            limit = bytes_text(FRAME_BYTES_MAX)
            ui.label(f"Shown for messages with a topic and up to {limit}.").classes("muted")
            return
        frames = frames_of(topic, value, headers)
        with ui.tabs().props("dense align=left no-caps") as tabs:
            for frame in frames:
                ui.tab(frame.protocol)
        with ui.tab_panels(tabs, value=frames[0].protocol, animated=False).classes("whole"):
            for frame in frames:
                with ui.tab_panel(frame.protocol).style("padding: 8px 0"):
                    _show_frame(frame)


def _show_frame(frame: ShownFrame) -> None:
    if frame.note:
        ui.label(frame.note).classes("muted")
    if not frame.data:
        return
    ui.label(f"{frame.name}, {len(frame.data):,} bytes, as a client sends it")
    _preformatted(payload_text(frame.data, "hex") or "", "payload hex")
    table = Table(_FIELD_COLUMNS, "at")
    table.show(
        [
            {
                "at": field.start,
                "name": field.name,
                "bytes": field.data[:_FIELD_BYTES_SHOWN].hex(" ")
                + (" …" if len(field.data) > _FIELD_BYTES_SHOWN else ""),
                "meaning": field.meaning,
            }
            for field in frame.fields
        ]
    )


def _copy(text: str) -> None:
    ui.clipboard.write(text)
    ui.notify("Copied.")


def open_publish(
    login: LogIn,
    *,
    topic: str = "",
    value: bytes = b"",
    headers: tuple[tuple[str, bytes], ...] = (),
) -> None:
    """Open the dialog that publishes a message. A value that is no text is sent as it is."""
    text = payload_text(value, "text")
    is_binary = bool(value) and text is None
    sent = {name: each.decode("utf-8", "replace") for name, each in headers}
    sent = {name: each for name, each in sent.items() if not name.startswith("penstock-")}
    with ui.dialog() as dialog, ui.card().classes("card"):
        ui.label("Publish").classes("heading")
        to = ui.input("Topic", value=topic).props("outlined dense").classes("whole mono")
        body = ui.textarea("Payload", value=value.hex(" ") if is_binary else text or "")
        body.props("outlined autogrow").classes("whole mono")
        if is_binary:
            ui.label("The payload is no text: these are its bytes in hex.").classes("muted")

        async def publish() -> None:
            async def act() -> str:
                message: dict[str, object] = {"topic": to.value, "headers": sent}
                if is_binary:
                    data = bytes.fromhex(body.value or "")
                    message["base64"] = base64.b64encode(data).decode()
                else:
                    message["text"] = body.value or ""
                done = await login.api.post("/api/publish", message)
                return f"Published at offset {done['offset']:,}."

            try:
                if await attempt(act):
                    dialog.close()
            except ValueError:
                ui.notify("That is not hex.", type="negative")

        with ui.row():
            ui.button("Publish", on_click=publish).props("no-caps")
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
    dialog.on("hide", dialog.delete)
    dialog.open()
