"""The text lines of the inspector: legend, totals, a step, its draft tokens, probabilities."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from specchat.chat.events import CommittedToken, Speedup
from specchat.chat.step_records import DraftToken, Inspection, StepRecord, TokenKind, TokenSpan
from specchat.drawing.glyphs import Glyphs, printable, sparkline
from specchat.drawing.themes import TokenColours, theme_variables

MAX_QUOTED_CHARS = 24
MAX_DEPTHS = 6
MAX_OTHERS = 3  # likely tokens beside a committed one
KIND_NAMES = {TokenKind.ACCEPTED: "accepted draft", TokenKind.SAMPLED: "target", TokenKind.CORRECTION: "correction"}
COLUMNS = 100


def token_text(span: TokenSpan, glyphs: Glyphs) -> str:
    """The text of a token; line ends are visible, and in ASCII a mark shows its kind."""
    text = printable(span.text)
    if glyphs.is_ascii:
        return f"[{span.kind.value}{text.replace(chr(10), glyphs.line_end)}]" + "\n" * text.count("\n")
    return text.replace("\n", f"{glyphs.line_end}\n")


def legend(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    line, sources = Text(), inspection.sources
    for kind, name in KIND_NAMES.items():
        source = (sources[0] if sources else "") if kind is TokenKind.ACCEPTED else "target"
        shown = f"[{kind.value}{name}]" if glyphs.is_ascii else name
        line.append("  " if line else "").append(shown, colours.kind_style(kind, source, sources))
    return line


def source_shares(inspection: Inspection, colours: TokenColours, glyphs: Glyphs) -> Text:
    line = Text("by source: " if inspection.committed_count else "")
    for index, (source, share) in enumerate(inspection.source_shares.items()):
        line.append(f" {glyphs.dot} " if index else "")
        line.append(f"{printable(source)} {share:.0%}", colours.source_style(source, inspection.sources))
    return line


def totals_line(inspection: Inspection, speedup: Speedup | None, glyphs: Glyphs) -> str:
    """Totals of the answer; `speedup` is None when it is unknown."""
    steps, tokens, seconds = len(inspection.steps), inspection.committed_count, inspection.decode_seconds
    if not steps:
        return ""
    drafted, accepted = inspection.draft_count, inspection.accepted_count
    fields = [f"drafted {drafted}", f"accepted {accepted}", f"steps {steps}", f"{tokens / steps:.1f} tokens/step"]
    if (rate := inspection.acceptance.rate) is not None:
        fields.insert(2, f"acceptance {rate:.0%} (by depth {inspection.acceptance.by_depth})")
    if seconds and tokens:
        factor = f" {glyphs.times}{speedup.text}" if speedup else ""
        fields.append(f"{1000 * seconds / tokens:.1f} ms/token{factor}")
    return "  ".join(fields)


def step_lines(inspection: Inspection, step_index: int, glyphs: Glyphs) -> list[str]:
    step, arrow = inspection.steps[step_index], glyphs.arrow
    drafters = ", ".join(map(printable, step.drafters)) if step.draft_tokens else "no draft tokens"
    counts = f"  drafted {len(step.draft_tokens)} {arrow} accepted {step.accepted_count}" if step.draft_tokens else ""
    rejected = f" (draft {quote_text(step.rejected_text, glyphs)})" if step.rejected_text is not None else ""
    sampled = f"{arrow} sampled {quote_text(step.target_text, glyphs)}{rejected}" if step.target_text else ""
    cost = f"draft {step.step.draft_seconds * 1000:.1f} ms {glyphs.dot} verify {step.step.verify_seconds * 1000:.1f} ms"
    return [f"step {step_index + 1}/{len(inspection.steps)}  {drafters}{counts}", sampled, cost]


def draft_lines(step: StepRecord, glyphs: Glyphs) -> list[str]:
    """Every draft token, + if accepted and - if not: a chain in one line, a tree by depth."""
    if not step.draft_tokens:
        return ["no draft tokens"]
    if step.is_chain:
        return [_marked_drafts(step.draft_tokens, glyphs)]
    deepest = max(token.depth for token in step.draft_tokens)
    lines = [
        f"{depth}  {_marked_drafts([token for token in step.draft_tokens if token.depth == depth], glyphs)}"
        for depth in range(1, deepest + 1)
    ]
    more = [f"{glyphs.ellipsis} {deepest - MAX_DEPTHS} deeper"] if deepest > MAX_DEPTHS else []
    return lines[:MAX_DEPTHS] + more


def probability_lines(step: StepRecord, glyphs: Glyphs) -> list[str]:
    """Each committed token with the probability that the target gives it, and the likeliest others; empty if unknown.

    `" the" 62%   " a" 21%  " one" 4%`. Sampling may choose a token that is not the likeliest one.
    """
    known = [token for token in step.step.committed_tokens if token.probability is not None]
    lines = [_probability_line(token, glyphs) for token in known[:MAX_DEPTHS]]
    more = [f"{glyphs.ellipsis} {len(known) - MAX_DEPTHS} more"] if len(known) > MAX_DEPTHS else []
    return lines + more


def _probability_line(token: CommittedToken, glyphs: Glyphs) -> str:
    def shown(token_bytes: bytes, probability: float) -> str:
        return f"{quote_text(token_bytes.decode('utf-8', 'replace'), glyphs)} {probability:.0%}"

    others = [each for each in token.likeliest if each.token_bytes != token.token_bytes][:MAX_OTHERS]
    texts = [shown(each.token_bytes, each.probability) for each in others]
    return f"{shown(token.token_bytes, token.probability or 0.0)}   {'  '.join(texts)}".rstrip()


def charts(inspection: Inspection, step_index: int, width: int, glyphs: Glyphs) -> str:
    """Tokens per step and draft tokens per step, of as many steps around this one as fit."""
    names = "tokens/step ", "  draft tokens "
    count = max(1, (width - sum(map(len, names))) // 2)
    first = max(0, min(step_index - count // 2, len(inspection.steps) - count))
    steps = inspection.steps[first : first + count]
    tokens, draft_tokens = [each.step.tokens for each in steps], [len(each.draft_tokens) for each in steps]
    return f"{names[0]}{sparkline(tokens, glyphs)}{names[1]}{sparkline(draft_tokens, glyphs) or 'none'}"


def quote_text(text: str, glyphs: Glyphs) -> str:
    """A text in quotes, line ends as `\\n`, shortened if long."""
    shown = printable(text.replace("\n", "\\n"))
    return f'"{shown if len(shown) <= MAX_QUOTED_CHARS else shown[:MAX_QUOTED_CHARS] + glyphs.ellipsis}"'


def _marked_drafts(tokens: Sequence[DraftToken], glyphs: Glyphs) -> str:
    texts = ((token.is_accepted, quote_text(token.text, glyphs)[1:-1]) for token in tokens)
    return "".join(f"[{'+' if is_accepted else '-'}{text}]" for is_accepted, text in texts)


def render_lines(inspection: Inspection, glyphs: Glyphs, speedup: Speedup | None) -> Iterator[Text]:
    """The whole answer with its sums, in the colours of the dark theme."""
    colours = TokenColours.from_theme(theme_variables())
    yield legend(inspection, colours, glyphs)
    yield Text(totals_line(inspection, speedup, glyphs))
    yield Text()
    yield Text.assemble(
        *(
            (token_text(span, glyphs), colours.kind_style(span.kind, span.source, inspection.sources))
            for span in inspection.spans
        )
    )
    yield Text()
    yield source_shares(inspection, colours, glyphs)
    yield Text(charts(inspection, 0, COLUMNS, glyphs))
