"""`specchat bench inspect`: what a head or a model is, and whether it fits a target, in labelled lines."""

from __future__ import annotations

from collections.abc import Iterator

import click

from specchat.cli.completion import complete_models
from specchat.drafters.heads.detect import inspect_head, target_dimensions
from specchat.drafters.heads.selftest import load_selected_head, self_test
from specchat.drafters.heads.spec import HeadSpec, mismatches
from specchat.errors import ModelError, UsageError
from specchat.hub.architecture import HEAD
from specchat.hub.catalog import find_entry
from specchat.hub.find_models import HEAD_ROLE, find_model
from specchat.hub.local_models import LocatedModel, locate_model
from specchat.weights.gguf.gguf_file import is_gguf
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_bench.memory_notes import evidence_of
from specchat_bench.pairing import pair_member, pair_warnings

Lines = Iterator[tuple[str, str]]  # a label and what stands beside it


@click.command()
@click.argument("head", shell_complete=complete_models)
@click.option("--target", help="The target: embedded, a folder, or a hub id.", shell_complete=complete_models)
@click.option("--test", is_flag=True, help="Load both, and measure how often the head agrees with the target.")
def inspect(head: str, target: str | None, test: bool) -> None:
    """Show what a head is, how it was detected, and whether it fits a target; or whether a model fits as its draft.

    HEAD is a folder, a file, a hub id, or a head that is part of specchat, such as embedded/eagle3.
    """
    if test and not target:
        raise UsageError("--test compares a head with a target: add --target")
    last_label = ""
    for label, line in report_lines(head, target, is_tested=test):
        print(f"  {'' if label == last_label else label:<9} {line}" if label else line)
        last_label = label


def report_lines(source: str, target: str | None, *, is_tested: bool) -> Lines:
    """The name, and what is known of it. ModelError for a head that does not fit."""
    if located := _find_model_or_draft(source, target):
        yield "", located.name
        yield from _model_lines(located, target)
        return
    spec = inspect_head(find_model(source, HEAD_ROLE))
    yield "", source
    yield from _head_lines(spec)
    if not target:
        return
    dimensions = target_dimensions(find_model(target))
    if reasons := mismatches(spec, dimensions):
        raise ModelError(f"{source} does not fit {target}: {'; '.join(reasons)}")
    sizes = f"{dimensions.layers} layers, hidden size {dimensions.hidden_size}, vocabulary {dimensions.vocab_size}"
    yield "fits", f"{target}: {sizes}"
    if is_tested:
        yield "agrees", _agreement(spec, target)


def _find_model_or_draft(source: str, target: str | None) -> LocatedModel | None:
    """A model of the catalog, or a complete model on this disk when a target is given; else None.

    A checkpoint that contains MTP layers is both a model and a head, and counts as a head.
    """
    try:
        located = locate_model(source)
    except ModelError:
        return None
    if located.folder is None or is_gguf(located.folder):
        return located
    if target is None or located.architecture.family == HEAD:
        return None
    try:
        inspect_head(located.folder)
    except ModelError:
        return located
    return None


def _model_lines(located: LocatedModel, target: str | None) -> Lines:
    architecture = located.architecture
    yield "is", f"a {architecture.family} model of {architecture.layers} layers, {evidence_of(located)}"
    window = architecture.max_position_embeddings
    yield "has", f"{architecture.parameters / 1e6:.4g} M parameters, context window {window}"
    yield "memory", f"'specchat vram {located.name}' shows what it takes, and whether that fits here"
    if entry := find_entry(located.name):
        yield "licence", entry.licence
        if entry.not_recommended:
            yield "advice", f"not recommended: {entry.not_recommended}"
        yield from (("head", f"{head.id} ({head.kind})") for head in entry.heads)
        yield from (("draft", draft) for draft in entry.draft_models)
    if target:
        target_model = locate_model(target)
        warnings = list(pair_warnings(pair_member(located), pair_member(target_model)))
        yield from (("warning", line) for line in warnings)
        if not warnings:
            yield "fits", f"{target_model.name}, as its draft"


def _head_lines(spec: HeadSpec) -> Lines:
    yield "is", f"{spec.format} ({spec.kind})"
    yield from (("detected", line) for line in spec.evidence)
    if spec.target_hidden_size:
        yield "reads", f"hidden states of size {spec.target_hidden_size} {_layer_names(spec)}"
    if spec.target_vocab_size:
        share = f"{spec.draft_vocab_size} of {spec.target_vocab_size} tokens"
        yield "drafts", f"{share}, context window {spec.context_window}"
    yield from (("warning", line) for line in spec.warnings)
    if spec.variants:
        yield "ambiguous", f"{len(spec.variants) + 1} config variants; a self-test with the target chooses one"
    if spec.unsupported_reason:
        yield "error", f"not supported yet: {spec.unsupported_reason}"


def _layer_names(spec: HeadSpec) -> str:
    if spec.hidden_state_layers is None:
        return "after layers 2, L/2 and L-3"
    names = ["after the final norm" if layer < 0 else f"after layer {layer}" for layer in spec.hidden_state_layers]
    return ", ".join(names)


def _agreement(spec: HeadSpec, target: str) -> str:
    model = load_model(find_model(target), LoadOptions())
    head = load_selected_head(spec, model, None, model.pool.layout.device)
    agreement = self_test(head, model)
    shares = ", ".join(f"{share:.0%}" for share in agreement.greedy_by_depth)
    layers = head.hidden_state_layers
    return f"{shares} of {agreement.positions} positions, by depth; hidden states of layers {layers}"
