"""The command that starts a server for a profile, with the speculative method closest to the profile's drafter.

The option names are as of autumn 2026: of vLLM and SGLang from the sources of DOCUMENTED_VERSIONS, of llama.cpp from
its documentation. An older installed release gets its own option names where they are known. Starts nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import SpecchatError
from specchat.hub.find_models import find_model
from specchat.profile.keys import STARTER, Profile
from specchat.profile.shipped_drafters import starter_drafter, with_shipped_drafters
from specchat.weights.context_window import trained_context_window
from specchat.weights.gguf.gguf_conversion import safetensors_folder
from specchat.weights.gguf.gguf_manifest import GgufManifest
from specchat.weights.load_options import EMBEDDED
from specchat_fleet.installed_servers import version_numbers

LOOPBACK = "127.0.0.1"
GGUF_NEEDED = "must be a GGUF file: 'convert_hf_to_gguf.py FOLDER --outfile FILE.gguf'"
DOCUMENTED_VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23", "llama.cpp": "b10269"}
SERVER_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp"}
MAX_TENSOR_PARALLEL_SIZE = 8  # GPUs of one machine

# Draft tokens per step, as a chain: the best values of vLLM and SGLang for one user.
NUM_SPECULATIVE_TOKENS = {
    "ngram": 5, "suffix": 16, "draft": 5, "eagle3": 4, "eagle": 3, "medusa": 3, "mtp": 1, "dflash": 8,
    "dspark": 7, "peagle": 7, "dflash2": 7,
}  # fmt: skip
SGLANG_NGRAM_DRAFT_TOKENS = "16"  # SGLang drafts a tree of n-grams with this many tokens
# A kind stands before those whose names a config of it may contain, too.
HEAD_KINDS = ("peagle", "eagle3", "dspark", "dflash2", "dflash", "hydra", "medusa", "mtp", "eagle")
VLLM_METHODS = {"draft": "draft_model", "peagle": "eagle3", "dflash2": "dflash"}
METHOD_BY_VARIANT = {"plain": "none", "lookup": "ngram", "suffix": "suffix", "draft": "draft"}


@dataclass(frozen=True)
class SpeculativeConfig:
    method: str  # "none", or a key of NUM_SPECULATIVE_TOKENS
    model: str = ""
    num_speculative_tokens: int = 0
    note: str = ""


@dataclass(frozen=True)
class ServerConfig:
    target: str
    speculative_config: SpeculativeConfig
    context_tokens: int
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    gguf: str = ""  # the file of the target, where it has one


@dataclass(frozen=True)
class LaunchPlan:
    server: str
    version: str
    is_installed: bool
    command: tuple[str, ...]
    notes: tuple[str, ...] = ()


def resolve_server_config(profile: Profile, tensor_parallel_size: int | None = None) -> ServerConfig:
    """The server configuration of a profile. Without `tensor_parallel_size`, the smallest size that fits."""
    models = profile.models
    context = min(profile.limits.context, trained_context_window(models.target) or profile.limits.context)
    gpu_count = tensor_parallel_size or tensor_parallel_size_for(models.target, context)
    name, gguf = _path_or_id(models.target), _gguf_of(models.target)
    return ServerConfig(name, speculative_config_for(profile), context, models.dtype, gpu_count, gguf)


def _path_or_id(target: str) -> str:
    """The name of a target model that a server understands."""
    if target == STARTER:
        return str(safetensors_folder(find_model(STARTER)))
    return str(EMBEDDED / "target") if target == "embedded" else target


def _gguf_of(target: str) -> str:
    """The GGUF file of a target, for llama.cpp; "" where it has none."""
    if target == STARTER:
        manifest = GgufManifest.from_folder(find_model(STARTER))
        return str(manifest.files[0].path) if manifest else ""
    return target if target.endswith(".gguf") else ""


def speculative_config_for(profile: Profile) -> SpeculativeConfig:
    """The method closest to the profile's drafter: the same, or a head, a draft model, or n-grams."""
    variant, models = profile.speculation.variant, with_shipped_drafters(profile.models)
    is_embedded = models.target == "embedded"
    heads = {_head_kind(head): str(starter_drafter(head) or head) for head in models.heads if head != "embedded"}
    if is_embedded and "embedded" in models.heads:
        heads |= {kind: str(EMBEDDED / kind) for kind in ("eagle3", "medusa", "eagle") if kind not in heads}
    draft = str(starter_drafter(models.draft) or models.draft)
    draft = draft if draft != "embedded" else str(EMBEDDED / "draft") if is_embedded else ""
    method, note = METHOD_BY_VARIANT.get(variant, variant), ""
    if method not in ("none", *NUM_SPECULATIVE_TOKENS):
        supported = [kind for kind in HEAD_KINDS if kind in heads and kind in NUM_SPECULATIVE_TOKENS]
        method = supported[0] if supported else "draft" if draft else "ngram"
        note = "" if variant == "auto" else f"no server supports {variant}; using {method} instead"
    if method == "none":
        return SpeculativeConfig("none")
    model = draft if method == "draft" else heads.get(method, "")
    if not model and method not in ("ngram", "suffix", "mtp"):
        method, note = "ngram", f"the profile has no {method} model; using n-gram speculation instead"
    return SpeculativeConfig(method, model, min(NUM_SPECULATIVE_TOKENS[method], profile.speculation.budget), note)


def _head_kind(head: str) -> str:
    """The kind of a head, from its name and its config; by default eagle3, the most common one."""
    config = Path(head).expanduser() / "config.json"
    text = (head + (config.read_text(encoding="utf-8") if config.is_file() else "")).lower()
    text = text.replace("eagle-3", "eagle3").replace("p-eagle", "peagle").replace("ptd_token_id", "peagle")
    return next((kind for kind in HEAD_KINDS if kind in text), "eagle3")


def tensor_parallel_size_for(target: str, context_tokens: int) -> int:
    """The smallest number of GPUs of this machine that hold the weights, according to the memory planner."""
    from specchat.hub.local_models import locate_model
    from specchat.hub.machine import detect_gpus
    from specchat.hub.memory_plan import QuantizedModel, plan_memory

    free = [gpu.free_bytes for gpu in detect_gpus()]
    if len(free) < 2:
        return 1
    try:
        total = plan_memory(QuantizedModel(locate_model(target).architecture, "bf16"), None, context_tokens).total_bytes
    except SpecchatError:
        return 1  # the size is unknown before the download
    size = 1
    while size < min(len(free), MAX_TENSOR_PARALLEL_SIZE) and total > size * min(free):
        size *= 2
    return min(size, len(free))


def plan_launch(server: str, config: ServerConfig, installed_version: str | None) -> LaunchPlan:
    """The command for an installed version (None: for the documented version)."""
    version = DOCUMENTED_VERSIONS[server] if installed_version is None else installed_version
    notes = [note] if (note := config.speculative_config.note) else []
    command = COMMAND_BUILDERS[server](config, version or DOCUMENTED_VERSIONS[server], notes)
    return LaunchPlan(server, version, installed_version is not None, tuple(command), tuple(notes))


def _vllm_command(config: ServerConfig, version: str, notes: list[str]) -> list[str]:
    """`vllm serve`. JSON configuration since 0.8.2; no draft models from there to 0.10.

    P-EAGLE since 0.16, DSpark since 0.25, no Medusa since 0.33.
    """
    release, speculation = version_numbers(version), config.speculative_config
    lacking = {
        "draft": (0, 8, 2) <= release < (0, 11),
        "peagle": release < (0, 16),
        "dspark": release < (0, 25),
        "medusa": release >= (0, 33),
    }
    if lacking.get(speculation.method):
        notes.append(_fallback_note(f"vLLM {version}", speculation.method))
        speculation = SpeculativeConfig("ngram", num_speculative_tokens=NUM_SPECULATIVE_TOKENS["ngram"])
    command = ["vllm", "serve", config.target, "--host", LOOPBACK, "--port", "8000"]
    command += ["--max-model-len", str(config.context_tokens), *_dtype(config)]
    command += _tensor_parallel("--tensor-parallel-size", config)
    count = str(speculation.num_speculative_tokens)
    if speculation.method == "none":
        pass
    elif release < (0, 8, 2):
        model = speculation.model or "[ngram]"
        command += ["--speculative-model", model, "--num-speculative-tokens", count]
        command += ["--ngram-prompt-lookup-max", "4"] if model == "[ngram]" else []
    else:
        values: dict[str, object] = {"method": VLLM_METHODS.get(speculation.method, speculation.method)}
        values |= {"model": speculation.model} if speculation.model else {}
        values |= {"num_speculative_tokens": speculation.num_speculative_tokens}
        values |= {"parallel_drafting": True} if speculation.method == "peagle" else {}
        values |= {"prompt_lookup_max": 4, "prompt_lookup_min": 2} if speculation.method == "ngram" else {}
        command += ["--speculative-config", json.dumps(values)]
        command += ["--per-request-spec-decode-metrics", "detailed"] if release >= (0, 29) else []
    return command


def _sglang_command(config: ServerConfig, _version: str, notes: list[str]) -> list[str]:
    """`sglang.launch_server`. Top-k 1 makes a chain; SGLang's number of draft tokens includes the root."""
    speculation = config.speculative_config
    command = ["python3", "-m", "sglang.launch_server", "--model-path", config.target, "--host", LOOPBACK]
    command += ["--port", "30000", "--context-length", str(config.context_tokens), "--enable-metrics"]
    command += [*_dtype(config), *_tensor_parallel("--tp-size", config)]
    algorithms = {
        "draft": "STANDALONE", "eagle3": "EAGLE3", "eagle": "EAGLE", "mtp": "NEXTN", "dflash": "DFLASH",
        "dflash2": "DFLASH", "dspark": "DSPARK",
    }  # fmt: skip
    if speculation.method == "none":
        return command
    if speculation.method not in algorithms:
        if speculation.method in HEAD_KINDS:
            notes.append(_fallback_note("SGLang", speculation.method))
        command += ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", SGLANG_NGRAM_DRAFT_TOKENS]
        return command
    command += ["--speculative-algorithm", algorithms[speculation.method]]
    command += ["--speculative-draft-model-path", speculation.model] if speculation.model else []
    if speculation.method not in ("dflash", "dflash2", "dspark"):  # their block size is fixed by their training
        count = speculation.num_speculative_tokens
        command += ["--speculative-num-steps", str(count), "--speculative-eagle-topk", "1"]
        command += ["--speculative-num-draft-tokens", str(count + 1)]
    return command


def _llama_cpp_command(config: ServerConfig, version: str, notes: list[str]) -> list[str]:
    """`llama-server`, for GGUF files. Build 9235 renamed the options and added types of speculation."""
    speculation = config.speculative_config
    command = ["llama-server", "-m", config.gguf or _gguf_name(config.target), "--host", LOOPBACK, "--port", "8080"]
    command += ["-c", str(config.context_tokens), "--metrics"]
    if not config.gguf:
        notes.append(f"the model {GGUF_NEEDED}")
    build = version.removeprefix("b")
    has_types = not build.isdigit() or int(build) >= 9235
    kinds = ("eagle3", "mtp", "dflash", "dspark")
    types = {"draft": "draft-simple"} | {kind: f"draft-{kind}" for kind in kinds}
    if speculation.method == "none":
        return command
    if speculation.method not in types or not (has_types or speculation.method == "draft"):
        if speculation.method not in ("ngram", "suffix"):
            notes.append(_fallback_note(f"llama.cpp {version}", speculation.method))
        return [*command, "--spec-type", "ngram-mod"]
    if speculation.model and not speculation.model.endswith(".gguf"):
        notes.append(f"the {speculation.method} model {GGUF_NEEDED}")
    command += ["-md", _gguf_name(speculation.model)] if speculation.model else []
    command += ["--spec-type", types[speculation.method], "--spec-draft-n-max"] if has_types else ["--draft-max"]
    return [*command, str(speculation.num_speculative_tokens)]


def _dtype(config: ServerConfig) -> list[str]:
    return ["--dtype", config.dtype] if config.dtype != "auto" else []


def _tensor_parallel(option: str, config: ServerConfig) -> list[str]:
    return [option, str(config.tensor_parallel_size)] if config.tensor_parallel_size > 1 else []


def _fallback_note(server: str, method: str) -> str:
    return f"{server} does not support {method}; using n-gram speculation instead"


def _gguf_name(model: str) -> str:
    return model if model.endswith(".gguf") else f"{Path(model).name}.gguf"


COMMAND_BUILDERS: Mapping[str, Callable[[ServerConfig, str, list[str]], list[str]]] = {
    "vllm": _vllm_command,
    "sglang": _sglang_command,
    "llama.cpp": _llama_cpp_command,
}
