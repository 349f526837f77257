"""Who can guess ahead, each in one line: for `--variant`, the pickers of the front ends and the docs alike.

A name, not a promise: whether a guesser can run follows from the loaded models, and the router says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.plugins.discovery import find_extensions


@dataclass(frozen=True)
class DrafterInfo:
    """One way to guess ahead, and what must be loaded for it ("" when the target alone is enough)."""

    description: str
    needs: str = ""


AUTO, PLAIN = "auto", "plain"
DRAFTERS: Mapping[str, DrafterInfo] = {
    AUTO: DrafterInfo("whoever pays most on this machine, nobody included"),
    PLAIN: DrafterInfo("nobody: one token a pass"),
    "lookup": DrafterInfo("repeats of the text are copied"),
    "suffix": DrafterInfo("the longest repeats are copied, from files and earlier answers too"),
    "recycling": DrafterInfo("what the model nearly said before is tried again"),
    "lookahead": DrafterInfo("the model guesses several places ahead in the same pass"),
    "draft": DrafterInfo("a small model", "a draft model; name one with --draft or under models.draft"),
    "exit": DrafterInfo("the first layers of the model itself", "a target that was trained to exit early"),
    "medusa": DrafterInfo("extra heads, one for each place ahead", "a Medusa head trained for this target"),
    "eagle": DrafterInfo("a head that continues the model's last features", "an EAGLE head trained for this target"),
    "eagle3": DrafterInfo("a head that reads three layers of the model", "an EAGLE-3 head trained for this target"),
    "mtp": DrafterInfo("the model's own layers for the tokens after next", "a target whose checkpoint has MTP layers"),
    "dflash": DrafterInfo("a head that fills in a whole block at once", "a DFlash head trained for this target"),
}
DRAFTER_NAMES = tuple(DRAFTERS)


def all_drafters() -> Mapping[str, DrafterInfo]:
    """All of them: ours, and then those of plugins."""
    return {
        **DRAFTERS,
        **{name: DrafterInfo(offer.description) for name, offer in find_extensions("drafters", DRAFTERS).items()},
    }


def plugin_drafters() -> tuple[str, ...]:
    """The names of those that plugins bring."""
    return tuple(find_extensions("drafters", DRAFTERS))
