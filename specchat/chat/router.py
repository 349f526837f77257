"""Where a request goes: what kind it is, who drafts for it, and why.

Routing looks at words and names only. It never sees a model, so it can be tested with strings. The route of an `auto`
request is a first opinion: it says in which order drafters promise something, and what they cost here decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.chat.request import Request
from specchat.chat.request_kinds import first_matching_rule
from specchat.errors import ProfileError
from specchat.profile import Profile, RouteRule, all_drafters

PINNED = "pinned"  # the reason of a route that somebody asked for by name
HIGH_TEMPERATURE = 1.2  # above this temperature tokens are drawn so wildly that guesses seldom hold
FALLBACK_RULE = RouteRule(kind="chat")


@dataclass(frozen=True)
class KindDefaults:
    """What is known of a kind of request: why, in words, and who promises most, the likeliest first."""

    reason: str
    drafter_order: tuple[str, ...]


COPYING_DRAFTERS = ("lookup", "suffix")
MODEL_DRAFTERS = ("eagle3", "mtp", "eagle", "dflash", "draft", "medusa", "exit")
LEARNING_DRAFTERS = ("recycling", "lookahead")
COPYING_FIRST = (*COPYING_DRAFTERS, *MODEL_DRAFTERS, *LEARNING_DRAFTERS, "plain")
MODELS_FIRST = (*MODEL_DRAFTERS, *COPYING_DRAFTERS, *LEARNING_DRAFTERS, "plain")
PLAIN_FIRST = ("plain", *MODEL_DRAFTERS, *COPYING_DRAFTERS, *LEARNING_DRAFTERS)
KIND_DEFAULTS: Mapping[str, KindDefaults] = {
    "edit": KindDefaults("an edit repeats most of its text", COPYING_FIRST),
    "files": KindDefaults("the answer quotes what it was given to read", COPYING_FIRST),
    "structured": KindDefaults("keys and brackets repeat", COPYING_FIRST),
    "code": KindDefaults("new code is foreseeable but seldom a copy", MODELS_FIRST),
    "chat": KindDefaults("an explanation is foreseeable but seldom a copy", MODELS_FIRST),
    "creative": KindDefaults("invented text is no copy of anything", MODELS_FIRST),
    "short": KindDefaults("the answer is probably short", PLAIN_FIRST),
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
    drafter_order: tuple[str, ...] = ()


def choose_route(
    request: Request, profile: Profile, available: frozenset[str], auto_candidates: frozenset[str] | None = None
) -> Route:
    """The route of a request among the variants at hand; `auto` is one of them when somebody is there to measure.

    `candidates` are those among whom `auto` chooses (None: all at hand).
    Raises ProfileError for a variant that is asked for by name and cannot run with the loaded models.
    """
    sampling = profile.sampling.temperature if request.temperature is None else request.temperature
    rule = first_matching_rule(profile.routes, request, sampling) or FALLBACK_RULE
    wanted = request.variant or profile.speculation.variant
    budget = profile.speculation.budget
    if wanted != "auto":
        check_available(wanted, available)
        return Route(rule.kind, wanted, _budget(wanted, budget), PINNED, (wanted,))
    budget = min(budget, rule.budget or budget)
    first = next((each for each in rule.variants if each == "auto" or each in available), rule.variants[0])
    if first == "auto":
        likeliest = (*rule.variants, *profile.drafter_order(rule.kind))
        asked = available if auto_candidates is None else auto_candidates | {"auto"}
        return _auto_route(rule.kind, likeliest, budget, asked, sampling)
    check_available(first, available)
    return Route(rule.kind, first, _budget(first, budget), f"the profile wants {first} for {rule.kind}", (first,))


def check_available(variant: str, available: frozenset[str]) -> None:
    """ProfileError, with what to load, unless this variant is known and can run."""
    guessers = all_drafters()
    if variant not in guessers:
        raise ProfileError(f"unknown variant {variant!r}; known are {', '.join(guessers)}")
    if variant in available:
        return
    needs = guessers[variant].needs
    why = f"needs {needs}" if needs else "cannot run with the loaded models"
    raise ProfileError(
        f"variant {variant!r} {why}; at hand are {', '.join(_only_available(tuple(guessers), available))}"
    )


def _auto_route(
    name: str, likeliest: tuple[str, ...], budget: int, at_hand: frozenset[str], temperature: float
) -> Route:
    """A first opinion; where nobody measures, the likeliest guesser is taken by it."""
    kind = KIND_DEFAULTS[name]
    order = _only_available(tuple(dict.fromkeys((*likeliest, *kind.drafter_order))), at_hand - {"auto"})
    why = kind.reason
    if temperature > HIGH_TEMPERATURE and "plain" in order:
        order = ("plain", *(variant for variant in order if variant != "plain"))
        why = f"at temperature {temperature:g} few guesses hold"
    variant = "auto" if "auto" in at_hand else next((each for each in order if each != "plain"), "plain")
    return Route(name, variant, _budget(variant, budget), f"{why}, so {_order_text(order)}", order)


def _order_text(order: tuple[str, ...]) -> str:
    first, *others = order
    if first == "plain":
        return "nobody guesses until it pays"
    then = f", then {others[0]}" if others and others[0] != "plain" else ""
    return f"{first} is tried first{then}"


def _only_available(variants: tuple[str, ...], at_hand: frozenset[str]) -> tuple[str, ...]:
    return tuple(variant for variant in variants if variant in at_hand)


def _budget(variant: str, budget: int) -> int:
    return budget if variant != "plain" else 0
