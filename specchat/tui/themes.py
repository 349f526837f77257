"""The dark and the light theme; the palette also offers those of Textual."""

from __future__ import annotations

from collections.abc import Mapping

from textual.theme import Theme

DARK_THEME = Theme(
    name="specchat-night", primary="#7aa2c9", accent="#8fc7a3", secondary="#c9a86a", warning="#d8b25c", error="#d88080",
    success="#8fc7a3", foreground="#d6d9de", background="#15181c", surface="#1a1e23", panel="#242a31", dark=True,
)  # fmt: skip
LIGHT_THEME = Theme(
    name="specchat-day", primary="#2f5d87", accent="#2c6e49", secondary="#8a6116", warning="#8a5a00", error="#a12c2c",
    success="#2c6e49", foreground="#20242a", background="#fafaf7", surface="#f2f2ee", panel="#e4e4de", dark=False,
)  # fmt: skip


def theme_variables(theme: Theme = DARK_THEME) -> Mapping[str, str]:
    """The colours of a theme by name, for drawing without a screen."""
    return theme.to_color_system().generate()
