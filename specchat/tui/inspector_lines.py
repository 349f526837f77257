"""What is said of an inspected answer, as lines: the legend, the sums, a step, its guesses. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from specchat.chat.step_records import Guess, Inspection, Kind, Seen, Span
from specchat.tui.glyphs import Glyphs, visible
from specchat.tui.status_bar import spark
from specchat.tui.token_colours import TokenColours

LONGEST_WORD = 24
MOST_DEPTHS = 6
KINDS = {Kind.ACCEPTED: "accepted draft", Kind.PLAIN: "target", Kind.CORRECTION: "correction"}


def spelt(span: Span, glyphs: Glyphs) -> str:
    """What stands on the screen for a token: its ends of lines can be seen, and in ASCII its kind."""
    text = visible(span.text)
    if glyphs.ascii:
        return f"[{span.kind.value}{text.replace(chr(10), glyphs.line_end)}]" + "\n" * text.count("\n")
    return text.replace("\n", f"{glyphs.line_end}\n")


def legend(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    """The three kinds, each as it looks, and whose the tokens are."""
    line, sources = Text(), inspection.sources
    for kind, name in KINDS.items():
        source = (sources[0] if sources else "") if kind is Kind.ACCEPTED else "target"
        shown = f"[{kind.value}{name}]" if glyphs.ascii else name
        line.append("  " if line else "").append(shown, colours.of_kind(kind, source, sources))
    return line


def shares(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    """Which part of the tokens is whose."""
    line = Text("by source: " if inspection.tokens else "")
    for place, (source, share) in enumerate(inspection.shares.items()):
        line.append(f" {glyphs.dot} " if place else "")
        line.append(f"{visible(source)} {share:.0%}", colours.of_source(source, inspection.sources))
    return line


def sums(inspection: Inspection, plain_seconds: float, glyphs: Glyphs) -> str:
    """The answer as a whole; `plain_seconds` is what a plain pass costs here, 0 when nobody knows."""
    steps, tokens, seconds = len(inspection.steps), inspection.tokens, inspection.decode_seconds
    if not steps:
        return ""
    drafted, accepted = inspection.drafted, inspection.accepted
    held = f" ({accepted / drafted:.0%})" if drafted else ""
    fields = [f"drafted {drafted}", f"accepted {accepted}{held}", f"steps {steps}"]
    fields.append(f"{glyphs.per_pass} {tokens / steps:.1f}")
    if seconds:
        gain = f" {glyphs.times}{tokens * plain_seconds / seconds:.1f}" if plain_seconds else ""
        fields.append(f"{tokens / seconds:.0f} t/s{gain}")
    return "  ".join(fields)


def step_lines(inspection: Inspection, number: int, glyphs: Glyphs) -> list[str]:
    """What became of the guesses of a step, what the target wrote then, and what that took."""
    step, arrow = inspection.steps[number], glyphs.arrow
    who = ", ".join(map(visible, step.by)) if step.guesses else "nobody guessed"
    held = f"  drafted {len(step.guesses)} {arrow} accepted {step.accepted}" if step.guesses else ""
    refused = f" (draft {quoted(step.refused, glyphs)})" if step.refused is not None else ""
    wrote = f"{arrow} wrote {quoted(step.wrote, glyphs)}{refused}" if step.wrote else ""
    cost = f"draft {step.draft_seconds * 1000:.1f} ms {glyphs.dot} verify {step.verify_seconds * 1000:.1f} ms"
    return [f"step {number + 1}/{len(inspection.steps)}  {who}{held}", wrote, cost]


def guess_lines(step: Seen, glyphs: Glyphs) -> list[str]:
    """Every guess with a plus if it held and a minus if not: a chain in one line, a tree by depth."""
    if not step.guesses:
        return ["nobody guessed"]
    if step.is_chain:
        return [_marked(step.guesses, glyphs)]
    deepest = max(guess.depth for guess in step.guesses)
    lines = [
        f"{depth}  {_marked([guess for guess in step.guesses if guess.depth == depth], glyphs)}"
        for depth in range(1, deepest + 1)
    ]
    more = [f"{glyphs.more} {deepest - MOST_DEPTHS} deeper"] if deepest > MOST_DEPTHS else []
    return lines[:MOST_DEPTHS] + more


def charts(inspection: Inspection, number: int, room: int, glyphs: Glyphs) -> str:
    """Tokens a step and guesses a step, of as many steps around this one as there is room for."""
    names = "tokens/step ", "  guesses "
    each = max(1, (room - sum(map(len, names))) // 2)
    first = max(0, min(number - each // 2, len(inspection.steps) - each))
    steps = inspection.steps[first : first + each]
    tokens, guesses = [step.tokens for step in steps], [len(step.guesses) for step in steps]
    return f"{names[0]}{spark(tokens, glyphs)}{names[1]}{spark(guesses, glyphs) or 'none'}"


def quoted(text: str, glyphs: Glyphs) -> str:
    """A word in quotes, its ends of lines as `\\n`; not all of a long one."""
    shown = visible(text.replace("\n", "\\n"))
    return f'"{shown if len(shown) <= LONGEST_WORD else shown[:LONGEST_WORD] + glyphs.more}"'


def _marked(guesses: Sequence[Guess], glyphs: Glyphs) -> str:
    return "".join(_each(guesses, glyphs))


def _each(guesses: Sequence[Guess], glyphs: Glyphs) -> Iterator[str]:
    for guess in guesses:
        yield f"[{'+' if guess.held else '-'}{quoted(guess.text, glyphs)[1:-1]}]"


def answer(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    """The whole answer, every token in the look of who guessed it."""
    text = Text()
    for span in inspection.spans:
        text.append(spelt(span, glyphs), colours.of_span(span, inspection.sources))
    return text
