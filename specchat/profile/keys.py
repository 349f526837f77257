"""A profile and its tables: every key with its meaning, its permitted values and its default.

No other module knows the keys: files, environment variables, options, the JSON schema and the docs all follow this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.devices import FLOAT_FORMAT, KINDS, KV_CACHE_FORMATS, WEIGHT_FORMATS
from specchat.plugins.discovery import find_extensions
from specchat.profile.drafter_names import DRAFTER_NAMES, plugin_drafters
from specchat.profile.validation import (
    InvalidValueError,
    KeyPath,
    SettingsSource,
    check_values,
    key,
    merge_sources,
)

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEVICES = ("auto", *KINDS)
WEIGHT_CHOICES = ("auto", *WEIGHT_FORMATS)
EMBEDDING_DEVICES = ("auto", "device", "cpu")
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

    target: str = key(
        EMBEDDED,
        'The target model: "starter" (`specchat models pull starter`), "embedded" (a small demo model, part of '
        'specchat), a folder with a model, a GGUF file, or a hub id such as "org/name". Without this key it is the '
        "starter model if that is on this disk.",
    )
    draft: str = key(
        AUTO,
        'The draft model: a folder, a GGUF file or a hub id; "auto": the one that specchat has for the target, if any; '
        '"" for none. One with other tokens than the target needs a plugin (docs/models.md).',
    )
    heads: tuple[str, ...] = key(
        (AUTO,),
        'Draft heads, which read the hidden states of the target: folders, files or hub ids. "auto" are the heads that '
        "specchat has for the target, if any; [] for none. A head of another target is left out, and one line says so.",
    )
    dtype: str = key(
        "auto",
        'The data type of computations: "auto", "float32", "bfloat16" or "float16". The embedded models use float32 on '
        "CPUs.",
        choices=DTYPES,
    )
    weights: str = key(
        "auto",
        'The format of the target\'s weights: "float" (as stored, or as dtype requires), "gguf" (the blocks of a GGUF '
        'file as they are), "int8" or "fp8" (half the memory of bfloat16), "nf4" (a quarter) or "nf4-double" '
        '(a little less); "auto" is "gguf" for a GGUF file where that is fastest, else "float", and "int8" or '
        '"nf4" where that does not fit the memory. Each format has its own text; docs/quantization.md has their costs.',
        choices=WEIGHT_CHOICES,
    )
    draft_weights: str = key("auto", "The format of the draft's weights: the same choices.", choices=WEIGHT_CHOICES)
    device: str = key(
        "auto",
        'The device of the target: "auto" (a GPU if torch finds one), "cpu", "cuda" (NVIDIA, AMD), "mps" (Apple) or '
        '"xpu" (Intel).',
        choices=DEVICES,
    )
    draft_device: str = key(
        "auto", 'The device of the draft: the same choices; "auto" is the device of the target.', choices=DEVICES
    )
    embedding_device: str = key(
        "auto",
        'Where the input embeddings are stored: "device", "cpu", or "auto": on the CPU only when the device is too '
        "small.",
        choices=EMBEDDING_DEVICES,
    )  # fmt: skip
    kv_cache: str = key(
        FLOAT_FORMAT,
        'The format of the target\'s KV cache: "float" (the data type of computations) or "int8": about half of the '
        "memory of bfloat16, a quarter of that of float32, and another text. On a CPU, for models in our own passes.",
        choices=KV_CACHE_FORMATS,
    )  # fmt: skip
    backend: str = key(
        BUILTIN_BACKEND,
        'What computes the forward passes of the target: "builtin" (specchat itself), or a server: "vllm", "sglang", '
        '"openai" for any other server with the OpenAI API (docs/fleet.md, a plugin), or the name of a server of '
        "another plugin (docs/plugins.md). For a server, `target` is the name of the model there; draft, heads, dtype, "
        "weights and devices have no effect.",
        choices=BACKENDS, plugin_choices=_plugin_servers,
    )  # fmt: skip
    url: str = key("", 'The URL of that server, as in "http://127.0.0.1:8000/v1".')
    api_key_file: str = key("", 'A file with the API key of the server; "" when it needs none.')

    def __post_init__(self) -> None:
        if not self.target.strip():
            message = (
                "models.target must not be empty; give 'embedded', a folder, a GGUF file, or a hub id like org/name"
            )
            raise InvalidValueError(message, ("models", "target"))
        check_values(self, "models")
        if self.url and not self.url.startswith(("http://", "https://")):
            message = f"models.url must begin with http:// or https://, not {self.url!r}"
            raise InvalidValueError(message, ("models", "url"))
        if self.is_on_server and not self.url:
            message = f"backend {self.backend!r} is a server: give models.url, or 'specchat fleet join URL --save NAME'"
            raise InvalidValueError(message, ("models", "backend"))

    @property
    def is_on_server(self) -> bool:
        """Whether a server answers, so that no model is loaded here."""
        return self.backend in SERVER_BACKENDS or (
            self.backend != BUILTIN_BACKEND and self.backend in find_extensions("servers", (BUILTIN_BACKEND,))
        )


@dataclass(frozen=True)
class Limits:
    """How many tokens a session may read and generate."""

    context: int = key(
        8192,
        "Maximum length of a conversation, in tokens; never more than the context window of the model.",
        minimum=16, maximum=MAX_TOKENS,
    )  # fmt: skip
    answer: int = key(1024, "Maximum length of an answer, in tokens.", minimum=1, maximum=MAX_TOKENS)
    repeats: int = key(
        3,
        "An answer ends, and a line says so, when the same block stands this many times in a row, word for word, in a "
        "run of 96 tokens or more; the answer is cut back to the first block. 0: never. Copies of a given text are no "
        "repetition.",
        minimum=0, maximum=MAX_REPEATS,
    )  # fmt: skip
    kv_disk: float = key(
        2.0,
        "Most GiB of KV caches on disk, with which conversations go on after the engine has ended without being read "
        "again; 0: none. Private conversations are never kept.",
        minimum=0, maximum=1024,
    )  # fmt: skip

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

    temperature: float = key(
        0.0,
        "How varied the text is: 0 is greedy, always the most likely token; above 1 it becomes random. At most 5.",
        minimum=0, maximum=MAX_TEMPERATURE,
    )  # fmt: skip
    top_k: int = key(0, "Keep this many of the most likely tokens; 0 keeps all.", minimum=0, maximum=MAX_TOKENS)
    top_p: float = key(
        1.0,
        "Keep the most likely tokens that together reach this probability; 1 keeps all.",
        exclusive_minimum=0, maximum=1,
    )  # fmt: skip
    min_p: float = key(
        0.0,
        "Keep tokens with at least this share of the most likely token's probability; 0 keeps all.",
        minimum=0, maximum=1,
    )  # fmt: skip
    repetition_penalty: float = key(
        1.0, "Above 1, repeated tokens become less likely; 1 changes nothing.", minimum=0.5, maximum=5
    )
    frequency_penalty: float = key(
        0.0,
        "Above 0, a token becomes less likely with each time that it occurs in the answer; below 0, more likely.",
        minimum=-2, maximum=2,
    )  # fmt: skip
    presence_penalty: float = key(
        0.0,
        "Above 0, a token that occurs in the answer becomes less likely; below 0, more likely.",
        minimum=-2, maximum=2,
    )  # fmt: skip
    seed: int | None = key(
        None,
        "The same seed gives the same answer; without one each turn draws a seed and reports it.",
        minimum=0, maximum=MAX_SEED,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_values(self, "sampling")


@dataclass(frozen=True)
class Speculation:
    """Which drafter proposes tokens, how many per step, and whether passes are bit-identical."""

    variant: str = key(
        "auto",
        'The drafter: "auto" (the fastest on this machine, or none), "plain" (none), or a name from docs/profiles.md.',
        choices=DRAFTER_NAMES, plugin_choices=plugin_drafters,
    )  # fmt: skip
    budget: int = key(16, "Maximum number of draft tokens per step.", minimum=1, maximum=MAX_DRAFT_TOKENS)
    recall: bool = key(
        True,
        "Copying drafters may propose tokens from other conversations: from their answers and attached files. The text "
        "is the same either way. `--private` is false for one conversation, which is not stored either.",
    )
    exact: bool = key(
        False,
        "true: bit-identical to plain decoding also where kernels are not batch invariant (docs/exactness.md), at some "
        "cost in speed. On CPUs with native kernels it is so without it.",
    )

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

    system: str = key("", 'The system prompt; "" for none.')
    edit_system: str = key(EDIT_CONTRACT, 'The system prompt of edits, in place of `system`; "" for none.')
    edit_blocks_system: str = key(
        BLOCKS_CONTRACT,
        "The system prompt where an edit is asked for as search/replace blocks, which is the case when the whole file "
        'does not work; "" for none.',
    )
    edit_operation_system: str = key(
        OPERATION_CONTRACT,
        'The system prompt where the model chooses the operation that an instruction is, from a list; "" for none.',
    )
    edit_answer: str = key(
        PREFILLED_ANSWER,
        'How the answer of an edit is held to the form of a file. "prefill": it is begun with the code fence of the '
        'file and ends at the closing fence. "grammar": only a text in this fence can be generated. "free": the model '
        "begins and ends by itself.",
        choices=EDIT_ANSWERS,
    )
    edit_format: str = key(
        AUTO,
        'What an edit asks for first: "whole" (the file), "region" (what the instruction names), "blocks" (search/'
        'replace blocks); "auto": by the sizes of file and model, until edits show what works best (docs/edits.md).',
        choices=(AUTO, "whole", "region", "blocks"),
    )
    thinking: str = key(
        "auto",
        'Whether a model that can think does so before it answers: "on", "off", or "auto", as its chat template has '
        "it. Edits, and answers that are held to a format, are written without thinking.",
        choices=THINKING_MODES,
    )
    thinking_tokens: int = key(
        0,
        "The most tokens of a thought: it is then closed, and the answer follows. 0: three quarters of limits.answer.",
        minimum=0, maximum=MAX_TOKENS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_values(self, "prompt")


@dataclass(frozen=True)
class Agent:
    """Whether the model may use tools, and what needs no question (docs/agents.md)."""

    mode: str = key(
        AGENT_OFF,
        'Whether the model may use tools in the folder of the project: "on" asks before anything is changed or run, '
        '"plan" only reads, "off" has none.',
        choices=AGENT_MODES,
    )
    calls: str = key(
        AUTO_CALLS,
        'How the model calls tools: "grammar" makes every answer a call or a text, "free" leaves it to the model, '
        '"auto" takes the grammar where the chat template of the model has no tools.',
        choices=AGENT_CALLS,
    )
    allow: tuple[str, ...] = key(
        (), 'Calls that run without a question: a tool such as "write", or a tool and a pattern such as "run:pytest*".'
    )
    deny: tuple[str, ...] = key((), 'Calls that never run, also if they are allowed: "run:git push*".')
    rounds: int = key(25, "Most answers of the model to one question.", minimum=1, maximum=1000)
    command_seconds: int = key(120, "Most seconds that a command may take.", minimum=1, maximum=86_400)

    def __post_init__(self) -> None:
        check_values(self, "agent")


@dataclass(frozen=True)
class RouteRule:
    """Which requests are of a kind. All given conditions must hold.

    A pattern is a sequence of words, case ignored: `word*` matches any ending, `...` up to four words between.
    """

    kind: str = key("", "The kind of such a request.", choices=REQUEST_KINDS)
    starts_with: tuple[str, ...] = key((), "The question starts with one of these patterns.")
    contains: tuple[str, ...] = key((), "The question contains one of these patterns.")
    also_contains: tuple[str, ...] = key((), "It also contains one of these patterns.")
    excludes: tuple[str, ...] = key((), "The question contains none of these patterns.")
    task: str = key("", 'The command that makes the request, such as "edit".')
    answer_format: tuple[str, ...] = key((), "The answer is held to one of these formats.", choices=ANSWER_FORMATS)
    is_question: bool | None = key(None, "The question ends with a question mark, or it does not.")
    has_files: bool | None = key(None, "Files are attached, or no file is.")
    has_text: bool | None = key(None, "The question has a text with it, attached, pasted or quoted; or it has none.")
    has_code: bool | None = key(None, "The question contains lines of code, or it contains none.")
    min_words: int = key(0, "The question has at least this many words.", minimum=0, maximum=MAX_TOKENS)
    max_words: int | None = key(None, "The question has at most this many words.", minimum=1, maximum=MAX_TOKENS)
    temperature_above: float | None = key(None, "The temperature is above this.", minimum=0, maximum=MAX_TEMPERATURE)

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

    name: str = key("", "The name of the server, of letters, digits, - and _; it stands in the header of the table.")
    command: tuple[str, ...] = key((), "The program and its arguments. It is started without a shell.")
    env: tuple[str, ...] = key(
        (),
        'Environment variables of the program besides PATH, HOME and the like: "NAME" for its value here, or '
        '"NAME=value".',
    )
    url: str = key("", "The URL of a server that is reached by streamable HTTP.")
    headers: tuple[str, ...] = key(
        (), 'Headers of its requests, such as "Authorization: Bearer ${TOKEN}" with the environment variable TOKEN.'
    )
    allow: tuple[str, ...] | None = key(None, "The tools that run without a question; all others ask.")
    enabled: bool | None = key(None, "false: the server is not used.")
    start_seconds: float | None = key(
        None, "How long the server may take to start; 30 by default.", exclusive_minimum=0, maximum=MAX_MCP_SECONDS
    )
    call_seconds: float | None = key(
        None, "How long one of its tools may take; 120 by default.", exclusive_minimum=0, maximum=MAX_MCP_SECONDS
    )
    location: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        check_values(self, "mcp")


@dataclass(frozen=True)
class Profile:
    """One way to use specchat. Equal profiles mean equal models, limits, sampling and routes."""

    name: str = key("default", "The name of the profile; by default the name of its file.")
    description: str = key("", "One line for lists of profiles.")
    models: Models = field(default_factory=Models)
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    speculation: Speculation = field(default_factory=Speculation)
    prompt: Prompt = field(default_factory=Prompt)
    agent: Agent = field(default_factory=Agent)
    routes: tuple[RouteRule, ...] = key(
        (), "Rules that find the kind of a request by its words: the first rule that matches decides."
    )
    mcp: tuple[McpServer, ...] = key(
        (),
        "MCP servers, each as a table [mcp.NAME] with a command or a url, in your own profile or in config.toml "
        "(docs/mcp.md, a plugin).",
    )

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
