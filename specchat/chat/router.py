"""Where a request goes: what kind it is, who drafts for it, and why.

Routing looks at words and names only. It never sees a model, so it can be tested with strings. The route of an `auto`
request is a first opinion: it says in which order drafters promise something, and what they cost here decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.chat.kinds import first_rule
from specchat.chat.request import Request
from specchat.errors import ProfileError
from specchat.profile import Profile, Rule, every_guesser

PINNED = "pinned"  # the reason of a route that somebody asked for by name
HOT = 1.2  # above this temperature tokens are drawn so wildly that guesses seldom hold
FALLBACK = Rule(kind="chat")


@dataclass(frozen=True)
class Kind:
    """What is known of a kind of request: why, in words, and who promises most, the likeliest first."""

    why: str
    order: tuple[str, ...]


COPIES = ("lookup", "suffix")
HEADS = ("eagle3", "mtp", "eagle", "dflash", "draft", "medusa", "exit")
LEARNERS = ("recycling", "lookahead")
COPYING_FIRST = (*COPIES, *HEADS, *LEARNERS, "plain")
MODELS_FIRST = (*HEADS, *COPIES, *LEARNERS, "plain")
NOBODY_FIRST = ("plain", *HEADS, *COPIES, *LEARNERS)
KINDS: Mapping[str, Kind] = {
    "edit": Kind("an edit repeats most of its text", COPYING_FIRST),
    "files": Kind("the answer quotes what it was given to read", COPYING_FIRST),
    "structured": Kind("keys and brackets repeat", COPYING_FIRST),
    "code": Kind("new code is foreseeable but seldom a copy", MODELS_FIRST),
    "chat": Kind("an explanation is foreseeable but seldom a copy", MODELS_FIRST),
    "creative": Kind("invented text is no copy of anything", MODELS_FIRST),
    "short": Kind("the answer is probably short", NOBODY_FIRST),
}


@dataclass(frozen=True)
class Route:
    """What a request is, who drafts, how much at most, and the reason in words.

    With variant `auto` the drafters of `order`, the likeliest first, are measured while the answer is written.
    """

    kind: str
    variant: str
    budget: int
    reason: str
    order: tuple[str, ...] = ()


def choose_route(
    request: Request, profile: Profile, at_hand: frozenset[str], candidates: frozenset[str] | None = None
) -> Route:
    """The route of a request among the variants at hand; `auto` is one of them when somebody is there to measure.

    `candidates` are those among whom `auto` chooses (None: all at hand).
    Raises ProfileError for a variant that is asked for by name and cannot run with the loaded models.
    """
    sampling = profile.sampling.temperature if request.temperature is None else request.temperature
    rule = first_rule(profile.routes, request, sampling) or FALLBACK
    wanted = request.variant or profile.speculation.variant
    budget = profile.speculation.budget
    if wanted != "auto":
        check_at_hand(wanted, at_hand)
        return Route(rule.kind, wanted, _budget(wanted, budget), PINNED, (wanted,))
    budget = min(budget, rule.budget or budget)
    first = next((each for each in rule.variants if each == "auto" or each in at_hand), rule.variants[0])
    if first == "auto":
        likeliest = (*rule.variants, *profile.order_of(rule.kind))
        asked = at_hand if candidates is None else candidates | {"auto"}
        return _measured(rule.kind, likeliest, budget, asked, sampling)
    check_at_hand(first, at_hand)
    return Route(rule.kind, first, _budget(first, budget), f"the profile wants {first} for {rule.kind}", (first,))


def check_at_hand(variant: str, at_hand: frozenset[str]) -> None:
    """ProfileError, with what to load, unless this variant is known and can run."""
    guessers = every_guesser()
    if variant not in guessers:
        raise ProfileError(f"unknown variant {variant!r}; known are {', '.join(guessers)}")
    if variant in at_hand:
        return
    needs = guessers[variant].needs
    why = f"needs {needs}" if needs else "cannot run with the loaded models"
    raise ProfileError(f"variant {variant!r} {why}; at hand are {', '.join(_known(tuple(guessers), at_hand))}")


def _measured(name: str, likeliest: tuple[str, ...], budget: int, at_hand: frozenset[str], temperature: float) -> Route:
    """A first opinion; where nobody measures, the likeliest guesser is taken by it."""
    kind = KINDS[name]
    order = _known(tuple(dict.fromkeys((*likeliest, *kind.order))), at_hand - {"auto"})
    why = kind.why
    if temperature > HOT and "plain" in order:
        order = ("plain", *(variant for variant in order if variant != "plain"))
        why = f"at temperature {temperature:g} few guesses hold"
    variant = "auto" if "auto" in at_hand else next((each for each in order if each != "plain"), "plain")
    return Route(name, variant, _budget(variant, budget), f"{why}, so {_in_words(order)}", order)


def _in_words(order: tuple[str, ...]) -> str:
    first, *others = order
    if first == "plain":
        return "nobody guesses until it pays"
    then = f", then {others[0]}" if others and others[0] != "plain" else ""
    return f"{first} is tried first{then}"


def _known(variants: tuple[str, ...], at_hand: frozenset[str]) -> tuple[str, ...]:
    return tuple(variant for variant in variants if variant in at_hand)


def _budget(variant: str, budget: int) -> int:
    return budget if variant != "plain" else 0
