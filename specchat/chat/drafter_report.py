"""What each drafter did in an answer, in words: steps, acceptance and computing time for each token."""

from collections.abc import Mapping

from specchat.engine.stats import NO_DRAFTER, DrafterSteps


def describe_drafters(by_drafter: Mapping[str, DrafterSteps]) -> str:
    """What each drafter did, the one of most steps first, and steps without draft tokens last.

    "suffix 13 of 16 steps, acceptance 76 % (42 of 55), 9.1 ms/token; no drafter 3 steps, 12.5 ms/token"
    """
    total = sum(each.steps for each in by_drafter.values())
    ordered = sorted(by_drafter.items(), key=lambda item: (item[0] == NO_DRAFTER, -item[1].steps))
    parts = list[str]()
    for name, done in ordered:
        count = f"{done.steps} of {total} steps" if not parts else f"{done.steps} step{'' if done.steps == 1 else 's'}"
        accepted, tested = sum(done.acceptance.accepted), sum(done.acceptance.tested)
        rate = f"{done.acceptance.rate or 0:.0%}".replace("%", " %")
        acceptance = f", acceptance {rate} ({accepted} of {tested})" if tested else ""
        shown = "no drafter" if name == NO_DRAFTER else name
        parts.append(f"{shown} {count}{acceptance}, {1000 * done.seconds / max(done.tokens, 1):.1f} ms/token")
    return "; ".join(parts)
