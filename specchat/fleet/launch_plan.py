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
from specchat.fleet.installed_servers import version_numbers
from specchat.models.context_window import trained_context_window
from specchat.profile import Profile

EMBEDDED = Path(__file__).parents[1] / "embedded"
LOOPBACK = "127.0.0.1"
DOCUMENTED_VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23", "tgi": "3.3", "trtllm": "1.2.1", "llama.cpp": "b10269"}
SERVER_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "TGI", "trtllm": "TensorRT-LLM", "llama.cpp": "llama.cpp"}
TRTLLM_FILE = "specchat-trtllm.yaml"
MAX_TENSOR_PARALLEL_SIZE = 8  # cards of one machine

# Most guesses in a pass, a chain in every server: where vLLM and SGLang measured the best of each kind, for one user.
NUM_SPECULATIVE_TOKENS = {
    "ngram": 5,
    "suffix": 16,
    "draft": 5,
    "eagle3": 4,
    "eagle": 3,
    "medusa": 3,
    "mtp": 1,
    "dflash": 8,
}
SGLANG_NGRAM_DRAFT_TOKENS = "16"  # SGLang guesses a tree of n-grams, and so wide
HEAD_KINDS = ("eagle3", "dflash", "medusa", "mtp", "eagle")  # the longer word first: an eagle3 is no eagle
METHOD_BY_VARIANT = {"plain": "none", "lookup": "ngram", "suffix": "suffix", "draft": "draft"}


@dataclass(frozen=True)
class SpeculativeConfig:
    """Who guesses in a server, from what, and at most how many tokens."""

    method: str  # none, or a key of DEPTHS
    model: str = ""
    num_speculative_tokens: int = 0
    note: str = ""


@dataclass(frozen=True)
class ServerConfig:
    """What a server is to serve, and how."""

    target: str
    speculative_config: SpeculativeConfig
    context_tokens: int
    dtype: str = "auto"
    tensor_parallel_size: int = 1


@dataclass(frozen=True)
class LaunchPlan:
    """A command, the files that it reads, and what is to be known of it."""

    server: str
    version: str
    is_installed: bool
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()


def resolve_server_config(profile: Profile, tensor_parallel_size: int | None = None) -> ServerConfig:
    """What a profile asks for; `cards` over which weights are split, None: as few as they fit."""
    models = profile.models
    target = str(EMBEDDED / "target") if models.target == "embedded" else models.target
    context = min(profile.limits.context, trained_context_window(models.target) or profile.limits.context)
    return ServerConfig(
        target,
        speculative_config_for(profile),
        context,
        models.dtype,
        tensor_parallel_size or tensor_parallel_size_for(models.target, context),
    )


def speculative_config_for(profile: Profile) -> SpeculativeConfig:
    """The nearest that servers have: a head, else a draft model, else n-grams of the text."""
    variant, models = profile.speculation.variant, profile.models
    is_embedded = models.target == "embedded"
    heads = {_head_kind(head): head for head in models.heads if head != "embedded"}
    if is_embedded and "embedded" in models.heads:
        heads |= {kind: str(EMBEDDED / kind) for kind in ("eagle3", "medusa", "eagle") if kind not in heads}
    draft = models.draft if models.draft != "embedded" else str(EMBEDDED / "draft") if is_embedded else ""
    kind, note = METHOD_BY_VARIANT.get(variant, variant), ""
    if kind not in ("none", *NUM_SPECULATIVE_TOKENS):
        kind = next((each for each in HEAD_KINDS if each in heads), "draft" if draft else "ngram")
        note = "" if variant == "auto" else f"no server has {variant}; {kind} comes nearest"
    if kind == "none":
        return SpeculativeConfig("none")
    source = draft if kind == "draft" else heads.get(kind, "")
    if not source and kind not in ("ngram", "suffix", "mtp"):
        return SpeculativeConfig(
            "ngram",
            num_speculative_tokens=_num_speculative_tokens("ngram", profile),
            note=f"the profile names no {kind}; n-grams need none",
        )
    return SpeculativeConfig(kind, source, _num_speculative_tokens(kind, profile), note)


def _num_speculative_tokens(method: str, profile: Profile) -> int:
    return min(NUM_SPECULATIVE_TOKENS[method], profile.speculation.budget)


def _head_kind(head: str) -> str:
    """What a head is, by its name or its config; most of those that are published are EAGLE-3."""
    config = Path(head).expanduser() / "config.json"
    said = head + (config.read_text(encoding="utf-8") if config.is_file() else "")
    return next((kind for kind in HEAD_KINDS if kind in said.lower().replace("eagle-3", "eagle3")), "eagle3")


def tensor_parallel_size_for(target: str, context_tokens: int) -> int:
    """Over how many cards of this machine the weights are to be split: as few as they fit, by the memory planner."""
    from specchat.hub.local_models import locate_model
    from specchat.hub.machine import detect_gpus
    from specchat.hub.memory_plan import QuantizedModel, plan_memory

    room = [card.free_bytes for card in detect_gpus()]
    if len(room) < 2:
        return 1
    try:
        total = plan_memory(QuantizedModel(locate_model(target).architecture, "bf16"), None, context_tokens).total_bytes
    except SpecchatError:
        return 1  # nothing is known of it before it is downloaded
    split = 1
    while split < min(len(room), MAX_TENSOR_PARALLEL_SIZE) and total > split * min(room):
        split *= 2
    return min(split, len(room))


def plan_launch(server: str, server_config: ServerConfig, installed_version: str | None) -> LaunchPlan:
    """The launch line of a server, for the version that is installed (None: for the newest that was read about)."""
    version = DOCUMENTED_VERSIONS[server] if installed_version is None else installed_version
    launch = COMMAND_BUILDERS[server](server_config, version or DOCUMENTED_VERSIONS[server])
    notes = (
        *((server_config.speculative_config.note,) if server_config.speculative_config.note else ()),
        *launch.notes,
    )
    return LaunchPlan(server, version, installed_version is not None, launch.command, launch.files, notes)


@dataclass(frozen=True)
class _ServerCommand:
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()


def _vllm_command(server_config: ServerConfig, version: str) -> _ServerCommand:
    """`vllm serve`; one JSON object of guesses since 0.8.2, draft models again after 0.10, no Medusa in 0.33."""
    release, guesses, notes = version_numbers(version), server_config.speculative_config, list[str]()
    lacks_draft = guesses.method == "draft" and (0, 8, 2) <= release < (0, 11)
    if lacks_draft or (guesses.method == "medusa" and release >= (0, 33)):
        notes.append(f"vLLM {version} has no {guesses.method}; n-grams guess instead")
        guesses = SpeculativeConfig("ngram", num_speculative_tokens=NUM_SPECULATIVE_TOKENS["ngram"])
    command = ["vllm", "serve", server_config.target, "--host", LOOPBACK, "--port", "8000"]
    command += ["--max-model-len", str(server_config.context_tokens)]
    command += ["--dtype", server_config.dtype] if server_config.dtype != "auto" else []
    command += (
        ["--tensor-parallel-size", str(server_config.tensor_parallel_size)]
        if server_config.tensor_parallel_size > 1
        else []
    )
    if guesses.method == "none":
        return _ServerCommand(tuple(command), notes=tuple(notes))
    if release < (0, 8, 2):
        source = guesses.model or "[ngram]"
        command += ["--speculative-model", source, "--num-speculative-tokens", str(guesses.num_speculative_tokens)]
        command += ["--ngram-prompt-lookup-max", "4"] if source == "[ngram]" else []
        return _ServerCommand(tuple(command), notes=tuple(notes))
    config: dict[str, object] = {"method": "draft_model" if guesses.method == "draft" else guesses.method}
    config |= {"model": guesses.model} if guesses.model else {}
    config |= {"num_speculative_tokens": guesses.num_speculative_tokens}
    config |= {"prompt_lookup_max": 4, "prompt_lookup_min": 2} if guesses.method == "ngram" else {}
    command += ["--speculative-config", json.dumps(config)]
    command += ["--per-request-spec-decode-metrics", "summary"] if release >= (0, 29) else []
    return _ServerCommand(tuple(command), notes=tuple(notes))


def _sglang_command(server_config: ServerConfig, _version: str) -> _ServerCommand:
    """`sglang.launch_server`; a chain is topk 1, where draft tokens count the sure one as well."""
    guesses, notes = server_config.speculative_config, tuple[str, ...]()
    command = ["python3", "-m", "sglang.launch_server", "--model-path", server_config.target, "--host", LOOPBACK]
    command += ["--port", "30000", "--context-length", str(server_config.context_tokens), "--enable-metrics"]
    command += ["--dtype", server_config.dtype] if server_config.dtype != "auto" else []
    command += ["--tp-size", str(server_config.tensor_parallel_size)] if server_config.tensor_parallel_size > 1 else []
    algorithms = {"draft": "STANDALONE", "eagle3": "EAGLE3", "eagle": "EAGLE", "mtp": "NEXTN", "dflash": "DFLASH"}
    if guesses.method == "none":
        return _ServerCommand(tuple(command))
    if guesses.method not in algorithms:
        if guesses.method == "medusa":
            notes = ("SGLang has no Medusa; n-grams guess instead",)
        command += ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", SGLANG_NGRAM_DRAFT_TOKENS]
        return _ServerCommand(tuple(command), notes=notes)
    command += ["--speculative-algorithm", algorithms[guesses.method]]
    command += ["--speculative-draft-model-path", guesses.model] if guesses.model else []
    if guesses.method != "dflash":  # a block has the length it was trained for
        command += ["--speculative-num-steps", str(guesses.num_speculative_tokens), "--speculative-eagle-topk", "1"]
        command += ["--speculative-num-draft-tokens", str(guesses.num_speculative_tokens + 1)]
    return _ServerCommand(tuple(command))


def _tgi_command(server_config: ServerConfig, _version: str) -> _ServerCommand:
    """`text-generation-launcher`; it guesses by n-grams, or by the Medusa heads of a model that has them."""
    guesses, notes = server_config.speculative_config, tuple[str, ...]()
    command = ["text-generation-launcher", "--model-id", server_config.target, "--hostname", LOOPBACK, "--port", "8080"]
    command += ["--max-total-tokens", str(server_config.context_tokens)]
    command += ["--dtype", server_config.dtype] if server_config.dtype != "auto" else []
    command += (
        ["--num-shard", str(server_config.tensor_parallel_size)] if server_config.tensor_parallel_size > 1 else []
    )
    if guesses.method == "none":
        return _ServerCommand(tuple(command))
    if guesses.method == "medusa":
        command[2] = guesses.model
        notes = ("TGI loads Medusa heads as a model, which names the one beneath it",)
    elif guesses.method not in ("ngram", "suffix"):
        notes = (f"TGI has no {guesses.method}; n-grams guess instead",)
    return _ServerCommand((*command, "--speculate", str(guesses.num_speculative_tokens)), notes=notes)


def _trtllm_command(server_config: ServerConfig, version: str) -> _ServerCommand:
    """`trtllm-serve`; guesses stand in a file."""
    guesses, notes = server_config.speculative_config, tuple[str, ...]()
    command = ["trtllm-serve", server_config.target, "--host", LOOPBACK, "--port", "8000", "--backend", "pytorch"]
    command += ["--max_seq_len", str(server_config.context_tokens)]
    command += ["--tp_size", str(server_config.tensor_parallel_size)] if server_config.tensor_parallel_size > 1 else []
    if guesses.method == "none":
        return _ServerCommand(tuple(command))
    kinds = {"draft": "DraftTarget", "eagle3": "Eagle3", "mtp": "MTP", "dflash": "DFlash"}
    lines = ["speculative_config:", f"  decoding_type: {kinds.get(guesses.method, 'NGram')}"]
    if guesses.method == "mtp":
        lines.append(f"  num_nextn_predict_layers: {guesses.num_speculative_tokens}")
    elif guesses.method in kinds:
        name = "speculative_model" if version_numbers(version) >= (1, 2) else "speculative_model_dir"
        lines += [f"  max_draft_len: {guesses.num_speculative_tokens}", f"  {name}: {json.dumps(guesses.model)}"]
    else:
        lines += [f"  max_draft_len: {guesses.num_speculative_tokens}", "  max_matching_ngram_size: 4"]
        if guesses.method not in ("ngram", "suffix"):
            notes = (f"TensorRT-LLM has no {guesses.method}; n-grams guess instead",)
    return _ServerCommand(
        (*command, "--extra_llm_api_options", TRTLLM_FILE), {TRTLLM_FILE: "\n".join(lines) + "\n"}, notes
    )


def _llama_cpp_command(server_config: ServerConfig, version: str) -> _ServerCommand:
    """`llama-server`, whose models are GGUF files; options were renamed when guesses got types (build 9235)."""
    guesses, notes = server_config.speculative_config, list[str]()
    command = [
        "llama-server",
        "-m",
        _gguf_path(server_config.target),
        "--host",
        LOOPBACK,
        "--port",
        "8080",
        "-c",
        str(server_config.context_tokens),
    ]
    command += ["--metrics"]
    if not server_config.target.endswith(".gguf"):
        notes.append("its models are GGUF files; its 'convert_hf_to_gguf.py FOLDER --outfile FILE.gguf' makes them")
    build = version.removeprefix("b")
    is_new = not build.isdigit() or int(build) >= 9235
    types = {"draft": "draft-simple", "eagle3": "draft-eagle3", "mtp": "draft-mtp", "dflash": "draft-dflash"}
    if guesses.method == "none":
        return _ServerCommand(tuple(command), notes=tuple(notes))
    kind = guesses.method if guesses.method in types and (is_new or guesses.method == "draft") else "ngram"
    if kind == "ngram" and guesses.method not in ("ngram", "suffix"):
        notes.append(f"llama.cpp {version} has no {guesses.method}; n-grams guess instead")
    if kind == "ngram":
        return _ServerCommand((*command, "--spec-type", "ngram-mod"), notes=tuple(notes))
    command += ["-md", _gguf_path(guesses.model)] if guesses.model else []
    command += ["--spec-type", types[kind], "--spec-draft-n-max"] if is_new else ["--draft-max"]
    return _ServerCommand((*command, str(guesses.num_speculative_tokens)), notes=tuple(notes))


def _gguf_path(model: str) -> str:
    return model if model.endswith(".gguf") else f"{Path(model).name}.gguf"


COMMAND_BUILDERS: Mapping[str, Callable[[ServerConfig, str], _ServerCommand]] = {
    "vllm": _vllm_command, "sglang": _sglang_command, "tgi": _tgi_command, "trtllm": _trtllm_command, "llama.cpp": _llama_cpp_command,
}  # fmt: skip
