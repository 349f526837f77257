"""A profile as the launch line of a server, with the guesses that come nearest to those of the profile.

What each server calls things was read in autumn 2026: of vLLM and SGLang in the releases named in READ, of the others
in their documentation. An older release that is installed gets the words of its time where they are known. Nothing is
started here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specchat.errors import SpecchatError
from specchat.fleet.installed_servers import numbers
from specchat.models.context_window import trained_window
from specchat.profile import Profile

EMBEDDED = Path(__file__).parents[1] / "embedded"
LOOPBACK = "127.0.0.1"
READ = {"vllm": "0.33.0", "sglang": "0.5.23", "tgi": "3.3", "trtllm": "1.2.1", "llama.cpp": "b10269"}
NAMES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "TGI", "trtllm": "TensorRT-LLM", "llama.cpp": "llama.cpp"}
TRTLLM_FILE = "specchat-trtllm.yaml"
LARGEST_SPLIT = 8  # cards of one machine

# Most guesses in a pass, a chain in every server: where vLLM and SGLang measured the best of each kind, for one user.
DEPTHS = {"ngram": 5, "suffix": 16, "draft": 5, "eagle3": 4, "eagle": 3, "medusa": 3, "mtp": 1, "dflash": 8}
NGRAM_ROWS = "16"  # SGLang guesses a tree of n-grams, and so wide
HEADS = ("eagle3", "dflash", "medusa", "mtp", "eagle")  # the longer word first: an eagle3 is no eagle
OF_VARIANTS = {"plain": "none", "lookup": "ngram", "suffix": "suffix", "draft": "draft"}


@dataclass(frozen=True)
class Guesses:
    """Who guesses in a server, from what, and at most how many tokens."""

    kind: str  # none, or a key of DEPTHS
    source: str = ""
    tokens: int = 0
    note: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a server is to serve, and how."""

    target: str
    guesses: Guesses
    context: int
    dtype: str = "auto"
    cards: int = 1


@dataclass(frozen=True)
class Launch:
    """A command, the files that it reads, and what is to be known of it."""

    server: str
    version: str
    is_installed: bool
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()


def wanted(profile: Profile, cards: int | None = None) -> Wanted:
    """What a profile asks for; `cards` over which weights are split, None: as few as they fit."""
    models = profile.models
    target = str(EMBEDDED / "target") if models.target == "embedded" else models.target
    context = min(profile.limits.context, trained_window(models.target) or profile.limits.context)
    return Wanted(target, guesses_of(profile), context, models.dtype, cards or cards_for(models.target, context))


def guesses_of(profile: Profile) -> Guesses:
    """The nearest that servers have: a head, else a draft model, else n-grams of the text."""
    variant, models = profile.speculation.variant, profile.models
    is_embedded = models.target == "embedded"
    heads = {_kind_of(head): head for head in models.heads if head != "embedded"}
    if is_embedded and "embedded" in models.heads:
        heads |= {kind: str(EMBEDDED / kind) for kind in ("eagle3", "medusa", "eagle") if kind not in heads}
    draft = models.draft if models.draft != "embedded" else str(EMBEDDED / "draft") if is_embedded else ""
    kind, note = OF_VARIANTS.get(variant, variant), ""
    if kind not in ("none", *DEPTHS):
        kind = next((each for each in HEADS if each in heads), "draft" if draft else "ngram")
        note = "" if variant == "auto" else f"no server has {variant}; {kind} comes nearest"
    if kind == "none":
        return Guesses("none")
    source = draft if kind == "draft" else heads.get(kind, "")
    if not source and kind not in ("ngram", "suffix", "mtp"):
        return Guesses("ngram", tokens=_depth("ngram", profile), note=f"the profile names no {kind}; n-grams need none")
    return Guesses(kind, source, _depth(kind, profile), note)


def _depth(kind: str, profile: Profile) -> int:
    return min(DEPTHS[kind], profile.speculation.budget)


def _kind_of(head: str) -> str:
    """What a head is, by its name or its config; most of those that are published are EAGLE-3."""
    config = Path(head).expanduser() / "config.json"
    said = head + (config.read_text(encoding="utf-8") if config.is_file() else "")
    return next((kind for kind in HEADS if kind in said.lower().replace("eagle-3", "eagle3")), "eagle3")


def cards_for(target: str, context: int) -> int:
    """Over how many cards of this machine the weights are to be split: as few as they fit, by the memory planner."""
    from specchat.hub.local_files import locate
    from specchat.hub.machine import cards
    from specchat.hub.memory_plan import Held, need

    room = [card.free for card in cards()]
    if len(room) < 2:
        return 1
    try:
        total = need(Held(locate(target).anatomy, "bf16"), None, context).total
    except SpecchatError:
        return 1  # nothing is known of it before it is downloaded
    split = 1
    while split < min(len(room), LARGEST_SPLIT) and total > split * min(room):
        split *= 2
    return min(split, len(room))


def plan(server: str, want: Wanted, installed: str | None) -> Launch:
    """The launch line of a server, for the version that is installed (None: for the newest that was read about)."""
    version = READ[server] if installed is None else installed
    launch = BUILDERS[server](want, version or READ[server])
    notes = (*((want.guesses.note,) if want.guesses.note else ()), *launch.notes)
    return Launch(server, version, installed is not None, launch.command, launch.files, notes)


@dataclass(frozen=True)
class _Line:
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()


def _vllm(want: Wanted, version: str) -> _Line:
    """`vllm serve`; one JSON object of guesses since 0.8.2, draft models again after 0.10, no Medusa in 0.33."""
    release, guesses, notes = numbers(version), want.guesses, list[str]()
    lacks_draft = guesses.kind == "draft" and (0, 8, 2) <= release < (0, 11)
    if lacks_draft or (guesses.kind == "medusa" and release >= (0, 33)):
        notes.append(f"vLLM {version} has no {guesses.kind}; n-grams guess instead")
        guesses = Guesses("ngram", tokens=DEPTHS["ngram"])
    command = ["vllm", "serve", want.target, "--host", LOOPBACK, "--port", "8000"]
    command += ["--max-model-len", str(want.context)]
    command += ["--dtype", want.dtype] if want.dtype != "auto" else []
    command += ["--tensor-parallel-size", str(want.cards)] if want.cards > 1 else []
    if guesses.kind == "none":
        return _Line(tuple(command), notes=tuple(notes))
    if release < (0, 8, 2):
        source = guesses.source or "[ngram]"
        command += ["--speculative-model", source, "--num-speculative-tokens", str(guesses.tokens)]
        command += ["--ngram-prompt-lookup-max", "4"] if source == "[ngram]" else []
        return _Line(tuple(command), notes=tuple(notes))
    config: dict[str, object] = {"method": "draft_model" if guesses.kind == "draft" else guesses.kind}
    config |= {"model": guesses.source} if guesses.source else {}
    config |= {"num_speculative_tokens": guesses.tokens}
    config |= {"prompt_lookup_max": 4, "prompt_lookup_min": 2} if guesses.kind == "ngram" else {}
    command += ["--speculative-config", json.dumps(config)]
    command += ["--per-request-spec-decode-metrics", "summary"] if release >= (0, 29) else []
    return _Line(tuple(command), notes=tuple(notes))


def _sglang(want: Wanted, _version: str) -> _Line:
    """`sglang.launch_server`; a chain is topk 1, where draft tokens count the sure one as well."""
    guesses, notes = want.guesses, tuple[str, ...]()
    command = ["python3", "-m", "sglang.launch_server", "--model-path", want.target, "--host", LOOPBACK]
    command += ["--port", "30000", "--context-length", str(want.context), "--enable-metrics"]
    command += ["--dtype", want.dtype] if want.dtype != "auto" else []
    command += ["--tp-size", str(want.cards)] if want.cards > 1 else []
    algorithms = {"draft": "STANDALONE", "eagle3": "EAGLE3", "eagle": "EAGLE", "mtp": "NEXTN", "dflash": "DFLASH"}
    if guesses.kind == "none":
        return _Line(tuple(command))
    if guesses.kind not in algorithms:
        if guesses.kind == "medusa":
            notes = ("SGLang has no Medusa; n-grams guess instead",)
        command += ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", NGRAM_ROWS]
        return _Line(tuple(command), notes=notes)
    command += ["--speculative-algorithm", algorithms[guesses.kind]]
    command += ["--speculative-draft-model-path", guesses.source] if guesses.source else []
    if guesses.kind != "dflash":  # a block has the length it was trained for
        command += ["--speculative-num-steps", str(guesses.tokens), "--speculative-eagle-topk", "1"]
        command += ["--speculative-num-draft-tokens", str(guesses.tokens + 1)]
    return _Line(tuple(command))


def _tgi(want: Wanted, _version: str) -> _Line:
    """`text-generation-launcher`; it guesses by n-grams, or by the Medusa heads of a model that has them."""
    guesses, notes = want.guesses, tuple[str, ...]()
    command = ["text-generation-launcher", "--model-id", want.target, "--hostname", LOOPBACK, "--port", "8080"]
    command += ["--max-total-tokens", str(want.context)]
    command += ["--dtype", want.dtype] if want.dtype != "auto" else []
    command += ["--num-shard", str(want.cards)] if want.cards > 1 else []
    if guesses.kind == "none":
        return _Line(tuple(command))
    if guesses.kind == "medusa":
        command[2] = guesses.source
        notes = ("TGI loads Medusa heads as a model, which names the one beneath it",)
    elif guesses.kind not in ("ngram", "suffix"):
        notes = (f"TGI has no {guesses.kind}; n-grams guess instead",)
    return _Line((*command, "--speculate", str(guesses.tokens)), notes=notes)


def _trtllm(want: Wanted, version: str) -> _Line:
    """`trtllm-serve`; guesses stand in a file."""
    guesses, notes = want.guesses, tuple[str, ...]()
    command = ["trtllm-serve", want.target, "--host", LOOPBACK, "--port", "8000", "--backend", "pytorch"]
    command += ["--max_seq_len", str(want.context)]
    command += ["--tp_size", str(want.cards)] if want.cards > 1 else []
    if guesses.kind == "none":
        return _Line(tuple(command))
    kinds = {"draft": "DraftTarget", "eagle3": "Eagle3", "mtp": "MTP", "dflash": "DFlash"}
    lines = ["speculative_config:", f"  decoding_type: {kinds.get(guesses.kind, 'NGram')}"]
    if guesses.kind == "mtp":
        lines.append(f"  num_nextn_predict_layers: {guesses.tokens}")
    elif guesses.kind in kinds:
        name = "speculative_model" if numbers(version) >= (1, 2) else "speculative_model_dir"
        lines += [f"  max_draft_len: {guesses.tokens}", f"  {name}: {json.dumps(guesses.source)}"]
    else:
        lines += [f"  max_draft_len: {guesses.tokens}", "  max_matching_ngram_size: 4"]
        if guesses.kind not in ("ngram", "suffix"):
            notes = (f"TensorRT-LLM has no {guesses.kind}; n-grams guess instead",)
    return _Line((*command, "--extra_llm_api_options", TRTLLM_FILE), {TRTLLM_FILE: "\n".join(lines) + "\n"}, notes)


def _llama_cpp(want: Wanted, version: str) -> _Line:
    """`llama-server`, whose models are GGUF files; options were renamed when guesses got types (build 9235)."""
    guesses, notes = want.guesses, list[str]()
    command = ["llama-server", "-m", _gguf(want.target), "--host", LOOPBACK, "--port", "8080", "-c", str(want.context)]
    command += ["--metrics"]
    if not want.target.endswith(".gguf"):
        notes.append("its models are GGUF files; its 'convert_hf_to_gguf.py FOLDER --outfile FILE.gguf' makes them")
    build = version.removeprefix("b")
    is_new = not build.isdigit() or int(build) >= 9235
    types = {"draft": "draft-simple", "eagle3": "draft-eagle3", "mtp": "draft-mtp", "dflash": "draft-dflash"}
    if guesses.kind == "none":
        return _Line(tuple(command), notes=tuple(notes))
    kind = guesses.kind if guesses.kind in types and (is_new or guesses.kind == "draft") else "ngram"
    if kind == "ngram" and guesses.kind not in ("ngram", "suffix"):
        notes.append(f"llama.cpp {version} has no {guesses.kind}; n-grams guess instead")
    if kind == "ngram":
        return _Line((*command, "--spec-type", "ngram-mod"), notes=tuple(notes))
    command += ["-md", _gguf(guesses.source)] if guesses.source else []
    command += ["--spec-type", types[kind], "--spec-draft-n-max"] if is_new else ["--draft-max"]
    return _Line((*command, str(guesses.tokens)), notes=tuple(notes))


def _gguf(model: str) -> str:
    return model if model.endswith(".gguf") else f"{Path(model).name}.gguf"


BUILDERS: Mapping[str, Callable[[Wanted, str], _Line]] = {
    "vllm": _vllm, "sglang": _sglang, "tgi": _tgi, "trtllm": _trtllm, "llama.cpp": _llama_cpp,
}  # fmt: skip
