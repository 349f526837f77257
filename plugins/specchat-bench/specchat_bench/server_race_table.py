"""The table of `specchat bench peers --server`, and the text below it that says how its figures were measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from specchat.hub.machine import cpu_features, cpu_name
from specchat_bench.chain_passes import MedianRange
from specchat_bench.columns import markdown_table
from specchat_bench.server_race import RacedPrompt, ServerAnswer

HEADER = (
    "chats", "ours", "beside", "tokens/s, theirs", "ours", "answer", "first text", "decoding", "same text",
)  # fmt: skip
FASTEST = "fastest for each"


def as_table(raced: Sequence[RacedPrompt]) -> str:
    """For each kind and server of ours, a row beside each other server, and one beside the fastest for each prompt."""
    kinds = {kind: [each for each in raced if each.kind == kind] for kind in dict.fromkeys(each.kind for each in raced)}
    return markdown_table(HEADER, [row for kind, prompts in kinds.items() for row in _rows(kind, prompts)])


def _rows(kind: str, prompts: Sequence[RacedPrompt]) -> Iterator[list[str]]:
    for name in prompts[0].ours:
        ours = [each.ours[name] for each in prompts]
        for other in prompts[0].theirs:
            yield [kind, name, other, *_cells(ours, [each.theirs[other] for each in prompts])]
        if len(prompts[0].theirs) > 1:
            chosen = Counter(each.fastest_of_theirs for each in prompts)
            label = ", ".join(f"{other} {times}" for other, times in chosen.most_common())
            fastest = [each.theirs[each.fastest_of_theirs] for each in prompts]
            yield [kind, name, f"**{FASTEST}**: {label}", *_cells(ours, fastest)]


def _cells(ours: Sequence[ServerAnswer], theirs: Sequence[ServerAnswer]) -> list[str]:
    def ratio(seconds: Callable[[ServerAnswer], float]) -> str:
        pairs = zip(ours, theirs, strict=True)
        return MedianRange.from_values(seconds(their) / max(seconds(our), 1e-9) for our, their in pairs).to_text(2)

    same = sum(our.text == their.text for our, their in zip(ours, theirs, strict=True))
    return [
        *(f"{median(1 / max(each.seconds_per_token, 1e-9) for each in side):.1f}" for side in (theirs, ours)),
        ratio(lambda each: each.seconds_per_token),
        ratio(lambda each: each.first_text_seconds),
        ratio(lambda each: each.decode_seconds_per_token),
        f"{same} of {len(ours)}",
    ]


def explanation(raced: Sequence[RacedPrompt], max_tokens: int, command: str) -> str:
    """What was measured and how, for below the table."""
    features = cpu_features()
    machine = f"{cpu_name()} with {', '.join(features)}" if features else cpu_name()
    cached = [
        max(answer.cached_tokens for answers in side for answer in answers.values())
        for side in ([each.ours for each in raced], [each.theirs for each in raced])
    ]
    return f"""\
`{command}`, {time.strftime("%Y-%m-%d")}, {machine}.
Wall time over HTTP of streamed chats (`/v1/chat/completions`), greedy, answers of at most {max_tokens} tokens; one
server computes at a time. Each prompt is asked once of each server, the next one in the opposite order; before those of
a kind, all answered another question of this kind.

Ratios are theirs by ours, the median (lowest-highest) of the prompts; above 1 ours is faster. *answer*: seconds per
token from the request to the end of the stream, the prompt included; tokens/s are these, too. *first text*: seconds to
the first text, so those of the prompt and one step. *decoding*: seconds behind the first text, per token.
"{FASTEST}" takes, for each prompt, that server of theirs which took the fewest seconds per token of the answer.
Of a prompt, at most {cached[0]} tokens were cached in ours and {cached[1]} in theirs; the others were computed.
Same text: the prompts to which both wrote the same."""
