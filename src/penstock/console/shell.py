"""The frame around every page: navigation, theme, log-in, shortcuts."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui
from nicegui.events import KeyEventArguments

from penstock.console.sessions import LogIn

__all__ = ["PLACES", "Place", "Shell", "problem_card", "show_empty"]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A page in the navigation; `area` is the right that it needs, empty for none."""

    path: str
    title: str
    key: str
    area: str = ""
    optional: bool = False
    """Whether it is shown only where the console, or the broker, has what it needs."""


PLACES: Final = (
    Place("/", "Overview", "1", area="rates"),
    Place("/topics", "Topics", "2"),
    Place("/messages", "Messages", "3"),
    Place("/clients", "Clients", "4", area="clients"),
    Place("/groups", "Groups", "5"),
    Place("/hooks", "Hooks", "0", area="hooks"),
    Place("/refusals", "Refusals", "6", area="refusals"),
    Place("/storage", "Storage", "7", area="log"),
    Place("/cluster", "Cluster", "9", area="cluster", optional=True),
    Place("/pipeline", "Pipeline", "8", area="pipeline", optional=True),
    Place("/sql", "SQL", "s"),
)
_SHORTCUTS: Final = (
    *((place.key, place.title) for place in PLACES),
    ("/", "Search on this page"),
    ("Ctrl+Enter", "Run the query"),
    ("p", "Pause or continue what is live"),
    ("t", "Light or dark"),
    ("?", "This list"),
)
_ACCENT: Final = "#2b7fd4"
_THEME_COOKIE: Final = (
    "document.cookie = 'theme={theme}; path=/; max-age=31536000; SameSite=Strict'"
)

_SCRIPT_SECONDS_MAX: Final = 10.0
_IS_DARK: Final = "document.body.classList.contains('body--dark')"


def places_of(login: LogIn, *, optional: Sequence[str]) -> list[Place]:
    """Return the places that a principal may see."""
    return [
        place
        for place in PLACES
        if (not place.area or login.has_area(place.area))
        and (not place.optional or place.path in optional)
    ]


class Shell:
    """Builds the frame; the content of the page goes into `content`."""

    def __init__(
        self,
        login: LogIn,
        path: str,
        *,
        dark: bool | None,
        optional: Sequence[str] = (),
        log_in: str = "/login",
    ) -> None:
        """`dark` is the theme that the visitor chose, None for that of its system.

        `log_in` is the address of the log-in that leads back to this page.
        """
        self._login = login
        self._log_in = log_in
        self._places = places_of(login, optional=optional)
        self._dark = ui.dark_mode(value=dark)
        ui.colors(primary=_ACCENT)
        self.pause: ui.switch | None = None
        title = next((place.title for place in PLACES if place.path == path), "Penstock")
        ui.page_title(f"{title} · Penstock")
        self._shortcuts = self._build_shortcuts()
        with ui.element("header").classes("top"):
            ui.link("Penstock", "/").classes("brand")
            self._build_navigation(path)
            self._build_tools()
        self.content = ui.element("main").classes("content").props(f'aria-label="{title}"')
        with self.content:
            ui.element("h1").classes("title")._text = title  # noqa: SLF001
        ui.keyboard(on_key=self._pressed)

    def _build_navigation(self, path: str) -> None:
        with ui.element("nav").classes("places").props('aria-label="Pages"'):
            for place in self._places:
                link = ui.link(place.title, place.path).classes("place")
                if place.path == path:
                    link.classes("here").props('aria-current="page"')

    def _build_tools(self) -> None:
        with ui.element("div").classes("tools"):
            name = "anonymous" if self._login.anonymous else self._login.name
            ui.label(name).classes("who").tooltip("The principal that you are for the broker")
            if self._login.by_form:
                ui.link("Log out", "/logout").classes("tool")
            else:
                ui.link("Log in", self._log_in).classes("tool")
            _tool("contrast", "Light or dark", self.toggle_theme)
            _tool("keyboard", "Shortcuts", self._shortcuts.open)

    def _build_shortcuts(self) -> ui.dialog:
        shown = {place.key for place in self._places}
        hidden = {place.key for place in PLACES} - shown
        with ui.dialog() as dialog, ui.card().classes("card"):
            ui.label("Shortcuts").classes("heading")
            with ui.element("dl").classes("keys"):
                for key, text in _SHORTCUTS:
                    if key not in hidden:
                        ui.element("dt")._text = key  # noqa: SLF001
                        ui.element("dd")._text = text  # noqa: SLF001
            ui.button("Close", on_click=dialog.close).props("flat dense no-caps")
        return dialog

    @staticmethod
    def set_search(field: ui.input) -> None:
        """Let the key `/` lead to a field; console.js does it, so that no key is lost."""
        field.classes("search-field")

    async def toggle_theme(self) -> None:
        """Change between light and dark, and remember it in a cookie."""
        is_dark = self._dark.value
        if is_dark is None:
            is_dark = await ui.run_javascript(_IS_DARK, timeout=_SCRIPT_SECONDS_MAX)
        # The cookie is set before the page changes: the next page may be asked for right then.
        theme = "light" if is_dark else "dark"
        cookie = _THEME_COOKIE.format(theme=theme)
        await ui.run_javascript(cookie, timeout=_SCRIPT_SECONDS_MAX)
        self._dark.set_value(not is_dark)

    async def _pressed(self, event: KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta:
            return
        key = event.key.name
        place = next((each for each in self._places if each.key == key), None)
        if place is not None:
            ui.navigate.to(place.path)
        elif key == "?":
            self._shortcuts.open()
        elif key == "t":
            await self.toggle_theme()
        elif key == "p" and self.pause is not None:
            self.pause.set_value(not self.pause.value)


def _tool(icon: str, label: str, clicked: Any) -> None:  # noqa: ANN401
    button = ui.button(icon=icon, on_click=clicked)
    button.props(f'flat dense round size=sm aria-label="{label}"').tooltip(label)


def problem_card(text: str) -> None:
    """Show why a page has no content."""
    with ui.element("section").classes("card problem").props('role="alert"'):
        ui.label(text)


def show_empty(text: str) -> None:
    """Show that there is nothing, and what that means."""
    ui.label(text).classes("muted empty")
