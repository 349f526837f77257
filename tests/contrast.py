"""How well a text stands out from its ground: the contrast ratio of WCAG 2."""

from textual.color import Color

READABLE_CONTRAST = 4.5


def contrast(first: Color, second: Color) -> float:
    """From 1, the same colour, to 21, black on white."""
    darker, brighter = sorted((_luminance(first), _luminance(second)))
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
