"""Dialogs: a question before an act, and the outcome of an act."""

from collections.abc import Awaitable, Callable

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway

__all__ = ["attempt", "confirm", "show_facts"]


async def attempt(act: Callable[[], Awaitable[str]]) -> bool:
    """Run an act that returns what was done; show that, or why the broker refused it."""
    try:
        ui.notify(await act(), type="positive")
    except (ApiRefused, BrokerAway) as error:
        ui.notify(str(error), type="negative", multi_line=True)
        return False
    return True


async def confirm(question: str, label: str) -> bool:
    """Ask before an act; return whether it is wanted."""
    with ui.dialog() as dialog, ui.card().classes("card"):
        ui.label(question)
        with ui.row():
            ui.button(label, on_click=lambda: dialog.submit(True)).props("no-caps")  # noqa: FBT003
            cancel = ui.button("Cancel", on_click=lambda: dialog.submit(False))  # noqa: FBT003
            cancel.props("flat no-caps")
    answer = await dialog
    dialog.delete()
    return bool(answer)


def show_facts(facts: dict[str, object]) -> None:
    """Show names and values, below each other."""
    with ui.element("dl").classes("facts"):
        for name, value in facts.items():
            with ui.element("dt"):
                ui.label(name)
            with ui.element("dd"):
                ui.label(str(value))
