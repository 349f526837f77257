"""A profile and its tables: every key with its permitted values and its default; `keys.toml` says what each means.

No other module knows the keys: files, environment variables, options, the JSON schema and the docs all follow this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.devices import FLOAT_FORMAT, KINDS, KV_CACHE_FORMATS, WEIGHT_FORMATS
from specchat.plugins.discovery import find_extensions
from specchat.profile.drafter_names import DRAFTER_NAMES, plugin_drafters
from specchat.profile.validation import InvalidValueError, KeyPath, SettingsSource, check_values, key, merge_sources

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEVICES = ("auto", *KINDS)
WEIGHT_CHOICES = ("auto", *WEIGHT_FORMATS)
EMBEDDING_DEVICES = ("auto", "device", "cpu")
ON_GPU = r"cuda:[1-9]\d?:[1-9]\d{0,3}"
PLACE = re.compile(rf"auto|none|(cpu:[1-9]\d{{0,3}}|{ON_GPU})(,{ON_GPU})*")
AUTO, EMBEDDED, STARTER = "auto", "embedded", "starter"
BUILTIN_BACKEND = "builtin"
SERVER_BACKENDS = ("vllm", "sglang", "openai")  # of the plugin specchat-fleet, known without it
BACKENDS = (BUILTIN_BACKEND, *SERVER_BACKENDS)
PREFILLED_ANSWER, GRAMMAR_ANSWER, FREE_ANSWER = EDIT_ANSWERS = ("prefill", "grammar", "free")
ANSWER_FORMATS = ("schema", "regex", "choices", "lark")
THINKING_MODES = ("auto", "on", "off")
AGENT_OFF, AGENT_ON, AGENT_PLAN = AGENT_MODES = ("off", "on", "plan")
AUTO_CALLS, GRAMMAR_CALLS, FREE_CALLS = AGENT_CALLS = ("auto", "grammar", "free")
REQUEST_KINDS = ("edit", "files", "code", "chat", "structured", "creative", "short")
MAX_DRAFT_TOKENS = 128  # a forward pass over more rows costs more than it can gain
MAX_SEED = 2**63 - 1
MAX_TOKENS = 2**24
MAX_REPEATS = 1000
MAX_TEMPERATURE = 5
MAX_MCP_SECONDS = 86400


def _plugin_servers() -> tuple[str, ...]:
    return tuple(find_extensions("servers", (BUILTIN_BACKEND,)))


@dataclass(frozen=True)
class Models:
    """The target model, the draft model and the heads, and where and in which format they are loaded."""

    target: str = key(EMBEDDED)
    draft: str = key(AUTO)
    heads: tuple[str, ...] = key((AUTO,))
    dtype: str = key("auto", choices=DTYPES)
    weights: str = key("auto", choices=WEIGHT_CHOICES)
    draft_weights: str = key("auto", choices=WEIGHT_CHOICES)
    device: str = key("auto", choices=DEVICES)
    draft_device: str = key("auto", choices=DEVICES)
    embedding_device: str = key("auto", choices=EMBEDDING_DEVICES)
    place: str = key(AUTO)
    kv_cache: str = key(FLOAT_FORMAT, choices=KV_CACHE_FORMATS)
    backend: str = key(BUILTIN_BACKEND, choices=BACKENDS, plugin_choices=_plugin_servers)
    url: str = key("")
    api_key_file: str = key("")

    def __post_init__(self) -> None:
        if not self.target.strip():
            message = (
                "models.target must not be empty; give 'embedded', a folder, a GGUF file, or a hub id like org/name"
            )
            raise InvalidValueError(message, ("models", "target"))
        check_values(self, "models")
        gpus = [int(number) for number in re.findall(r"cuda:(\d+)", self.place)]
        if not PLACE.fullmatch(self.place) or gpus != sorted(set(gpus)):
            message = f"models.place cannot be {self.place!r}; known are auto, none, and cpu:N for the first N layers"
            message += ", then cuda:1:N, cuda:2:N, ... for the next ones, joined by commas"
            raise InvalidValueError(message, ("models", "place"))
        if self.url and not self.url.startswith(("http://", "https://")):
            message = f"models.url must begin with http:// or https://, not {self.url!r}"
            raise InvalidValueError(message, ("models", "url"))
        if self.is_on_server and not self.url:
            message = f"backend {self.backend!r} is a server: give models.url, or 'specchat fleet join URL --save NAME'"
            raise InvalidValueError(message, ("models", "backend"))

    @property
    def cpu_layers(self) -> int:
        """The first layers that a person wants in main memory."""
        return self._placed_layers.get("cpu", 0)

    @property
    def gpu_layers(self) -> tuple[int, ...]:
        """How many of the next ones a person wants on the second GPU, the third, ...."""
        last = max(map(int, re.findall(r"cuda:(\d+)", self.place)), default=0)
        return tuple(self._placed_layers.get(f"cuda:{number}", 0) for number in range(1, last + 1))

    @property
    def _placed_layers(self) -> dict[str, int]:
        return {device: int(count) for device, count in re.findall(r"(cpu|cuda:\d+):(\d+)", self.place)}

    @property
    def is_on_server(self) -> bool:
        """Whether a server answers, so that no model is loaded here."""
        return self.backend in SERVER_BACKENDS or (
            self.backend != BUILTIN_BACKEND and self.backend in find_extensions("servers", (BUILTIN_BACKEND,))
        )


@dataclass(frozen=True)
class Limits:
    """How many tokens a session may read and generate."""

    context: int = key(8192, minimum=16, maximum=MAX_TOKENS)
    answer: int = key(1024, minimum=1, maximum=MAX_TOKENS)
    repeats: int = key(3, minimum=0, maximum=MAX_REPEATS)
    kv_disk: float = key(2.0, minimum=0, maximum=1024)

    def __post_init__(self) -> None:
        check_values(self, "limits")
        if self.answer >= self.context:
            message = f"limits.answer ({self.answer}) must be below limits.context ({self.context})"
            raise InvalidValueError(message, ("limits", "context"), ("limits", "answer"))
        if self.repeats == 1:
            raise InvalidValueError("limits.repeats must be at least 2, or 0 for never", ("limits", "repeats"))


@dataclass(frozen=True)
class Sampling:
    """How a token is sampled. Temperature 0 is greedy; each turn draws a new seed unless one is set."""

    temperature: float = key(0.0, minimum=0, maximum=MAX_TEMPERATURE)
    top_k: int = key(0, minimum=0, maximum=MAX_TOKENS)
    top_p: float = key(1.0, exclusive_minimum=0, maximum=1)
    min_p: float = key(0.0, minimum=0, maximum=1)
    repetition_penalty: float = key(1.0, minimum=0.5, maximum=5)
    frequency_penalty: float = key(0.0, minimum=-2, maximum=2)
    presence_penalty: float = key(0.0, minimum=-2, maximum=2)
    seed: int | None = key(None, minimum=0, maximum=MAX_SEED)

    def __post_init__(self) -> None:
        check_values(self, "sampling")


@dataclass(frozen=True)
class Speculation:
    """Which drafter proposes tokens, how many per step, and whether passes are bit-identical."""

    variant: str = key("auto", choices=DRAFTER_NAMES, plugin_choices=plugin_drafters)
    budget: int = key(16, minimum=1, maximum=MAX_DRAFT_TOKENS)
    recall: bool = key(True)
    exact: bool = key(False)

    def __post_init__(self) -> None:
        check_values(self, "speculation")


BLOCKS_CONTRACT = (
    "You change files. Answer with search/replace blocks only, one for each change: a line <<<<<<< SEARCH, lines "
    "copied from the file, a line =======, the lines in their place, a line >>>>>>> REPLACE."
)
OPERATION_CONTRACT = (
    "You are given an instruction, in any language, and a list. Answer with the line of the list that does all that "
    'the instruction asks for and nothing else. If there is no such line, answer with "none of these".'
)
EDIT_CONTRACT = "You rewrite files. Answer with the complete changed file in one fenced code block, and nothing else."


@dataclass(frozen=True)
class Prompt:
    """What the model reads in addition to the conversation."""

    system: str = key("")
    edit_system: str = key(EDIT_CONTRACT)
    edit_blocks_system: str = key(BLOCKS_CONTRACT)
    edit_operation_system: str = key(OPERATION_CONTRACT)
    edit_answer: str = key(PREFILLED_ANSWER, choices=EDIT_ANSWERS)
    edit_format: str = key(AUTO, choices=(AUTO, "whole", "region", "blocks"))
    thinking: str = key("auto", choices=THINKING_MODES)
    thinking_tokens: int = key(0, minimum=0, maximum=MAX_TOKENS)

    def __post_init__(self) -> None:
        check_values(self, "prompt")


@dataclass(frozen=True)
class Agent:
    """Whether the model may use tools, and what needs no question (docs/agents.md)."""

    mode: str = key(AGENT_OFF, choices=AGENT_MODES)
    calls: str = key(AUTO_CALLS, choices=AGENT_CALLS)
    allow: tuple[str, ...] = key(())
    deny: tuple[str, ...] = key(())
    rounds: int = key(25, minimum=1, maximum=1000)
    command_seconds: int = key(120, minimum=1, maximum=86400)

    def __post_init__(self) -> None:
        check_values(self, "agent")


@dataclass(frozen=True)
class RouteRule:
    """Which requests are of a kind. All given conditions must hold.

    A pattern is a sequence of words, case ignored: `word*` matches any ending, `...` up to four words between.
    """

    kind: str = key("", choices=REQUEST_KINDS)
    starts_with: tuple[str, ...] = key(())
    contains: tuple[str, ...] = key(())
    also_contains: tuple[str, ...] = key(())
    excludes: tuple[str, ...] = key(())
    task: str = key("")
    answer_format: tuple[str, ...] = key((), choices=ANSWER_FORMATS)
    is_question: bool | None = key(None)
    has_files: bool | None = key(None)
    has_text: bool | None = key(None)
    has_code: bool | None = key(None)
    min_words: int = key(0, minimum=0, maximum=MAX_TOKENS)
    max_words: int | None = key(None, minimum=1, maximum=MAX_TOKENS)
    temperature_above: float | None = key(None, minimum=0, maximum=MAX_TEMPERATURE)

    def __post_init__(self) -> None:
        if not self.kind:
            raise InvalidValueError(f"a rule of [[routes]] needs a kind: {', '.join(REQUEST_KINDS)}")
        check_values(self, "routes")


@dataclass(frozen=True)
class McpServer:
    """A program or a service that offers tools, prompts and resources by the Model Context Protocol.

    The table `[mcp.NAME]` of a stronger source replaces that of a weaker one if it has a command or a URL; otherwise
    only its keys replace those of the weaker one. So no source can send the headers of another one to its own URL.
    """

    name: str = key("")
    command: tuple[str, ...] = key(())
    env: tuple[str, ...] = key(())
    url: str = key("")
    headers: tuple[str, ...] = key(())
    allow: tuple[str, ...] | None = key(None)
    enabled: bool | None = key(None)
    start_seconds: float | None = key(None, exclusive_minimum=0, maximum=MAX_MCP_SECONDS)
    call_seconds: float | None = key(None, exclusive_minimum=0, maximum=MAX_MCP_SECONDS)
    location: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        check_values(self, "mcp")


@dataclass(frozen=True)
class Profile:
    """One way to use specchat. Equal profiles mean equal models, limits, sampling and routes."""

    name: str = key("default")
    description: str = key("")
    models: Models = field(default_factory=Models)
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    speculation: Speculation = field(default_factory=Speculation)
    prompt: Prompt = field(default_factory=Prompt)
    agent: Agent = field(default_factory=Agent)
    routes: tuple[RouteRule, ...] = key(())
    mcp: tuple[McpServer, ...] = key(())

    def system_prompt(self, task: str) -> str:
        """The system prompt of a request: the tasks of edits have their own."""
        prompt = self.prompt
        by_task = {
            "edit": prompt.edit_system,
            "edit-blocks": prompt.edit_blocks_system,
            "edit-operation": prompt.edit_operation_system,
        }
        return by_task.get(task, self.prompt.system)

    def override(self, values: Mapping[str, object]) -> Profile:
        """A profile with some keys changed and checked as in a file; a key with value None stays as it is.

        >>> Profile().override({"sampling.temperature": 0.7, "models.draft": None}).sampling.temperature
        0.7
        """
        return merge_sources(self, [options_source(values)]).value


def options_source(
    values: Mapping[str, object], location_of: Callable[[KeyPath], str] = lambda _path: "options"
) -> SettingsSource:
    """Flat keys as a source: `{"sampling.top_k": 5, "name": "x"}` is `{"sampling": {"top_k": 5}, "name": "x"}`."""
    tables: dict[str, Any] = {}
    for path, value in values.items():
        if value is not None:
            table, _, name = path.rpartition(".")
            (tables.setdefault(table, {}) if table else tables)[name] = value
    return SettingsSource("option", tables, location_of)
