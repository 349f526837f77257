"""What is said of an inspected answer, as lines: the legend, the sums, a step, its guesses. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from specchat.chat.step_records import DraftToken, Inspection, StepRecord, TokenKind, TokenSpan
from specchat.tui.glyphs import Glyphs, printable
from specchat.tui.status_text import sparkline
from specchat.tui.token_colours import TokenColours

MAX_QUOTED_CHARS = 24
MAX_DEPTHS = 6
KIND_NAMES = {TokenKind.ACCEPTED: "accepted draft", TokenKind.SAMPLED: "target", TokenKind.CORRECTION: "correction"}


def token_text(span: TokenSpan, glyphs: Glyphs) -> str:
    """What stands on the screen for a token: its ends of lines can be seen, and in ASCII its kind."""
    text = printable(span.text)
    if glyphs.is_ascii:
        return f"[{span.kind.value}{text.replace(chr(10), glyphs.line_end)}]" + "\n" * text.count("\n")
    return text.replace("\n", f"{glyphs.line_end}\n")


def legend(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    """The three kinds, each as it looks, and whose the tokens are."""
    line, sources = Text(), inspection.sources
    for kind, name in KIND_NAMES.items():
        source = (sources[0] if sources else "") if kind is TokenKind.ACCEPTED else "target"
        shown = f"[{kind.value}{name}]" if glyphs.is_ascii else name
        line.append("  " if line else "").append(shown, colours.kind_style(kind, source, sources))
    return line


def source_shares(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    """Which part of the tokens is whose."""
    line = Text("by source: " if inspection.committed_count else "")
    for place, (source, share) in enumerate(inspection.source_shares.items()):
        line.append(f" {glyphs.dot} " if place else "")
        line.append(f"{printable(source)} {share:.0%}", colours.source_style(source, inspection.sources))
    return line


def totals_line(inspection: Inspection, plain_step_seconds: float, glyphs: Glyphs) -> str:
    """The answer as a whole; `plain_seconds` is what a plain pass costs here, 0 when nobody knows."""
    steps, tokens, seconds = len(inspection.steps), inspection.committed_count, inspection.decode_seconds
    if not steps:
        return ""
    drafted, accepted = inspection.draft_count, inspection.accepted_count
    held = f" ({accepted / drafted:.0%})" if drafted else ""
    fields = [f"drafted {drafted}", f"accepted {accepted}{held}", f"steps {steps}"]
    fields.append(f"{glyphs.tokens_per_step} {tokens / steps:.1f}")
    if seconds:
        gain = f" {glyphs.times}{tokens * plain_step_seconds / seconds:.1f}" if plain_step_seconds else ""
        fields.append(f"{tokens / seconds:.0f} t/s{gain}")
    return "  ".join(fields)


def step_lines(inspection: Inspection, step_index: int, glyphs: Glyphs) -> list[str]:
    """What became of the guesses of a step, what the target wrote then, and what that took."""
    step, arrow = inspection.steps[step_index], glyphs.arrow
    who = ", ".join(map(printable, step.drafters)) if step.draft_tokens else "nobody guessed"
    held = f"  drafted {len(step.draft_tokens)} {arrow} accepted {step.accepted_count}" if step.draft_tokens else ""
    refused = f" (draft {quote_text(step.rejected_text, glyphs)})" if step.rejected_text is not None else ""
    wrote = f"{arrow} wrote {quote_text(step.target_text, glyphs)}{refused}" if step.target_text else ""
    cost = f"draft {step.draft_seconds * 1000:.1f} ms {glyphs.dot} verify {step.verify_seconds * 1000:.1f} ms"
    return [f"step {step_index + 1}/{len(inspection.steps)}  {who}{held}", wrote, cost]


def draft_lines(step: StepRecord, glyphs: Glyphs) -> list[str]:
    """Every guess with a plus if it held and a minus if not: a chain in one line, a tree by depth."""
    if not step.draft_tokens:
        return ["nobody guessed"]
    if step.is_chain:
        return [_marked_drafts(step.draft_tokens, glyphs)]
    deepest = max(guess.depth for guess in step.draft_tokens)
    lines = [
        f"{depth}  {_marked_drafts([guess for guess in step.draft_tokens if guess.depth == depth], glyphs)}"
        for depth in range(1, deepest + 1)
    ]
    more = [f"{glyphs.ellipsis} {deepest - MAX_DEPTHS} deeper"] if deepest > MAX_DEPTHS else []
    return lines[:MAX_DEPTHS] + more


def charts(inspection: Inspection, step_index: int, width: int, glyphs: Glyphs) -> str:
    """Tokens a step and guesses a step, of as many steps around this one as there is room for."""
    names = "tokens/step ", "  guesses "
    each = max(1, (width - sum(map(len, names))) // 2)
    first = max(0, min(step_index - each // 2, len(inspection.steps) - each))
    steps = inspection.steps[first : first + each]
    tokens, guesses = [step.committed_count for step in steps], [len(step.draft_tokens) for step in steps]
    return f"{names[0]}{sparkline(tokens, glyphs)}{names[1]}{sparkline(guesses, glyphs) or 'none'}"


def quote_text(text: str, glyphs: Glyphs) -> str:
    """A word in quotes, its ends of lines as `\\n`; not all of a long one."""
    shown = printable(text.replace("\n", "\\n"))
    return f'"{shown if len(shown) <= MAX_QUOTED_CHARS else shown[:MAX_QUOTED_CHARS] + glyphs.ellipsis}"'


def _marked_drafts(guesses: Sequence[DraftToken], glyphs: Glyphs) -> str:
    return "".join(_draft_marks(guesses, glyphs))


def _draft_marks(guesses: Sequence[DraftToken], glyphs: Glyphs) -> Iterator[str]:
    for guess in guesses:
        yield f"[{'+' if guess.is_accepted else '-'}{quote_text(guess.text, glyphs)[1:-1]}]"


def answer_content(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    """The whole answer, every token in the look of who guessed it."""
    text = Text()
    for span in inspection.spans:
        text.append(token_text(span, glyphs), colours.span_style(span, inspection.sources))
    return text
