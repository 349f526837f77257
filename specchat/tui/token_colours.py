"""How a token looks by who guessed it: one way to underline for each kind, one colour for each who guessed.

    accepted draft    underlined              in the colour of who guessed it
    target            as it is                muted
    correction        bold, underlined twice  in the colour of warnings

So the kinds are told apart without colours as well. Every colour follows from the theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from textual.color import HSL, Color

from specchat.chat.step_records import TARGET, TokenKind, TokenSpan

HUE_SHIFTS = (0.0, 0.19, 0.38, 0.62, 0.81)  # of the circle of hues, from that of success; not near to warnings
MUTED_BLEND = 0.45


@dataclass(frozen=True)
class TokenColours:
    """The colours of a theme for this."""

    target: Color
    correction: Color
    drafters: tuple[Color, ...]

    @classmethod
    def from_theme(cls, variables: Mapping[str, str]) -> TokenColours:
        """From the variables of a theme, as `App.theme_variables` holds them."""
        named = {name: Color.parse(variables[name]) for name in ("foreground", "background", "success", "warning")}
        target = named["foreground"].blend(named["background"], MUTED_BLEND, alpha=1.0)
        return cls(target, named["warning"], tuple(_shift_hue(named["success"], turn) for turn in HUE_SHIFTS))

    def source_style(self, source: str, sources: Sequence[str]) -> Style:
        """Of what this one guessed; `sources` are all who did, in their order."""
        if source == TARGET:
            return Style(color=self.target.rich_color)
        place = sources.index(source) if source in sources else 0
        return Style(color=self.drafters[place % len(self.drafters)].rich_color, underline=True)

    def kind_style(self, kind: TokenKind, source: str, sources: Sequence[str]) -> Style:
        """Of a token of this kind."""
        if kind is TokenKind.CORRECTION:
            return Style(color=self.correction.rich_color, bold=True, underline=True, underline2=True)
        return self.source_style(source, sources)

    def span_style(self, span: TokenSpan, sources: Sequence[str]) -> Style:
        """Of this token."""
        return self.kind_style(span.kind, span.source, sources)


def _shift_hue(colour: Color, turn: float) -> Color:
    """Another hue, as bright and as strong."""
    hue, saturation, lightness = colour.hsl
    return Color.from_hsl(*HSL((hue + turn) % 1, saturation, lightness)) if turn else colour
