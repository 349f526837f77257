"""The decoding loop: draft, verify, accept, commit. It treats all drafters alike.

A `Generation` is a text and all state about it: the target's KV cache and the drafters. Only this file extends or
truncates them, so that after a stop, a cancel or an edit they all describe the same text.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from torch import Tensor

from specchat.engine.accept import accept
from specchat.engine.cache import KVCache, Stacks
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.grammar import Grammar, advance_all, constrain_tree
from specchat.engine.joint_passes import JointPasses
from specchat.engine.model import (
    MAX_PROMPT_HIDDEN_STATES,
    Model,
    ModelOutput,
    SampledOutput,
    SamplingModel,
    StatefulModel,
    TextStates,
)
from specchat.engine.pass_clock import pass_seconds, paused_clock
from specchat.engine.penalties import SeenTokens
from specchat.engine.probabilities import TokenProbabilities, token_probabilities
from specchat.engine.sampling import Sampler, pack_samples
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError


@dataclass(frozen=True)
class Step:
    tree: DraftTree
    path: list[int]  # accepted nodes, root first
    committed_tokens: list[int]  # accepted draft tokens, then the target's own token
    draft_seconds: float
    verify_seconds: float
    probabilities: tuple[TokenProbabilities, ...] = ()  # of the committed tokens; empty if they are not wanted
    other_rows: int = 0  # of other texts in its pass
    elsewhere_seconds: float = 0.0  # of its pass, if it ran in the turn of another text

    @property
    def accepted(self) -> int:
        return len(self.path) - 1

    @property
    def drafted(self) -> int:
        return len(self.tree) - 1


@dataclass(frozen=True)
class GenerationConfig:
    drafter: Drafter
    sampler: Sampler
    max_draft_tokens: int  # in one pass
    max_new_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    grammar: Grammar | None = None  # in its initial state
    wants_probabilities: bool = False  # of the committed tokens and the likeliest others, to show them
    is_repeating: Callable[[], bool] = lambda: False  # whether the text repeats itself at its end, before a step


@dataclass(frozen=True)
class TextRows:
    """The tokens of a text, and what a model computed for all of them but the last."""

    tokens: list[int]
    stacks: Stacks
    states: TextStates = field(default_factory=dict[int, Mapping[str, Tensor]])  # the last one follows the last row


class Generation:
    """The committed tokens of one text, with their KV cache and the drafters.

    Invariant between steps: the cache never holds the last token.
    """

    def __init__(
        self, target: Model, drafters: tuple[Drafter, ...] = (), joint_passes: JointPasses | None = None
    ) -> None:
        self.target, self.drafters, self._joint_passes = target, drafters, joint_passes or JointPasses()
        self._sampling_target = target if isinstance(target, SamplingModel) else None  # a check that takes its time
        self.cache: KVCache = target.pool.open()
        self.tokens: list[int] = []

    def replace_tokens(self, tokens: list[int]) -> int:
        """Make `tokens` the text and keep the cache of the common prefix; returns the number of cached tokens."""
        shared = common_prefix_length(self.tokens, tokens)
        self.truncate(shared)
        self.tokens += tokens[shared:]
        self._truncate_caches(len(tokens) - 1)
        return self.cache.length

    def rows_shared_with(self, tokens: Sequence[int]) -> int:
        """How many rows of the cache `replace_tokens` would keep."""
        return self.cache.length_after_rollback(max(common_prefix_length(self.tokens, tokens) - 1, 0))

    def copy_rows(self, row_count: int | None = None) -> TextRows | None:
        """The text as far as the cache has it, to continue it with the same model later; of `row_count`, the beginning.

        With states, it ends where there is one. None for a model whose states cannot be copied, or without any row.
        """
        length, states = min(self.cache.length, self.cache.length if row_count is None else row_count), {}
        if isinstance(self.target, StatefulModel):
            states = self.target.copy_states(self.cache, length)
            length = max(states, default=0)
        elif not self.target.pool.layout.has_all_layers:
            return None
        return (
            TextRows(self.tokens[: length + 1], self.target.pool.copy_rows(self.cache, length), states)
            if length
            else None
        )

    def restore(self, rows: TextRows) -> None:
        """Begin with a text whose rows an earlier generation of this model computed."""
        self.tokens = list(rows.tokens)
        self.target.pool.restore_rows(self.cache, rows.stacks, len(rows.tokens) - 1)
        if isinstance(self.target, StatefulModel):
            self.target.restore_states(self.cache, rows.states)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens, in the text, the cache and the drafters."""
        del self.tokens[length:]
        self._truncate_caches(length - 1)  # the last token is computed again as the root of the next pass

    def rows_needed(self, max_new_tokens: int) -> int:
        """Rows of cache for the text, the answer and the draft tokens past its end."""
        return len(self.tokens) + max_new_tokens + SCRATCH_ROWS

    def prefill(self) -> Iterator[int]:
        """Prefill the text without its last token, in chunks; yields the cache length after each chunk."""
        while (unread := len(self.tokens) - 1 - self.cache.length) > 0:
            start = self.cache.length
            chunk = self.tokens[start : start + min(unread, self.target.prefill_chunk)]
            output = self.target.prefill(chunk, self.cache)
            if any(drafter.hidden_state_layers for drafter in self.drafters):
                self._observe_prompt(chunk, start, output.hidden_states)
            yield self.cache.length

    def generate(self, config: GenerationConfig) -> list[Step]:
        """Prefill and decode one answer without a pause."""
        with self.target.pool.acquire_slot(self.cache, self.rows_needed(config.max_new_tokens)):
            for _length in self.prefill():
                pass
            return list(self.decode(config))

    def decode(self, config: GenerationConfig) -> Iterator[Step]:
        """Extend the text, one step at a time, until a stop token or the limit. `prefill` must have finished."""
        return filter(None, self.decode_jointly(config))

    def decode_jointly(self, config: GenerationConfig) -> Iterator[Step | None]:
        """As `decode`, and None where other texts shall have their turns before a pass that they share."""
        with self._joint_passes.member():
            yield from self._decode(config)

    def _decode(self, config: GenerationConfig) -> Iterator[Step | None]:
        remaining, sampler = config.max_new_tokens, config.sampler
        seen = sampler.make_seen_tokens(self.tokens, self.target.vocab_size, self.target.pool.layout.device)
        while remaining > 0:
            started_at = pass_seconds()
            budget = min(config.max_draft_tokens, remaining - 1, self.target.max_rows - 1)
            if budget in (widths := self.target.graph_widths) and budget + 1 not in widths:
                budget -= 1  # the last draft token alone would need a wider graph
            context = DraftContext(self.tokens, sampler, budget, seen, self.cache)
            tree = config.drafter.propose(context) if budget > 0 else DraftTree(self.tokens[-1])
            if not self.target.supports_trees:
                tree = tree.first_chain(budget)
            drafted_at = pass_seconds()
            allowed = None
            if config.grammar is not None and not config.grammar.is_free(tree.tokens[1:]):
                tree, allowed = constrain_tree(tree, config.grammar, budget)
            joint = yield from self._joint_passes.compute(self.target, tree, self.cache)
            resumed_at = pass_seconds() - joint.seconds
            verified = self._verify(tree, sampler, seen, allowed, joint.output)
            output, (sampled, finite) = verified.output, _wait_for(verified.samples)
            path = _truncate_at_stop(tree, accept(tree, sampled), config.stop_token_ids)[:remaining]
            _check_numbers([finite[node] for node in path])
            self.cache.commit(path)
            hidden_states = output.hidden_states
            if hidden_states is not None:
                hidden_states = hidden_states.index_select(0, copy_to_device(path, hidden_states.device))
            outcome = Outcome(
                tree, path, sampled, len(self.tokens) - 1, hidden_states, output.logits,
                draft_seconds=drafted_at - started_at, verify_seconds=pass_seconds() - resumed_at,
                is_repeated=config.is_repeating(), other_rows=joint.other_rows, other_texts=joint.other_texts,
            )  # fmt: skip
            probabilities = self._probabilities(outcome, output, config) if config.wants_probabilities else ()
            for drafter in self.drafters:
                drafter.observe(outcome)
            self.tokens += outcome.committed_tokens
            if seen is not None:
                seen.extend(outcome.committed_tokens)
            if config.grammar is not None:
                advance_all(config.grammar, outcome.committed_tokens)
            remaining -= len(outcome.committed_tokens)
            yield Step(
                tree, path, outcome.committed_tokens, drafted_at - started_at, pass_seconds() - resumed_at,
                probabilities, joint.other_rows, joint.seconds * joint.is_elsewhere,
            )  # fmt: skip
            if outcome.committed_tokens[-1] in config.stop_token_ids:
                return

    def _probabilities(
        self, outcome: Outcome, output: ModelOutput, config: GenerationConfig
    ) -> tuple[TokenProbabilities, ...]:
        """Read from the logits before the next pass overwrites them; the clock of passes stands still meanwhile."""
        with paused_clock():
            return token_probabilities(output.logits, outcome.path, outcome.committed_tokens, config.sampler.vocab_size)

    def measure_pass(self, row_count: int, sampler: Sampler) -> float:
        """The seconds of a pass over so many rows and of sampling from them; nothing is committed.

        The rows are the latest tokens of the text: in a mixture of experts, a pass costs more when its rows differ.
        """
        tree = DraftTree(self.tokens[-1])
        tree.add_chain(list(islice(cycle(self.tokens[-row_count:]), row_count - 1)))
        seen = sampler.make_seen_tokens(self.tokens, self.target.vocab_size, self.target.pool.layout.device)
        started_at = pass_seconds()
        _wait_for(self._verify(tree, sampler, seen, None).samples)
        return pass_seconds() - started_at

    def _verify(
        self,
        tree: DraftTree,
        sampler: Sampler,
        seen: SeenTokens | None,
        allowed: Tensor | None,
        computed: ModelOutput | None = None,
    ) -> SampledOutput:
        """One pass over a tree, unless it is computed, and the target's sample at every node; one CUDA graph if any."""
        rows = sampler.rows_of_tree(tree, len(self.tokens), allowed)
        if self._sampling_target is not None:
            sampled = self._sampling_target.forward_and_sample(tree, self.cache, sampler, rows, seen, computed)
            if sampled is not None:
                return sampled
        output = computed or self.target.forward(tree, self.cache)
        return SampledOutput(output, pack_samples(sampler.rank(output.logits, rows, seen)))

    def add_drafter(self, drafter: Drafter) -> None:
        self.drafters = (*self.drafters, drafter)

    def close(self) -> None:
        self.target.pool.close(self.cache)

    def _truncate_caches(self, length: int) -> None:
        self.cache.rollback(max(length, 0))
        for drafter in self.drafters:
            drafter.forget(self.cache.length)

    def _observe_prompt(self, chunk: list[int], start: int, hidden_states: Tensor | None) -> None:
        remaining = len(self.tokens) - 1 - start
        if remaining > MAX_PROMPT_HIDDEN_STATES + len(chunk):
            return
        tree = DraftTree(chunk[0])
        tree.add_chain(chunk[1:], source="text")
        following = self.tokens[start + 1 : start + 1 + len(chunk)]
        outcome = Outcome(tree, list(range(len(chunk))), following, start, hidden_states)
        for drafter in self.drafters:
            drafter.observe(outcome)


def common_prefix_length(first: Sequence[object], second: Sequence[object]) -> int:
    shorter = range(min(len(first), len(second)) + 1)
    return bisect_left(shorter, True, key=lambda length: first[:length] != second[:length]) - 1


def _wait_for(samples: Tensor) -> tuple[list[int], list[int]]:
    """The token after each row, and whether its score is a finite number: here a step waits for the device, once."""
    rows: list[list[int]] = samples.tolist()
    return [token for token, _ in rows], [is_finite for _, is_finite in rows]


def _check_numbers(finite: list[int]) -> None:
    """ModelError when the logits of a sampled token are not finite: the answer would be noise."""
    if not all(finite):
        raise ModelError(
            "the model computes numbers that are not finite: its weights are damaged, or too large for their dtype; "
            "try --dtype float32"
        )


def _truncate_at_stop(tree: DraftTree, path: list[int], stop_token_ids: frozenset[int]) -> list[int]:
    """Cut the path before the first stop token: that token then is the target's own sample."""
    for count, node in enumerate(path[1:], start=1):
        if tree.tokens[node] in stop_token_ids:
            return path[:count]
    return path
