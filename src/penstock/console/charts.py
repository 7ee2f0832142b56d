"""Line charts over the last 15 minutes, or the time since the console was started."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from penstock.console.limits import CURRENT_SECONDS, HISTORY_SECONDS

__all__ = ["AXIS_TEXT", "GRID_LINE", "Line", "LineChart", "chart_options", "with_gaps"]

_COLORS: Final = (
    "#0b6bcb", "#d9822b", "#1d9a6c", "#b04ac7", "#c9453b", "#7a8794", "#3aa6b9",
)  # fmt: skip
_SHORTEST_SECONDS: Final = 60
"""The time axis of a console that has just started; it grows to HISTORY_SECONDS."""
_GREY: Final = "#8492a0"
_LINE: Final = "rgba(132,146,160,0.25)"
AXIS_TEXT: Final = {"color": _GREY, "fontSize": 11}
GRID_LINE: Final = {"lineStyle": {"color": _LINE}}
"""Colors of charts that can be read in both themes."""

Line = Sequence[tuple[float, float | None]]
"""Times in seconds since the epoch, and values."""


class LineChart:
    """A chart whose lines are replaced by `show`."""

    def __init__(self, label: str, *, stacked: bool = False) -> None:
        self._stacked = stacked
        self._chart = (
            ui.echart(chart_options()).classes("chart").props(f'role="img" aria-label="{label}"')
        )

    def show(self, lines: Mapping[str, Line], now: float) -> None:
        """Show lines by name, up to `now`."""
        options = self._chart.options
        first = min((line[0][0] for line in lines.values() if line), default=now)
        start = max(now - HISTORY_SECONDS, min(first, now - _SHORTEST_SECONDS))
        options["xAxis"].update(min=int(start * 1000), max=int(now * 1000))
        options["series"] = [
            self._series(name, line, _COLORS[place % len(_COLORS)])
            for place, (name, line) in enumerate(lines.items())
        ]
        options["legend"]["data"] = list(lines)
        self._chart.update()

    def _series(self, name: str, line: Line, color: str) -> dict[str, Any]:
        return {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "lineStyle": {"width": 1.5},
            "itemStyle": {"color": color},
            "areaStyle": {"opacity": 0.25} if self._stacked else {"opacity": 0.06},
            **({"stack": "all"} if self._stacked else {}),
            "data": [[int(time * 1000), value] for time, value in with_gaps(line)],
        }


def with_gaps(line: Line) -> Iterator[tuple[float, float | None]]:
    """Yield the points of a line, and a point without a value where none was measured for long."""
    before = None
    for time, value in line:
        if before is not None and time - before > CURRENT_SECONDS:
            yield (before + time) / 2, None
        before = time
        yield time, value


def chart_options() -> dict[str, Any]:
    """Return the options of a chart without lines."""
    text = AXIS_TEXT
    return {
        "animation": False,
        "useUTC": True,  # as all times of the console
        "grid": {"left": 8, "right": 12, "top": 30, "bottom": 4, "containLabel": True},
        "title": {"text": "times in UTC", "top": 6, "right": 12, "padding": 2,
                  "textStyle": {**text, "fontWeight": "normal"}},
        "legend": {"top": 0, "left": 0, "right": 96, "itemWidth": 14, "itemHeight": 8,
                   "textStyle": text, "type": "scroll", "data": []},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"type": "time",
                  "axisLabel": {**text, "hideOverlap": True, "showMaxLabel": False},
                  "axisLine": {"lineStyle": {"color": _LINE}}},
        "yAxis": {"type": "value", "min": 0, "axisLabel": text,
                  "splitLine": {"lineStyle": {"color": _LINE}}},
        "series": [],
    }  # fmt: skip
