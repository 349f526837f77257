"""The ways to decode a network of transformers, the best first. Knows names and sentences only."""

from dataclasses import dataclass

TREES, CHAINS, OWN_CACHE, STEPWISE = "trees", "chains", "chains over its own cache", "plain"
FORMS = (TREES, CHAINS, OWN_CACHE, STEPWISE)
LIMITATIONS = {CHAINS: "drafts are chains", OWN_CACHE: "drafts are chains", STEPWISE: "answers are not drafted"}
RECURRENT = "its recurrent layers have one state and not one for each branch"


@dataclass(frozen=True)
class DecodingForm:
    """How a network is decoded, and why not better."""

    name: str = TREES
    reason: str = ""

    def describe(self) -> str:
        """One line for the user; empty when nothing is missing."""
        return f"{LIMITATIONS[self.name]}, because {self.reason}" if self.name in LIMITATIONS else ""
