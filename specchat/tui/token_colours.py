"""The style of a token: an underline for its kind, a colour for its drafter.

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

from specchat.chat.step_records import TARGET, TokenKind, TokenSpan

HUE_SHIFTS = (
    0.0,
    0.19,
    0.38,
    0.62,
    0.81,
)  # parts of the hue circle, from the success colour; far from the warning colour
MUTED_BLEND = 0.45


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

    def span_style(self, span: TokenSpan, sources: Sequence[str]) -> Style:
        return self.kind_style(span.kind, span.source, sources)


def _shift_hue(colour: Color, shift: float) -> Color:
    """Another hue with the same saturation and lightness."""
    hue, saturation, lightness = colour.hsl
    return Color.from_hsl(*HSL((hue + shift) % 1, saturation, lightness)) if shift else colour
