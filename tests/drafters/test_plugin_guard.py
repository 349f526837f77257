"""The guard around the drafter of a plugin: it can be wrong, slow or hostile and changes nothing but the speed."""

from __future__ import annotations

import sys
from threading import Event as Flag
from threading import current_thread

import numpy as np
import pytest
import torch

from specchat.drafters.plugin_guard import MAX_PENDING_CALLS, PluginDrafterGuard
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree

TEXT = [5, 6, 7]
CPU = torch.device("cpu")


class Theirs(Drafter):
    """Calls a function to propose, and stores its calls."""

    name = "theirs"
    is_instant = True

    def __init__(self, propose_function) -> None:
        self.propose_function, self.calls = propose_function, []

    def propose(self, context):
        self.calls.append(context)
        return self.propose_function(context)

    def observe(self, outcome):
        self.calls.append(outcome)

    def forget(self, length):
        self.calls.append(length)


def chain(*tokens: int, root: int = TEXT[-1]):
    def propose_function(_context):
        tree = DraftTree(root)
        tree.add_chain(list(tokens), source="another")
        return tree

    return propose_function


def guarded(propose_function, errors=None, seconds: float = 60.0) -> PluginDrafterGuard:
    on_failure = (errors if errors is not None else []).append
    return PluginDrafterGuard("counting", Theirs(propose_function), 100, on_failure, seconds)


def asked(drafter: Drafter, budget: int = 4) -> DraftTree:
    return drafter.propose(DraftContext(list(TEXT), Sampler(), budget))


def heard(drafter: PluginDrafterGuard) -> list[object]:
    """The outcomes and truncations that reached the plugin so far."""
    asked(drafter)
    return [call for call in drafter.drafter.calls if not isinstance(call, DraftContext)]


def outcome() -> Outcome:
    return Outcome(DraftTree(7), [0], [8], 2, logits=torch.zeros(1, 100), verify_seconds=0.5)


def test_draft_tokens_have_the_registered_name_as_source():
    tree = asked(guarded(chain(8, 9)))

    assert [7, 8, 9] == tree.tokens
    assert ["text", "counting", "counting"] == tree.sources
    assert guarded(chain()).is_instant


@pytest.mark.parametrize("number", [np.int64(8), np.uint8(8), torch.tensor(8)], ids=lambda number: str(type(number)))
def test_draft_tokens_become_plain_integers(number):
    assert [int, int] == [type(token) for token in asked(guarded(chain(number))).tokens]


def test_the_budget_is_enforced():
    assert [7, 1, 1, 1] == asked(guarded(chain(*[1] * 50)), budget=3).tokens


def test_a_branching_tree_keeps_its_shape():
    def fork(_context):
        tree = DraftTree(7)
        tree.add(1), tree.add(2), tree.add(3, parent=1)
        return tree

    assert [-1, 0, 0, 1] == asked(guarded(fork)).parents


def test_it_can_change_neither_the_text_nor_the_cache_nor_the_penalties():
    drafter, text, seen = guarded(chain(8)), list(TEXT), SeenTokens([5], 100, CPU)
    drafter.propose(DraftContext(text, Sampler(), 4, seen, cache="the target's own"))

    [context] = drafter.drafter.calls
    context.tokens.clear()
    context.seen_tokens.token_ids[6] = None
    context.seen_tokens.counts[:] = 1
    assert TEXT == text
    assert [5] == list(seen.token_ids)
    assert not seen.counts.any()
    assert context.cache is None


def test_it_can_change_no_outcome():
    drafter, own = guarded(chain()), outcome()
    drafter.observe(own)

    [theirs] = heard(drafter)
    theirs.tree.add(9)
    theirs.path.append(9)
    theirs.sampled_tokens.clear()
    theirs.logits.fill_(9.0)
    assert [8] == own.committed_tokens
    assert 1 == len(own.tree)
    assert not own.logits.any()


@pytest.mark.parametrize(
    "propose_function",
    [
        chain(100), chain(-1), chain(8.0), chain(8, root=1), lambda _context: [8], lambda _context: None,
        lambda _context: 1 / 0, lambda _context: sys.exit(3), lambda _context: exec("raise KeyboardInterrupt"),
    ],
    ids=["beyond", "negative", "float", "other root", "list", "nothing", "raises", "exits", "interrupts"],
)  # fmt: skip
def test_after_an_error_it_is_switched_off_and_reported_once(propose_function):
    errors = []
    drafter = guarded(propose_function, errors)

    assert [[7], [7]] == [asked(drafter).tokens, asked(drafter).tokens]
    drafter.observe(outcome())
    drafter.forget(1)
    assert 1 == len(errors)
    assert 1 == len(drafter.drafter.calls)


def test_an_error_while_it_observes_switches_it_off_too():
    errors = []
    drafter = guarded(chain(8), errors)
    drafter.drafter.observe = lambda _outcome: sys.exit("no")

    drafter.observe(outcome())

    assert [7] == asked(drafter).tokens
    assert ["no"] == [str(error) for error in errors]


def test_a_drafter_that_takes_too_long_is_switched_off_and_the_answer_goes_on():
    errors, released = [], Flag()
    drafter = guarded(lambda _context: released.wait(), errors, seconds=0.01)

    assert [7] == asked(drafter).tokens
    released.set()
    assert [7] == asked(drafter).tokens
    assert [TimeoutError] == [type(error) for error in errors]
    assert "longer than 0.01 s" in str(errors[0])


def test_a_drafter_that_observes_too_slowly_is_switched_off():
    errors, released = [], Flag()
    drafter = guarded(chain(8), errors, seconds=0.01)
    drafter.drafter.observe = lambda _outcome: released.wait()
    for _ in range(MAX_PENDING_CALLS + 3):
        drafter.observe(outcome())

    assert [TimeoutError] == [type(error) for error in errors]
    released.set()


def test_outcomes_and_truncations_are_passed_on_in_order():
    drafter, own = guarded(chain()), outcome()

    drafter.observe(own)
    drafter.forget(1)

    theirs, length = heard(drafter)
    assert (own.committed_tokens, own.verify_seconds, 1) == (theirs.committed_tokens, theirs.verify_seconds, length)


def test_a_drafter_that_is_not_selected_hears_nothing_and_then_only_how_much_of_the_text_is_left():
    drafter = guarded(chain())
    drafter.start_answer(AnswerTask(is_selected=False))
    for length in (9, 2, 4):
        drafter.observe(outcome())
        drafter.forget(length)
    assert [] == drafter.drafter.calls

    drafter.start_answer(AnswerTask(is_selected=True))
    drafter.observe(outcome())

    assert [2, Outcome] == [call if isinstance(call, int) else type(call) for call in heard(drafter)]


def test_a_selected_drafter_hears_of_each_answer_and_is_closed_once_in_its_thread():
    drafter, threads = guarded(chain(8)), []
    drafter.drafter.start_answer = drafter.drafter.calls.append
    drafter.drafter.close = lambda: threads.append(current_thread())
    tasks = [AnswerTask("chat"), AnswerTask("edit", is_selected=False)]

    for task in tasks:
        drafter.start_answer(task)
    asked(drafter)
    thread = drafter._thread
    drafter.close()
    drafter.close()
    thread.join(120)

    assert [AnswerTask, DraftContext] == [type(call) for call in drafter.drafter.calls]
    assert tasks[0] == drafter.drafter.calls[0]
    assert [thread] == threads


def test_an_error_while_it_is_closed_is_reported():
    errors = []
    drafter = guarded(chain(8), errors)
    drafter.drafter.close = lambda: 1 / 0

    drafter.close()
    drafter._thread.join(120)

    assert [ZeroDivisionError] == [type(error) for error in errors]


def test_its_thread_starts_with_the_first_call_and_ends_when_it_is_closed():
    drafter = guarded(chain(8))
    assert drafter._thread is None

    asked(drafter)
    thread = drafter._thread
    drafter.close()
    thread.join(120)

    assert not thread.is_alive()
    assert [7] == asked(drafter).tokens


def test_its_thread_ends_after_an_error():
    drafter = guarded(lambda _context: 1 / 0)

    asked(drafter)
    drafter._thread.join(120)

    assert not drafter._thread.is_alive()


def test_a_burst_of_outcomes_waits_until_the_drafter_has_taken_some():
    errors, drafter = [], guarded(chain(8), None)
    drafter.on_failure = errors.append
    for _ in range(5 * MAX_PENDING_CALLS):
        drafter.observe(outcome())

    assert 5 * MAX_PENDING_CALLS == len(heard(drafter))
    assert [] == errors
