"""What each drafter did in an answer, in words: steps, acceptance and computing time for each token. No assumptions."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from specchat.acceptance_counts import Acceptance
from specchat.engine.stats import NO_DRAFTER, StepCounts


def describe_drafters(steps: Iterable[StepCounts]) -> str:
    """What each drafter did, in the order of their first steps: what was tried first stands first.

    "no drafter 3 of 16 steps, 12.5 ms/token; suffix 13 steps, acceptance 76 % (42 of 55), 9.1 ms/token"
    """
    by_drafter = defaultdict[str, list[StepCounts]](list)
    for step in steps:
        by_drafter[step.drafter].append(step)
    total = sum(map(len, by_drafter.values()))
    described = enumerate(by_drafter.items())
    return "; ".join(_describe(name, done, total if not number else 0) for number, (name, done) in described)


def _describe(name: str, steps: Sequence[StepCounts], total: int) -> str:
    acceptance = sum((step.acceptance for step in steps), Acceptance())
    count = f"{len(steps)} of {total} steps" if total else f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    accepted, tested = sum(acceptance.accepted), sum(acceptance.tested)
    rate = f"{acceptance.rate or 0:.0%}".replace("%", " %")
    shown_rate = f", acceptance {rate} ({accepted} of {tested})" if tested else ""
    milliseconds = 1000 * sum(step.seconds for step in steps) / max(sum(step.tokens for step in steps), 1)
    return f"{'no drafter' if name == NO_DRAFTER else name} {count}{shown_rate}, {milliseconds:.1f} ms/token"
