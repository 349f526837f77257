"""The route of a request: its kind, its drafter, and the reason.

Routing reads words and names only and knows no model, so it can be tested with strings. The route of an `auto` request
is only an order in which to try drafters; the measured costs and acceptance rates decide.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.chat.request import Request
from specchat.chat.request_kinds import first_matching_rule
from specchat.errors import ProfileError
from specchat.plugins.own_plugins import missing_variant
from specchat.profile.drafter_names import all_drafters
from specchat.profile.keys import Profile

PINNED = "pinned"  # the reason of a route whose drafter the user named
HIGH_TEMPERATURE = 1.2  # above this, few draft tokens are accepted
# Not told by words, so no rule of a profile names them: an answer that must call a tool, and one after a result.
TOOL_CALL, TOOL_RESULT = TOOL_KINDS = ("tool_call", "tool_result")


@dataclass(frozen=True)
class KindDefaults:
    """The drafters to try on a kind of request, the most promising first, and the reason in words."""

    reason: str
    drafter_order: tuple[str, ...]


COPYING_DRAFTERS = ("lookup", "suffix")
MODEL_DRAFTERS = ("eagle3", "mtp", "draft")
COPYING_FIRST = (*COPYING_DRAFTERS, *MODEL_DRAFTERS, "plain")
MODELS_FIRST = (*MODEL_DRAFTERS, *COPYING_DRAFTERS, "plain")
PLAIN_FIRST = ("plain", *MODEL_DRAFTERS, *COPYING_DRAFTERS)
KIND_DEFAULTS: Mapping[str, KindDefaults] = {
    "edit": KindDefaults("an edit repeats most of its text", COPYING_FIRST),
    "files": KindDefaults("the answer quotes the given text", COPYING_FIRST),
    "structured": KindDefaults("keys and brackets repeat", COPYING_FIRST),
    "code": KindDefaults("new code is predictable but rarely a copy", MODELS_FIRST),
    "chat": KindDefaults("an explanation is predictable but rarely a copy", MODELS_FIRST),
    "creative": KindDefaults("creative text copies nothing", MODELS_FIRST),
    "short": KindDefaults("the answer is probably short", PLAIN_FIRST),
    TOOL_CALL: KindDefaults("a call repeats names and brackets", COPYING_FIRST),
    TOOL_RESULT: KindDefaults("what follows the result of a tool copies from it", COPYING_FIRST),
}


@dataclass(frozen=True)
class Route:
    """The kind of a request, the drafter, the maximum number of draft tokens per step, and the reason in words.

    With variant `auto` the drafters of `drafter_order`, the most promising first, are measured during the answer.
    """

    kind: str
    variant: str
    budget: int
    reason: str
    drafter_order: tuple[str, ...] = ()


def choose_route(
    request: Request, profile: Profile, available: frozenset[str], auto_candidates: frozenset[str] | None = None
) -> Route:
    """Choose among the available variants; `auto` is one of them when there is a chooser.

    `auto` chooses among `auto_candidates` (None: all available). Raises ProfileError for a variant that is requested by
    name and cannot run with the loaded models.
    """
    temperature = request.sampling(profile.sampling).temperature
    kind = _tool_kind(request)
    if not kind:
        rule = first_matching_rule(profile.routes, request, temperature)
        kind = rule.kind if rule else "chat"
    variant = request.variant or profile.speculation.variant
    budget = profile.speculation.budget
    if variant != "auto":
        check_available(variant, available)
        return Route(kind, variant, _budget(variant, budget), PINNED, (variant,))
    candidates = available if auto_candidates is None else auto_candidates | {"auto"}
    return _auto_route(kind, budget, candidates, temperature)


def _tool_kind(request: Request) -> str:
    """The kind of a request that its tools decide; "" for one that its words decide."""
    if request.forced_schemas:
        return TOOL_CALL
    return TOOL_RESULT if request.tool_results and not request.text.strip() else ""


def check_available(variant: str, available: frozenset[str]) -> None:
    """Raise ProfileError unless this variant is known and can run; the message names what it needs."""
    drafters = all_drafters()
    if variant not in drafters:
        unknown = f"unknown variant {variant!r}; known are {', '.join(drafters)}"
        raise ProfileError(missing_variant(variant) or unknown)
    if variant not in available:
        needs = drafters[variant].needs
        fault = f"needs {needs}" if needs else "cannot run with the loaded models"
        names = ", ".join(_only_available(tuple(drafters), available))
        raise ProfileError(f"variant {variant!r} {fault}; available are {names}")


def _auto_route(kind: str, budget: int, available: frozenset[str], temperature: float) -> Route:
    """The order in which to try drafters; without a chooser, the first drafter of the order is used."""
    defaults = KIND_DEFAULTS[kind]
    order = _only_available(defaults.drafter_order, available - {"auto"})
    reason = defaults.reason
    if temperature > HIGH_TEMPERATURE and "plain" in order:
        order = ("plain", *(variant for variant in order if variant != "plain"))
        reason = f"at temperature {temperature:g} few draft tokens are accepted"
    variant = "auto" if "auto" in available else next((each for each in order if each != "plain"), "plain")
    return Route(kind, variant, _budget(variant, budget), f"{reason}, so {_order_text(order)}", order)


def _order_text(order: tuple[str, ...]) -> str:
    first, *others = order
    if first == "plain":
        return "plain decoding comes first"
    second = f", then {others[0]}" if others and others[0] != "plain" else ""
    return f"{first} is assumed to draft best{second}"


def _only_available(variants: tuple[str, ...], available: frozenset[str]) -> tuple[str, ...]:
    return tuple(variant for variant in variants if variant in available)


def _budget(variant: str, budget: int) -> int:
    return budget if variant != "plain" else 0
