"""The sums of several answers that are one turn for the user: the tries of an edit, the rounds of an agent.

Knows numbers; knows no text and no model.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import Finished, Totals
from specchat.chat.plain_baseline import UNKNOWN_ESTIMATE, PlainEstimate


def sum_totals(finished_turns: Sequence[Finished]) -> Totals:
    """The sum of all answers; the time to the first token is that of the first."""
    done = [each.totals for each in finished_turns] or [Totals()]
    plain = _plain_decoding_of(done)
    return Totals(
        prompt_tokens=sum(each.prompt_tokens for each in done),
        cached_tokens=sum(each.cached_tokens for each in done),
        completion_tokens=sum(each.completion_tokens for each in done),
        steps=sum(each.steps for each in done),
        draft_tokens=sum(each.draft_tokens for each in done),
        acceptance=sum((each.acceptance for each in done), Acceptance()),
        accepted_by_drafter=_sum_by_name(each.accepted_by_drafter for each in done),
        steps_by_drafter=_sum_by_name(each.steps_by_drafter for each in done),
        draft_seconds=sum(each.draft_seconds for each in done),
        verify_seconds=sum(each.verify_seconds for each in done),
        prefill_seconds=sum(each.prefill_seconds for each in done),
        seconds=sum(each.total_seconds for each in done),
        ttft_seconds=done[0].ttft_seconds,
        queue_seconds=sum(each.queue_seconds for each in done),
        other_seconds=sum(each.other_seconds for each in done),
        loading_seconds=sum(each.loading_seconds for each in done),
        repeated_tokens=sum(each.repeated_tokens for each in done),
        thinking_tokens=sum(each.thinking_tokens for each in done),
        thinking_seconds=sum(each.thinking_seconds for each in done),
        plain_decode_seconds=plain.seconds,
        plain_decode_error=plain.error,
        is_exact=all(each.is_exact for each in done),
    )


def _sum_by_name(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _plain_decoding_of(turns: Sequence[Totals]) -> PlainEstimate:
    """What plain decoding would have taken for all turns; 0 when it is unknown for one of them."""
    seconds = sum(each.plain_decode_seconds for each in turns)
    if not seconds or not all(each.plain_decode_seconds for each in turns if each.completion_tokens):
        return UNKNOWN_ESTIMATE
    return PlainEstimate(seconds, sum(each.plain_decode_error * each.plain_decode_seconds for each in turns) / seconds)
