"""The dark and the light theme, and the style of a token: an underline for its kind, a colour for its drafter.

    accepted draft    underlined               in the colour of its drafter
    target            plain                    muted
    correction        bold, double underline   in the warning colour

The kinds differ without colours as well. Every colour comes from the theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from textual.color import HSL, Color
from textual.theme import Theme

from specchat.chat.step_records import TARGET, TokenKind

DARK_THEME = Theme(
    name="specchat-night", primary="#7aa2c9", accent="#8fc7a3", secondary="#c9a86a", warning="#d8b25c", error="#d88080",
    success="#8fc7a3", foreground="#d6d9de", background="#15181c", surface="#1a1e23", panel="#252a30", dark=True,
)  # fmt: skip
LIGHT_THEME = Theme(
    name="specchat-day", primary="#2f5d87", accent="#2c6e49", secondary="#8a6116", warning="#8a5a00", error="#a12c2c",
    success="#126e47", foreground="#20242a", background="#fafaf7", surface="#f2f2ee", panel="#e4e4de", dark=False,
)  # fmt: skip
HUE_SHIFTS = (0.0, 0.19, 0.38, 0.62, 0.81)  # parts of the hue circle from the success colour, far from the warning
MUTED_BLEND = 0.34


def theme_variables() -> Mapping[str, str]:
    """The colours of the dark theme, by their names."""
    return DARK_THEME.to_color_system().generate()


@dataclass(frozen=True)
class TokenColours:
    target: Color
    correction: Color
    drafters: tuple[Color, ...]

    @classmethod
    def from_theme(cls, variables: Mapping[str, str]) -> TokenColours:
        colours = {name: Color.parse(variables[name]) for name in ("foreground", "background", "success", "warning")}
        target = colours["foreground"].blend(colours["background"], MUTED_BLEND, alpha=1.0)
        return cls(target, colours["warning"], tuple(_shift_hue(colours["success"], shift) for shift in HUE_SHIFTS))

    def source_style(self, source: str, sources: Sequence[str]) -> Style:
        """The style of a source; `sources` are all drafters of the answer, in order."""
        if source == TARGET:
            return Style(color=self.target.rich_color)
        index = sources.index(source) if source in sources else 0
        return Style(color=self.drafters[index % len(self.drafters)].rich_color, underline=True)

    def kind_style(self, kind: TokenKind, source: str, sources: Sequence[str]) -> Style:
        if kind is TokenKind.CORRECTION:
            return Style(color=self.correction.rich_color, bold=True, underline=True, underline2=True)
        return self.source_style(source, sources)


def _shift_hue(colour: Color, shift: float) -> Color:
    hue, saturation, lightness = colour.hsl
    return Color.from_hsl(*HSL((hue + shift) % 1, saturation, lightness)) if shift else colour
