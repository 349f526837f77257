"""Who can guess ahead, each in one line: for `--variant`, the pickers of the front ends and the docs alike.

A name, not a promise: whether a guesser can run follows from the loaded models, and the router says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.plugins.discovery import offers


@dataclass(frozen=True)
class Guesser:
    """One way to guess ahead, and what must be loaded for it ("" when the target alone is enough)."""

    what: str
    needs: str = ""


AUTO, PLAIN = "auto", "plain"
GUESSERS: Mapping[str, Guesser] = {
    AUTO: Guesser("whoever pays most on this machine, nobody included"),
    PLAIN: Guesser("nobody: one token a pass"),
    "lookup": Guesser("repeats of the text are copied"),
    "suffix": Guesser("the longest repeats are copied, from files and earlier answers too"),
    "recycling": Guesser("what the model nearly said before is tried again"),
    "lookahead": Guesser("the model guesses several places ahead in the same pass"),
    "draft": Guesser("a small model", "a draft model; name one with --draft or under models.draft"),
    "exit": Guesser("the first layers of the model itself", "a target that was trained to exit early"),
    "medusa": Guesser("extra heads, one for each place ahead", "a Medusa head trained for this target"),
    "eagle": Guesser("a head that continues the model's last features", "an EAGLE head trained for this target"),
    "eagle3": Guesser("a head that reads three layers of the model", "an EAGLE-3 head trained for this target"),
    "mtp": Guesser("the model's own layers for the tokens after next", "a target whose checkpoint has MTP layers"),
    "dflash": Guesser("a head that fills in a whole block at once", "a DFlash head trained for this target"),
}
VARIANTS = tuple(GUESSERS)


def every_guesser() -> Mapping[str, Guesser]:
    """All of them: ours, and then those of plugins."""
    return {**GUESSERS, **{name: Guesser(offer.what) for name, offer in offers("drafters", GUESSERS).items()}}


def added_guessers() -> tuple[str, ...]:
    """The names of those that plugins bring."""
    return tuple(offers("drafters", GUESSERS))
