"""`specchat models inspect`: what head or model lies in a folder, before anything is loaded from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from specchat.errors import ModelError, UsageError
from specchat.hub.catalog import find_entry
from specchat.hub.local_models import LocatedModel, locate_model
from specchat.hub.memory_plan import kv_bytes_per_token, weight_bytes
from specchat.hub.pairing import pair_member, pair_warnings
from specchat.hub.recommend import format_gib
from specchat.hub.safetensors_headers import is_whole_model

if TYPE_CHECKING:
    from specchat.heads.spec import HeadSpec


@click.command()
@click.argument("head")
@click.option("--target", help="The model it is to draft for: embedded, a folder, or a hub id.")
@click.option("--test", is_flag=True, help="Load both, and count how often the head guesses what the target says.")
def inspect(head: str, target: str | None, test: bool) -> None:
    """Say what head this is, by what it was recognised, and whether it fits a target; or how a model does as its draft.

    HEAD is a folder, a file, a hub id, or embedded/eagle3, embedded/eagle, embedded/mtp, embedded/medusa.
    """
    if test and not target:
        raise UsageError("--test compares a head with a target: add --target")
    if found := _find_model_or_draft(head, target):
        _print_labelled_lines(found.name, _model_lines(found, target))
        return
    from specchat.heads.detect import find_head, inspect_head, target_dimensions
    from specchat.heads.spec import mismatches
    from specchat.models.load import find_model

    spec = inspect_head(find_head(head))
    _print_labelled_lines(head, _head_lines(spec))
    if not target:
        return
    facts = target_dimensions(find_model(target))
    if reasons := mismatches(spec, facts):
        raise ModelError(f"{head} does not fit {target}: {'; '.join(reasons)}")
    print(f"  fits      {target}: {facts.layers} layers of width {facts.hidden_size}, {facts.vocab_size} tokens")
    if test:
        _print_self_test(spec, target)


def _find_model_or_draft(source: str, target: str | None) -> LocatedModel | None:
    """A model of the catalog, or a whole one on this disk that is to draft for a target; None for everything else.

    A checkpoint with layers that guess ahead inside is both, and is taken for the head.
    """
    try:
        found = locate_model(source)
    except ModelError:
        return None
    if found.folder is None:
        return found
    if target is None or not is_whole_model(found.folder):
        return None
    from specchat.heads.detect import inspect_head

    try:
        inspect_head(found.folder)
    except ModelError:
        return found
    return None


def _model_lines(found: LocatedModel, target: str | None) -> Iterator[tuple[str, str]]:
    """A model in numbers, and as a draft of a target."""
    anatomy = found.architecture
    yield "is", f"a {anatomy.family} model of {anatomy.layers} layers, {found.evidence}"
    yield "has", f"{anatomy.parameters / 1e6:.4g} M parameters, {format_gib(weight_bytes(anatomy, 'bf16'))} in bf16"
    yield (
        "keeps",
        f"{kv_bytes_per_token(anatomy) / 1024:.3g} KiB of each token, in texts of up to {anatomy.max_position_embeddings}",
    )
    if entry := find_entry(found.name):
        yield "licence", entry.licence
        yield from (("head", f"{head.id} ({head.kind})") for head in entry.heads)
        yield from (("draft", draft) for draft in entry.draft_models)
    if target:
        beside = locate_model(target)
        said = list(pair_warnings(pair_member(found), pair_member(beside)))
        yield from (("beware", line) for line in said)
        if not said:
            yield "fits", f"{beside.name}, as its draft"


def _print_labelled_lines(head: str, lines: Iterator[tuple[str, str]]) -> None:
    print(head)
    shown = ""
    for label, line in lines:
        print(f"  {'' if label == shown else label:<9} {line}")
        shown = label


def _head_lines(spec: HeadSpec) -> Iterator[tuple[str, str]]:
    """What is worth knowing, one label and one line at a time."""
    yield "is", f"{spec.format} ({spec.kind})"
    for line in spec.evidence:
        yield "because", line
    if spec.target_hidden_size:
        yield "reads", f"hidden states of width {spec.target_hidden_size} {_layer_names(spec)}"
    if spec.target_vocab_size:
        yield (
            "drafts",
            f"{spec.draft_vocab_size} of {spec.target_vocab_size} tokens, in texts of up to {spec.context_window}",
        )
    for line in spec.warnings:
        yield "beware", line
    if spec.variants:
        yield "unsure", f"{len(spec.variants) + 1} readings of its config; a self-test beside the target picks one"
    if spec.unsupported_reason:
        yield "but", f"not supported yet: {spec.unsupported_reason}"


def _layer_names(spec: HeadSpec) -> str:
    if spec.hidden_state_layers is None:
        return "after layers 2, half and all but 3"
    names = ["after the final norm" if tap < 0 else f"after layer {tap}" for tap in spec.hidden_state_layers]
    return ", ".join(names)


def _print_self_test(spec: HeadSpec, target: str) -> None:
    from specchat.heads.selftest import select_variant
    from specchat.models.load import LoadOptions, find_model, load_model

    model = load_model(find_model(target), LoadOptions())
    head, agreement = select_variant(spec, model, None, model.pool.layout.device)
    shares = ", ".join(f"{share:.0%}" for share in agreement.greedy_by_depth)
    print(f"  agrees    {shares} of {agreement.positions} places, by how far ahead; read at {head.hidden_state_layers}")
