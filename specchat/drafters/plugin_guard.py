"""A guard around the drafter of a plugin, which may be wrong, slow or hostile.

The drafter runs in a thread of its own and gets copies of the text and of outcomes, and no KV cache. Its tree is
validated and copied. Outcomes
are passed on without waiting while few of them are pending; a proposal is waited for, for a limited time. After an
exception of any kind, or a call that takes too long, the drafter is switched off for the rest of the conversation, and
the answer continues without it. In answers for which it is not selected it hears nothing. The thread starts with the
first call and ends with the conversation. The guard knows no plugin; it reports errors to a callback.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from operator import index
from queue import SimpleQueue
from threading import BoundedSemaphore, Lock, Thread
from threading import Event as Flag
from typing import Any

from torch import Tensor

from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree

MAX_CALL_SECONDS = 2.0  # that an answer waits for the drafter
MAX_PENDING_CALLS = 32  # outcomes and truncations that the drafter has not taken yet; outcomes hold logits


class PluginDrafterGuard(Drafter):
    """Delegates to a plugin's drafter. `on_failure` gets its first exception, from any thread."""

    def __init__(
        self,
        name: str,
        drafter: Drafter,
        vocab_size: int,
        on_failure: Callable[[BaseException], None],
        max_call_seconds: float = MAX_CALL_SECONDS,
    ) -> None:
        self.name, self.drafter, self.vocab_size, self.on_failure = name, drafter, vocab_size, on_failure
        self.is_instant, self.max_call_seconds = bool(drafter.is_instant), max_call_seconds
        self._observes = _has_own(drafter, "observe")
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._free_places, self._lock = BoundedSemaphore(MAX_PENDING_CALLS), Lock()
        self._thread: Thread | None = None
        self._is_off = self._is_unselected = False
        self._missed_length: int | None = None  # to which the text was truncated while it was not selected

    def start_answer(self, task: AnswerTask) -> None:
        """A drafter that may not propose in the next answer hears nothing of it."""
        self._is_unselected = not task.is_selected
        if task.is_selected and self._missed_length is not None:
            length, self._missed_length = self._missed_length, None
            self.forget(length)
        if task.is_selected and _has_own(self.drafter, "start_answer"):
            self._start(lambda: self.drafter.start_answer(task))

    def propose(self, context: DraftContext) -> DraftTree:
        """The drafter's tree, at most `max_draft_tokens` nodes, with the registered name as source."""
        proposed, is_done = list[DraftTree](), Flag()
        seen = context.seen_tokens.copy() if context.seen_tokens is not None else None
        safe_context = replace(context, tokens=list(context.tokens), seen_tokens=seen, cache=None)
        root_token = context.tokens[-1]

        def call() -> None:
            tree = self.drafter.propose(safe_context)
            proposed.append(self._validated_copy(tree, root_token, context.max_draft_tokens))

        self._start(call, is_done)
        if not self._is_off and not is_done.wait(self.max_call_seconds):
            self._switch_off(TimeoutError(f"a proposal took longer than {self.max_call_seconds:g} s"))
        return DraftTree(root_token) if self._is_off or not proposed else proposed[0]

    def observe(self, outcome: Outcome) -> None:
        if self._observes and not (self._is_off or self._is_unselected):
            theirs = _copy_outcome(outcome)
            self._start(lambda: self.drafter.observe(theirs))

    def forget(self, length: int) -> None:
        if self._is_unselected:
            self._missed_length = length if self._missed_length is None else min(length, self._missed_length)
        else:
            self._start(lambda: self.drafter.forget(length))

    def close(self) -> None:
        """Close the drafter after the call that it is in, and end its thread. It is not called again."""
        with self._lock:
            if not self._is_off and _has_own(self.drafter, "close"):
                self._start_thread()
                self._calls.put(self._close_drafter)
            self._is_off = True
            self._calls.put(None)

    def _close_drafter(self) -> None:
        try:
            self.drafter.close()
        except BaseException as error:  # noqa: BLE001 - as in `_call_safely`
            self.on_failure(error)

    def _start(self, call: Callable[[], None], is_done: Flag | None = None) -> None:
        """Pass a call to the thread of the drafter; `is_done` is set after it, also if it fails."""
        if self._is_off:
            return
        if not self._free_places.acquire(timeout=self.max_call_seconds):
            waiting = f"it took none of {MAX_PENDING_CALLS} outcomes for {self.max_call_seconds:g} s"
            self._switch_off(TimeoutError(waiting))
            return
        with self._lock:
            if self._is_off:
                return
            self._start_thread()
            self._calls.put(lambda: self._call_safely(call, is_done or Flag()))

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=_run_calls, args=(self._calls,), name=f"drafter {self.name}", daemon=True)
            self._thread.start()

    def _call_safely(self, call: Callable[[], None], is_done: Flag) -> None:
        try:
            if not self._is_off:
                call()
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, SystemExit too
            self._switch_off(error)
        finally:
            self._free_places.release()
            is_done.set()

    def _switch_off(self, error: BaseException) -> None:
        with self._lock:
            if self._is_off:
                return
            self._is_off = True
            self._calls.put(None)
        self.on_failure(error)

    def _validated_copy(self, tree: object, root_token: int, max_draft_tokens: int) -> DraftTree:
        """A copy of the tree; ValueError if it is no tree for this text, TypeError if its tokens are no integers."""
        if not isinstance(tree, DraftTree) or index(tree.tokens[ROOT]) != root_token:
            raise ValueError("it returned no DraftTree whose root is the last token of the text")
        checked = DraftTree(root_token)
        for each in islice(zip(tree.tokens[1:], tree.parents[1:], strict=True), max_draft_tokens):
            token, parent = map(index, each)
            if not (0 <= token < self.vocab_size and 0 <= parent < len(checked)):
                raise ValueError(f"it drafted token {token} after node {parent}, and one of them does not exist")
            checked.add(token, parent, self.name)
        return checked


def _has_own(drafter: Drafter, method: str) -> bool:
    """Whether the drafter does something in this method."""
    return getattr(type(drafter), method) is not getattr(Drafter, method) or method in vars(drafter)


def call_in_time(function: Callable[[], Any], seconds: float) -> Any:
    """Call a function of a plugin in a thread of its own; TimeoutError when it takes longer."""
    results, errors, is_done = list[Any](), list[BaseException](), Flag()

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            errors.append(error)
        finally:
            is_done.set()

    Thread(target=call, name="plugin", daemon=True).start()
    if not is_done.wait(seconds):
        raise TimeoutError(f"it took longer than {seconds:g} s")
    if errors:
        raise errors[0]
    return results[0]


def _run_calls(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()


def _copy_outcome(outcome: Outcome) -> Outcome:
    tree = DraftTree(outcome.tree.tokens[ROOT])
    for node in range(1, len(outcome.tree)):
        tree.add(outcome.tree.tokens[node], outcome.tree.parents[node], outcome.tree.sources[node])
    return replace(
        outcome,
        tree=tree,
        path=list(outcome.path),
        sampled_tokens=list(outcome.sampled_tokens),
        hidden_states=_clone(outcome.hidden_states),
        logits=_clone(outcome.logits),
    )


def _clone(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()
