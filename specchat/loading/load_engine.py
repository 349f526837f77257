"""Loads a `LoadPlan` into an `Engine`: models, tokenizers, heads, costs. An engine answers, and keeps texts."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from threading import Event as Flag
from time import monotonic

import torch

from specchat.chat.drafted_text import DraftedText, LoadedModels
from specchat.chat.events import Event
from specchat.chat.events import LoadingProgress as LoadingEvent
from specchat.chat.reference_corpus import read_reference_corpus
from specchat.chat.running_answer import RunningAnswer
from specchat.chat.session import Session
from specchat.chat.transcript import Question, Turn
from specchat.chooser.learned_file import learned_file
from specchat.devices import FLOAT_FORMAT, GGUF_FORMAT, device_name, kind_of
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.draft_head import DraftHead
from specchat.drafters.heads.selftest import load_selected_head
from specchat.drafters.registry import (
    BuiltDrafters,
    DraftingResources,
    build_auto_candidates,
    build_drafters,
    runnable_variants,
)
from specchat.drafters.suffix_decoding import PastTextIndex
from specchat.engine.cache import KVPool, allocate_stacks, forms_of
from specchat.engine.cache_sizes import SCRATCH_ROWS, SECOND_SLOT_ROWS, slot_rows
from specchat.engine.decode import TextRows
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model, StatefulModel
from specchat.engine.prefix_cache import PrefixCache
from specchat.errors import ModelError
from specchat.forward.linear.quant_linear import BLOCKS_OF_8_BITS
from specchat.forward.native.native_ops import must_be_compiled, native_kernels
from specchat.hub.find_models import find_model
from specchat.loading.engine_memory import compute_features, free_bytes, memory_of_devices
from specchat.loading.fitted_plan import plan_that_fits
from specchat.loading.load_plan import HeadPlan, LoadPlan, ModelPlan
from specchat.paths import kept_weights_of, kv_folder
from specchat.plugins.own_plugins import OTHER_TOKENS_VARIANT, missing_variant
from specchat.process_memory import collect_all, with_growth
from specchat.profile.drafter_names import all_drafters
from specchat.profile.keys import Profile
from specchat.profile.shipped_drafters import with_shipped_drafters
from specchat.text.thinking import import_parser
from specchat.text.tokenizer import Tokenizer, check_same_tokens
from specchat.threads import ThreadWatchdog, is_thread_count_set, threads_for
from specchat.weights.gguf.gguf_file import forget_headers, size_and_time
from specchat.weights.gguf.gguf_preparation import Report
from specchat.weights.kept_weights import UNFINISHED, digest_of_passes
from specchat.weights.kv_files import KVFiles, kv_identity
from specchat.weights.load import load_model
from specchat.weights.load_options import EMBEDDED

Progress = Callable[[Event], None]
Reporting = Callable[[str, str], Report]  # source and role of a model
DEFAULT_THREADS = torch.get_num_threads()
REPORT_SECONDS = 0.25
COMPILING = "compiling the CPU kernels, once, about 30 s"
GIB = 2**30
QUANTIZED_SHARE = 0.75  # of the bytes of floats: a target of fewer is quantized
MAX_ANSWERS, MAX_ANSWERS_OF_UNKNOWN_SIZE = 16, 2  # at once; with more, each would crawl
KV_SHARE = 0.25  # of the free memory, for the rows of answers that run at once
MAX_ENCODED_TEXTS = 64  # of other conversations, as tokens


@dataclass(frozen=True)
class Engine:
    """The loaded models of a profile. Answers share the weights and what other answers have computed."""

    models: LoadedModels
    resources: DraftingResources
    watchdog: ThreadWatchdog
    threads: int  # of a pass, unless the watchdog may change them
    variants: frozenset[str]  # the drafters that can run
    texts: PrefixCache[DraftedText]
    kv_files: KVFiles | None = None  # None where rows and states of a text cannot be stored
    weight_files: Mapping[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])  # when loaded
    token_table_bytes: int = 0  # of the tokenizer

    def has_changed_files(self) -> bool:
        """Whether a file of the models is another one now."""
        with suppress(ModelError):  # a file that is gone: what is in memory can still answer
            return any(path.exists() and size_and_time(path) != known for path, known in self.weight_files.items())
        return False

    def answer(self, question: Question, cancelled: Flag) -> RunningAnswer:
        """An answer, whose profile must use the same models."""
        models = self._models_for(question.profile)
        return RunningAnswer(models, self.texts, question, cancelled, self.watchdog)

    def forget(self, name: str) -> None:
        """Offer the texts of a conversation no more, and store none of them. Thread-safe."""
        self.texts.forget(name)

    def drop_forgotten(self) -> None:
        self.texts.drop_forgotten()

    def create_session(self, turns: Sequence[Turn] = (), profile: Profile | None = None) -> Session:
        """A conversation for this process, which shares no text with others."""
        models = self._models_for(profile) if profile is not None else self.models
        built = _build_drafters(self.resources, recalls=models.profile.speculation.recall)
        return Session(models, built, turns, self.watchdog)

    def _models_for(self, profile: Profile) -> LoadedModels:
        return replace(self.models, profile=profile)

    def create_completion_drafters(self) -> dict[str, Drafter]:
        """The drafters of completions. They copy from no other conversation."""
        return build_auto_candidates(replace(self.resources, past_texts=None))

    @property
    def max_concurrent_turns(self) -> int:
        """The number of answers that can be decoded in turns. Those that find no memory for their rows wait for it.

        A network with a cache of its own does not say what it takes.
        """
        return MAX_ANSWERS if self.models.target.pool.layout.bytes_per_row else MAX_ANSWERS_OF_UNKNOWN_SIZE

    def activate(self) -> None:
        """Compute with the threads of this engine again, after another one has computed with its own."""
        may_change = self.watchdog.max_threads > 1
        torch.set_num_threads(self.watchdog.threads if may_change else self.threads)

    def close(self) -> None:
        """Store what texts can be stored, and free the memory of unused models now, not at the next allocation."""
        self.texts.close()
        if self.kv_files is not None:
            self.kv_files.wait()
        collect_all()

    def memory_bytes(self) -> dict[str, int]:
        models = {"target": self.resources.target, "draft": self.resources.draft_model}
        loaded = {name: model for name, model in models.items() if model is not None}
        heads = self.resources.heads
        weights = {name: each.bytes for name, each in (*loaded.items(), *heads.items())}
        caches = [each.bytes for each in (self.resources.target.pool, *_pools_of_drafters(self.resources))]
        drafters = sum(text.memory_bytes()["drafters"] for text in self.texts)
        return weights | {"kv_cache": sum(caches), "drafters": drafters, "token_tables": self.token_table_bytes}


def load_engine(
    profile: Profile,
    progress: Progress = lambda _event: None,
    cancelled: Flag | None = None,
    past_texts: Callable[[], Sequence[str]] | None = None,
) -> Engine:
    """Load the models of a profile, and download missing ones. ModelError for models that do not fit the memory.

    A set `cancelled` ends the loading between two models. `past_texts` returns the texts of other conversations, from
    which answers may copy; it is called from a thread.
    """
    reporting = partial(_report_of, progress, cancelled)
    find = lambda name, role: find_model(name, role, reporting(name, role))
    plan = plan_that_fits(profile, compute_features(), memory_of_devices, find)
    plan.check()
    profile = replace(profile, models=with_shipped_drafters(profile.models))
    files = {path: size_and_time(path) for path in plan.files}
    tokenizer, token_table_bytes = with_growth(lambda: Tokenizer(_folder(plan.target)))
    if tokenizer.chat.thinking:
        import_parser()  # else the first answer would wait for it
    resources = DraftingResources(
        _load_and_report("target", plan.target, progress, reporting),
        past_texts=_past_text_index(tokenizer, past_texts) if past_texts is not None else None,
        tokenizer=tokenizer,
        target_folder=_folder(plan.target),
    )
    if plan.draft is not None and not (cancelled and cancelled.is_set()):
        resources = _load_draft(resources, plan.draft, tokenizer, progress, reporting)
    unusable = list[str]()
    for head in plan.heads if not (cancelled and cancelled.is_set()) else ():
        try:
            loaded = _load_head(head, plan.target, resources.target, progress)
            resources = replace(resources, heads={**resources.heads, **loaded})
        except ModelError as error:
            if head.is_named:
                raise
            unusable.append(str(error))
    kept = kept_weights_of(_folder(plan.target)) if plan.target.options.maps_weights else ()
    mapped = {file: size_and_time(file) for each in kept if each.suffix != UNFINISHED for file in each.iterdir()}
    torch.set_num_threads(
        threads_for(resources.target.bytes + sum(size for size, _ in mapped.values()), DEFAULT_THREADS)
    )
    resources.target.set_hidden_state_layers(
        tuple(dict.fromkeys(layer for head in resources.heads.values() for layer in head.hidden_state_layers))
    )
    _share_memory(resources, plan.context_tokens)
    _capture_graphs(resources, progress)
    learned = learned_file(_cost_identity(profile, plan, resources))
    costs, state = learned.load()
    costs.widths = resources.target.graph_widths
    corpus = read_reference_corpus(EMBEDDED / "reference.jsonl") if plan.target.source == "embedded" else None
    notices = (*_notices(plan, resources), *unusable, *filter(None, [learned.fault]))
    kv_files = _kv_files(profile, plan, resources.target)
    models = LoadedModels(resources.target, tokenizer, profile, costs, state, corpus, notices, learned)

    def open_text(recalls: Hashable) -> DraftedText:
        return DraftedText(models, _build_drafters(resources, recalls=bool(recalls)))

    texts = PrefixCache(open_text, kv_files, int(profile.limits.kv_disk * GIB))
    watchdog = _thread_watchdog(resources.target)
    threads, variants = torch.get_num_threads(), runnable_variants(resources)
    forget_headers()
    return Engine(models, resources, watchdog, threads, variants, texts, kv_files, files | mapped, token_table_bytes)


def _build_drafters(resources: DraftingResources, *, recalls: bool) -> BuiltDrafters:
    """The drafters of a text; those that recall copy from other conversations."""
    if not recalls:
        resources = replace(resources, past_texts=None)
    if resources.past_texts is not None:
        resources.past_texts.refresh()
    return build_drafters(resources)


def _share_memory(resources: DraftingResources, context: int) -> None:
    """Let as many answers run at once as a part of the free memory holds, and drafters keep their rows for all of them.

    A full context and a short text beside it always fit, as in an arena.
    """
    pool = resources.target.pool
    rows = slot_rows(min(context, resources.target.context_window) + SCRATCH_ROWS) + SECOND_SLOT_ROWS
    free = free_bytes(str(pool.layout.device))
    pool.budget_bytes = max(rows * pool.layout.bytes_per_row, int(KV_SHARE * free))
    for each in _pools_of_drafters(resources):
        each.target_pool = pool


def _pools_of_drafters(resources: DraftingResources) -> list[KVPool]:
    pools = [each for head in resources.heads.values() for each in head.kv_pools()]
    return pools if resources.draft_model is None else [*pools, resources.draft_model.pool]


def _capture_graphs(resources: DraftingResources, progress: Progress) -> None:
    """Capture the CUDA graphs of all models, so that no turn has to; nothing on a CPU."""
    for role, model in (("target", resources.target), ("draft", resources.draft_model)):
        if model is not None:
            model.capture_graphs(
                lambda done, total, role=role: progress(LoadingEvent(role, done, total, "capturing CUDA graphs"))
            )
    for head in resources.heads.values():
        head.capture_graphs(resources.target)


def _notices(plan: LoadPlan, resources: DraftingResources) -> tuple[str, ...]:
    """What the user should know about the loaded models."""
    notices = [*plan.notices, *filter(None, [plan.offered_draft()])]
    if plan.draft is not None and resources.draft_model is None and resources.draft_tokenizer is not None:
        other_tokens = f"draft {plan.draft.source} is left out: its tokens are not those of the target"
        notices.append(f"{other_tokens}; {missing_variant(OTHER_TOKENS_VARIANT)}")
    if resources.tokenizer is not None and resources.tokenizer.chat.template.is_plain:
        continues = "so it continues the question as plain text; an instruct model answers"
        notices.append(f"{plan.target.source} has no chat template, {continues}")
    return tuple(notices)


def _report_of(progress: Progress, cancelled: Flag | None, source: str, role: str) -> Report:
    """What emits the progress of a preparation or conversion, a few times a second, and stops it on request."""
    reported_at = 0.0

    def report(preparation: str, done: int, total: int) -> None:
        nonlocal reported_at
        if cancelled and cancelled.is_set():
            raise ModelError(f"{source}: {preparation} was stopped")
        if monotonic() - reported_at >= REPORT_SECONDS:
            reported_at = monotonic()
            progress(LoadingEvent(role, done, total, preparation))

    return report


def _thread_watchdog(target: Model) -> ThreadWatchdog:
    """A watchdog that may reduce the threads of a CPU, unless the user has set their number."""
    is_free = not kind_of(target.pool.layout.device).is_gpu and not is_thread_count_set()
    return ThreadWatchdog(torch.get_num_threads() if is_free else 1, torch.get_num_threads, torch.set_num_threads)


def _load_draft(
    resources: DraftingResources, plan: ModelPlan, tokenizer: Tokenizer, progress: Progress, reporting: Reporting
) -> DraftingResources:
    """Load the draft model; one whose tokens are not those of the target only where a plugin can use it."""
    draft_tokenizer = Tokenizer(_folder(plan))
    try:
        check_same_tokens(tokenizer, draft_tokenizer)
    except ModelError:
        resources = replace(resources, draft_tokenizer=draft_tokenizer)
        if OTHER_TOKENS_VARIANT not in all_drafters():
            return resources
    return replace(resources, draft_model=_load_and_report("draft", plan, progress, reporting))


def _load_head(plan: HeadPlan, target_plan: ModelPlan, target: Model, progress: Progress) -> dict[str, DraftHead]:
    """Load a head, by its kind. A self-test selects the variant if the files leave it open."""
    assert plan.path is not None, f"{plan.source} is not fetched"
    spec = inspect_head(plan.path)
    progress(LoadingEvent(f"head {spec.kind}", 0, 0))
    weights = head_format(target_plan, target)
    head = load_selected_head(spec, target, None, target.pool.layout.device, weights=weights)
    return {spec.kind: head}


def head_format(target_plan: ModelPlan, target: Model) -> str:
    """8 bits beside a quantized target: otherwise drafting would cost more than the smaller passes save.

    On a CPU that is one of GGUF blocks.
    """
    layout, architecture = target.pool.layout, target_plan.architecture()
    if target_plan.options.quant_format == GGUF_FORMAT:
        return BLOCKS_OF_8_BITS
    if architecture is None or not kind_of(layout.device).has_kernels:
        return FLOAT_FORMAT
    float_bytes = layout.dtype.itemsize * architecture.parameters
    return BLOCKS_OF_8_BITS if target.bytes < QUANTIZED_SHARE * float_bytes else FLOAT_FORMAT


def _past_text_index(tokenizer: Tokenizer, past_texts: Callable[[], Sequence[str]]) -> PastTextIndex:
    """An index of other conversations; their tokens are cached, because most texts do not change."""
    encode = lru_cache(maxsize=MAX_ENCODED_TEXTS)(tokenizer.encode)
    return PastTextIndex(lambda: map(encode, past_texts()))


def _cost_identity(profile: Profile, plan: LoadPlan, resources: DraftingResources) -> dict[str, str]:
    target, draft, models = resources.target, resources.draft_model, profile.models
    draft_format = plan.draft.options.quant_format if plan.draft else ""
    return {
        "target": f"{models.target} {plan.target.options.quant_format} {target.bytes}",
        "draft": f"{models.draft} {draft_format} {draft.bytes} {_device_name(draft)}" if draft else "",
        "heads": " ".join(f"{name} {head.bytes}" for name, head in resources.heads.items()),
        "dtype": _kv_form(target),
        "exact": str(plan.target.options.exact),
        "device": _device_name(target),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
    }


def _kv_files(profile: Profile, plan: LoadPlan, target: Model) -> KVFiles | None:
    """Where KV caches are kept; None for a model with states that cannot be stored."""
    layout = target.pool.layout
    if not layout.has_all_layers and not isinstance(target, StatefulModel):
        return None
    files = sorted(_folder(plan.target).iterdir())
    identity = {
        "code": digest_of_passes(),
        "model": [profile.models.target, [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files]],
        "form": [plan.target.options.quant_format, target.bytes, _kv_form(target), plan.target.options.exact],
        "rows": layout.shapes,
        "machine": [_device_name(target), compute_features()],
    }
    return KVFiles(kv_folder(), kv_identity(identity), partial(_are_rows_of, target))


def _are_rows_of(target: Model, rows: TextRows) -> bool:
    """Whether a model can go on from these rows and states."""
    own = allocate_stacks(target.pool.layout.on(torch.device("meta")), len(rows.tokens) - 1)
    states = {forms_of(each) for each in rows.states.values()}
    own_states = {target.state_forms} if isinstance(target, StatefulModel) else set()
    return (forms_of(rows.stacks), states) == (forms_of(own), own_states)


def _kv_form(target: Model) -> str:
    """The dtype of passes, the format of a KV cache that has another, and what other devices compute."""
    layout = target.pool.layout
    layers = "".join(f", {count} layers on {device_name(device)}" for device, count in layout.places)
    return f"{layout.dtype}{', int8 KV cache' * layout.is_int8}{layers}"


def _device_name(model: Model) -> str:
    return device_name(model.pool.layout.device)


def _folder(plan: ModelPlan) -> Path:
    assert plan.folder is not None, f"{plan.source} is not fetched"
    return plan.folder


def _load_and_report(role: str, plan: ModelPlan, progress: Progress, reporting: Reporting) -> Model:
    if (not kind_of(plan.options.device).is_gpu or plan.options.cpu_layers) and must_be_compiled():
        progress(LoadingEvent(role, 0, 0, COMPILING))
        native_kernels()
    progress(LoadingEvent(role, 0, plan.stored_bytes))
    model = load_model(_folder(plan), plan.options, reporting(plan.source, role))
    progress(LoadingEvent(role, plan.stored_bytes, plan.stored_bytes))
    return model
