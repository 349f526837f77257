"""The table of the built-in drafters: names and one line of text each, for `--variant`, pickers, docs and the registry.

A name in this table is no promise: whether a drafter can run depends on the loaded models, and the router checks that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension


@dataclass(frozen=True)
class DrafterInfo:
    """A row of the table. An empty `needs` means that the drafter needs only the target."""

    description: str
    needs: str = ""  # the required model or head, for error messages
    builder: str = ""  # "module:function", called by drafters/registry.py
    is_auto_candidate: bool = True  # whether `auto` may choose it


AUTO, PLAIN = "auto", "plain"
DRAFTERS: Mapping[str, DrafterInfo] = {
    AUTO: DrafterInfo("the drafter that is fastest on this machine, or none", is_auto_candidate=False),
    PLAIN: DrafterInfo(
        "no drafter (plain decoding): one token per step",
        builder="specchat.drafters.registry:build_plain",
    ),
    "lookup": DrafterInfo(
        "copies repeats of the text (prompt lookup)", builder="specchat.drafters.prompt_lookup:build",
        is_auto_candidate=False,  # `suffix` finds the same repeats, and more
    ),
    "suffix": DrafterInfo(
        "copies the longest repeats, from files and earlier answers too (suffix decoding)",
        builder="specchat.drafters.suffix_decoding:build",
    ),
    "draft": DrafterInfo(
        "a small draft model", "a draft model; name one with --draft or under models.draft",
        builder="specchat.drafters.draft_model:build",
    ),
    "eagle3": DrafterInfo(
        "a head that reads the hidden states of three layers", "an EAGLE-3 head trained for this target",
        builder="specchat.drafters.eagle.eagle_drafter:build_eagle3",
    ),
    "mtp": DrafterInfo(
        "multi-token prediction layers of the model", "a target whose checkpoint has MTP layers",
        builder="specchat.drafters.eagle.eagle_drafter:build_mtp",
    ),
}  # fmt: skip
DRAFTER_NAMES = tuple(DRAFTERS)


def all_drafters() -> Mapping[str, DrafterInfo]:
    return {**DRAFTERS, **{name: DrafterInfo(extension.description) for name, extension in _extensions().items()}}


def plugin_drafters() -> tuple[str, ...]:
    return tuple(_extensions())


def _extensions() -> Mapping[str, Extension]:
    return find_extensions("drafters", DRAFTERS)
