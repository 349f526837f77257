"""The ways to decode a network of transformers. Knows names and sentences only."""

from dataclasses import dataclass

TREES, CHAINS, OWN_CACHE, STEPWISE = "trees", "chains", "plain over its own cache", "plain"
NOT_DRAFTED, DRAFTS_ARE_CHAINS = "answers are not drafted", "drafts are chains"
LIMITATIONS = {TREES: "", CHAINS: DRAFTS_ARE_CHAINS, OWN_CACHE: NOT_DRAFTED, STEPWISE: NOT_DRAFTED}
RECURRENT = "its recurrent layers have one state and not one for each branch"


@dataclass(frozen=True)
class DecodingForm:
    """How a network is decoded, and why not better. The forms of plugins have other names, and draft chains."""

    name: str = TREES
    reason: str = ""

    @property
    def has_own_cache(self) -> bool:
        """Whether the network keeps its keys, values and states itself."""
        return self.name not in (TREES, CHAINS)

    @property
    def is_of_plugin(self) -> bool:
        return self.name not in LIMITATIONS

    def describe(self) -> str:
        """One line for the user; empty when nothing is missing."""
        limitation = LIMITATIONS.get(self.name, DRAFTS_ARE_CHAINS)
        return f"{limitation}, because {self.reason}" if limitation else ""
