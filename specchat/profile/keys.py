"""A profile and its tables: every key, what it means, what it may hold, and what it is when nobody says.

The one place that knows the keys; files, the environment, options, the schema and the docs all follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.plugins.discovery import find_extensions
from specchat.profile.drafter_names import DRAFTER_NAMES, plugin_drafters
from specchat.profile.validation import InvalidValueError, SettingsSource, check_values, key, merge_sources

DTYPES = ("auto", "float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")
WEIGHT_FORMATS = ("float", "int8", "fp8", "nf4", "nf4-double")
EMBEDDING_DEVICES = ("auto", "device", "cpu")
BUILTIN_BACKEND = "own"  # the backend that is no plugin
SERVER_BACKENDS = ("vllm", "sglang", "openai")  # backends that run elsewhere and are spoken to
ACCEPTANCE_TESTS = ("dice", "classic")
REQUEST_KINDS = ("edit", "files", "code", "chat", "structured", "creative", "short")
MAX_DRAFT_TOKENS = 128  # guesses; a pass over more rows costs more than it can bring
MAX_SEED = 2**63 - 1
MAX_TOKENS = 2**24
MAX_TEMPERATURE = 5


@dataclass(frozen=True)
class Models:
    """Who writes and who guesses: `embedded`, a folder, or a hub id. An empty draft means none."""

    target: str = key("embedded", 'Who writes: "embedded", a folder with a model, or a hub id such as "org/name".')
    draft: str = key("embedded", 'Who guesses ahead: the same choices, or "" for nobody. It has the target\'s tokens.')
    heads: tuple[str, ...] = key(
        ("embedded",), 'Heads on the target: folders, files or hub ids; "embedded" are those of the embedded target.'
    )
    dtype: str = key("auto", "The numbers to compute with.", choices=DTYPES)
    weights: str = key(
        "float",
        "How the target's weights are held: float, as they were saved or as dtype says; int8 and fp8 take a half of "
        "bfloat16, nf4 a quarter and nf4-double a little less, and change what it says.",
        choices=WEIGHT_FORMATS,
    )
    draft_weights: str = key("float", "How the draft's weights are held: the same choices.", choices=WEIGHT_FORMATS)
    device: str = key("auto", "Where to compute; auto takes a CUDA device when there is one.", choices=DEVICES)
    draft_device: str = key("auto", "Where the draft computes; auto: where the target does.", choices=DEVICES)
    embedding_device: str = key(
        "auto",
        "Where the table of input embeddings lies; auto: on the device, and on the CPU when the device is too small.",
        choices=EMBEDDING_DEVICES,
    )
    backend: str = key(
        BUILTIN_BACKEND,
        "Who runs the passes of the target: specchat itself, what a plugin calls so, or a server: vllm, sglang, or "
        "openai for any other that speaks as OpenAI's does.",
        choices=(BUILTIN_BACKEND, *SERVER_BACKENDS), plugin_choices=lambda: tuple(find_extensions("backends", (BUILTIN_BACKEND, *SERVER_BACKENDS))),
    )  # fmt: skip
    url: str = key("", 'Where the server of the backend is, such as "http://127.0.0.1:8000/v1".')
    api_key_file: str = key("", 'A file with the key that the server wants; "" when it wants none.')

    def __post_init__(self) -> None:
        if not self.target.strip():
            wanted = "give 'embedded', a folder, or a hub id like org/name"
            raise InvalidValueError(f"models.target must not be empty; {wanted}", ("models", "target"))
        check_values(self, "models")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise InvalidValueError(
                f"models.url must begin with http:// or https://, not {self.url!r}", ("models", "url")
            )
        if self.backend in SERVER_BACKENDS and not self.url:
            message = f"backend {self.backend!r} is a server: give models.url, or 'specchat fleet join URL --save NAME'"
            raise InvalidValueError(message, ("models", "backend"))


@dataclass(frozen=True)
class Limits:
    """How much a session may read and write, in tokens."""

    context: int = key(8192, "Longest text of a conversation, in tokens.", minimum=16, maximum=MAX_TOKENS)
    answer: int = key(1024, "Longest answer, in tokens.", minimum=1, maximum=MAX_TOKENS)

    def __post_init__(self) -> None:
        check_values(self, "limits")
        if self.answer >= self.context:
            message = f"limits.answer ({self.answer}) must be below limits.context ({self.context})"
            raise InvalidValueError(message, ("limits", "context"), ("limits", "answer"))


@dataclass(frozen=True)
class Sampling:
    """How a token is picked. Temperature 0 takes the likeliest; each turn draws a seed of its own unless one is set."""

    temperature: float = key(0.0, "0 always takes the likeliest token.", minimum=0, maximum=MAX_TEMPERATURE)
    top_k: int = key(0, "Only so many of the likeliest tokens; 0 means all.", minimum=0, maximum=MAX_TOKENS)
    top_p: float = key(1.0, "Only the likeliest tokens that together reach this share.", exclusive_minimum=0, maximum=1)
    min_p: float = key(0.0, "Only tokens with this share of the likeliest one's probability.", minimum=0, maximum=1)
    repetition_penalty: float = key(1.0, "Above 1, what was said becomes less likely.", minimum=0.5, maximum=5)
    seed: int | None = key(None, "The same seed gives the same answer.", minimum=0, maximum=MAX_SEED)

    def __post_init__(self) -> None:
        check_values(self, "sampling")


@dataclass(frozen=True)
class Speculation:
    """Who guesses, at most how many tokens a step, how guesses are judged, and whether all must be bit-equal."""

    variant: str = key("auto", "Who guesses ahead.", choices=DRAFTER_NAMES, plugin_choices=plugin_drafters)
    budget: int = key(16, "Most guesses in a step.", minimum=1, maximum=MAX_DRAFT_TOKENS)
    acceptance_test: str = key(
        "dice",
        "How guesses are judged at temperatures above 0. dice: a seed gives the text of plain decoding. classic: "
        "min(1, p/q), where a seed gives another text, as likely as any of plain decoding; not with exact.",
        choices=ACCEPTANCE_TESTS,
    )
    exact: bool = key(False, "Bit-equal to plain decoding in every dtype.")

    def __post_init__(self) -> None:
        check_values(self, "speculation")


@dataclass(frozen=True)
class Prompt:
    """What the model is told before the first question."""

    system: str = key("", 'What the model is told first; "" for nothing.')
    reference_corpus: str = key(
        "embedded", 'A book to quote from, one {"topic", "text"} a line; "embedded" helps the embedded target alone.'
    )


@dataclass(frozen=True)
class RouteRule:
    """Which requests are of a kind, and who drafts for them. Every condition that is given must hold.

    Patterns are words in their order, case ignored: `word*` takes any ending, `...` up to four words between.
    """

    kind: str = key("", "What such a request is.", choices=REQUEST_KINDS)
    starts_with: tuple[str, ...] = key((), "One of these patterns begins the question.")
    contains: tuple[str, ...] = key((), "One of these patterns stands in the question.")
    also_contains: tuple[str, ...] = key((), "And one of these.")
    excludes: tuple[str, ...] = key((), "None of these patterns stands in the question.")
    task: str = key("", 'The command that asks, such as "edit".')
    has_files: bool | None = key(None, "Files are attached, or none is.")
    has_text: bool | None = key(None, "A text comes along, attached, pasted or quoted; or none does.")
    has_code: bool | None = key(None, "Lines of code stand in the question, or none do.")
    min_words: int = key(0, "The question has at least so many words.", minimum=0, maximum=MAX_TOKENS)
    max_words: int | None = key(None, "The question has at most so many words.", minimum=1, maximum=MAX_TOKENS)
    temperature_above: float | None = key(None, "The temperature is above this.", minimum=0, maximum=MAX_TEMPERATURE)
    variants: tuple[str, ...] = key(
        ("auto",), "Who drafts, the first that can. After auto: whom it tries first.", choices=DRAFTER_NAMES,
        plugin_choices=plugin_drafters,
    )  # fmt: skip
    budget: int | None = key(None, "Most guesses in a step, for such requests.", minimum=1, maximum=MAX_DRAFT_TOKENS)

    def __post_init__(self) -> None:
        if not self.kind:
            raise InvalidValueError(f"a rule of [[routes]] needs a kind: {', '.join(REQUEST_KINDS)}")
        if not self.variants:
            raise InvalidValueError(
                'routes.variants must name somebody; ["auto"] leaves it to measurement', ("routes", "variants")
            )
        check_values(self, "routes")


@dataclass(frozen=True)
class DrafterOrder:
    """Whom auto tries first on requests of a kind; `specchat tune` measures it."""

    kind: str = key("", "What such a request is.", choices=REQUEST_KINDS)
    variants: tuple[str, ...] = key(
        (),
        "The likeliest first; those behind plain are seldom asked.",
        choices=DRAFTER_NAMES,
        plugin_choices=plugin_drafters,
    )

    def __post_init__(self) -> None:
        if not self.kind:
            raise InvalidValueError(f"an order of [[orders]] needs a kind: {', '.join(REQUEST_KINDS)}")
        check_values(self, "orders")


@dataclass(frozen=True)
class Profile:
    """One way to use specchat. Equal profiles mean equal models, limits, sampling and routes."""

    name: str = key("default", "How the profile is called; the name of its file when left out.")
    description: str = key("", "One line for lists of profiles.")
    models: Models = field(default_factory=Models)
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    speculation: Speculation = field(default_factory=Speculation)
    prompt: Prompt = field(default_factory=Prompt)
    routes: tuple[RouteRule, ...] = key((), "What a request is, by its words: the first rule that fits decides.")
    drafter_orders: tuple[DrafterOrder, ...] = key(
        (), "Whom auto tries first, by kind: the first order of a kind counts."
    )

    def drafter_order(self, kind: str) -> tuple[str, ...]:
        """Whom auto tries first on requests of this kind, as far as somebody said."""
        return next((order.variants for order in self.drafter_orders if order.kind == kind), ())

    def override(self, values: Mapping[str, object]) -> Profile:
        """A profile with some keys changed, checked as a file would be; a None leaves its key alone.

        >>> Profile().override({"sampling.temperature": 0.7, "models.draft": None}).sampling.temperature
        0.7
        """
        return merge_sources(self, [SettingsSource("option", as_tables(values), lambda _path: "options")]).value


def as_tables(values: Mapping[str, object]) -> dict[str, Any]:
    """Flat keys as tables: `{"sampling.top_k": 5, "name": "x"}` is `{"sampling": {"top_k": 5}, "name": "x"}`."""
    tables: dict[str, Any] = {}
    for path, value in values.items():
        if value is not None:
            table, _, name = path.rpartition(".")
            (tables.setdefault(table, {}) if table else tables)[name] = value
    return tables
