"""Where a request goes: which drafter answers it, and why.

Routing looks at words and names only. It never sees a model, so it can be tested with strings.
"""

from __future__ import annotations

from dataclasses import dataclass

from specchat.chat.request import Request
from specchat.errors import ProfileError
from specchat.profile import VARIANTS


@dataclass(frozen=True)
class Route:
    """Who drafts, how much at most, and the reason in words."""

    variant: str
    budget: int
    reason: str


def choose_route(request: Request, variant: str, budget: int, has_draft: bool) -> Route:
    """The route of a request: a pinned variant as it is, else lookup first and the draft model behind it."""
    wanted = request.variant or variant
    if wanted not in VARIANTS:
        raise ProfileError(f"unknown variant {wanted!r}; known are {', '.join(VARIANTS)}")
    if wanted == "draft" and not has_draft:
        raise ProfileError("variant 'draft' needs a draft model; name one with --draft or under models.draft")
    if wanted != "auto":
        return Route(wanted, budget if wanted != "plain" else 0, "pinned")
    what = "the attached file" if request.files else "the text so far"
    if not has_draft:
        return Route("lookup", budget, f"auto: repeats of {what} are copied; no draft model is loaded")
    return Route("auto", budget, f"repeats of {what} are copied, the rest is guessed by the small model")
