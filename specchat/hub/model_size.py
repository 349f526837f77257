"""Which models are too small for some work, and the sentence about it, for every front end. Reads headers only."""

from specchat.errors import ModelError
from specchat.profile.keys import EMBEDDED, Models

SMALL_PARAMETERS = 500 * 10**6  # of 8 edits of 40 and 80 lines, one of 135 million made none rightly (docs/edits.md)
LARGER_MODEL = "find a larger model: 'specchat setup'"


def parameters_of(models: Models) -> int | None:
    """Those of the target; None for an unknown size, as on a server."""
    from specchat.hub.local_models import locate_model

    try:
        return None if models.is_on_server else locate_model(models.target).architecture.parameters
    except ModelError:
        return None


def is_small(models: Models) -> bool:
    """Whether it is known to be small; the embedded model, which shows the mechanism, does not count."""
    return models.target != EMBEDDED and (parameters_of(models) or SMALL_PARAMETERS) < SMALL_PARAMETERS


def too_small(work: str, advice: str) -> str:
    return f"a model of this size is too small to {work}; {advice}, or {LARGER_MODEL}"
