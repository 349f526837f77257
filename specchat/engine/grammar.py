"""Answers of a prescribed form: which tokens may follow each node of a tree.

Decoding under a grammar is decoding from masked logits; the mask of a node depends on that node's own path alone, so
the argument of `verify.py` stands as it is: what comes out is what plain decoding under the same grammar picks. Those
who draft know nothing of it. What they guess against the rules is cut off before it costs a row, and where the rules
leave one way to go on, that way is guessed for nothing, ahead of everybody.

Knows no language of grammars and no text: an automaton over token ids is given (`models/llguidance_grammar.py` makes one).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.tree import ROOT, DraftTree

GRAMMAR_SOURCE = "grammar"  # who guessed what could not be otherwise


class Grammar(Protocol):
    """An automaton that has read the answer so far. It may be asked about guesses, and is then put back."""

    def allowed_mask(self) -> Tensor:
        """Which tokens may come next. bool [V]"""
        ...

    def advance(self, token: int) -> bool:
        """Read a token; False, and nothing is read, when it may not come here."""
        ...

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens."""
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that most likely come next because the text cannot go on otherwise; a guess like any other."""
        ...


def constrain_tree(tree: DraftTree, grammar: Grammar, max_draft_tokens: int) -> tuple[DraftTree, Tensor]:
    """The tree without what may not be, led by what must be, at most `budget` guesses; and masks. bool [N, V]

    Under {"colour": "red" or "blue"} and a root behind `{"col`, a guess `umn` is cut, and `our`, `": "` is there even
    if nobody guessed it.
    """
    tree = _with_forced_tokens(tree, grammar.forced_tokens()[:max_draft_tokens], max_draft_tokens)
    children: list[list[int]] = [[] for _node in tree.tokens]
    for node, parent in enumerate(tree.parents[1:], start=1):
        children[parent].append(node)
    masks: dict[int, Tensor] = {}

    def visit(node: int) -> None:
        masks[node] = grammar.allowed_mask()
        for child in children[node]:
            if grammar.advance(tree.tokens[child]):
                visit(child)
                grammar.rollback(1)

    visit(ROOT)
    kept = sorted(masks)
    return tree.prune(kept[1:]), torch.stack([masks[node] for node in kept])


def advance_all(grammar: Grammar, tokens: list[int]) -> None:
    """Read what became sure."""
    for token in tokens:
        is_allowed = grammar.advance(token)
        assert is_allowed, f"token {token} was picked against the grammar"


def _with_forced_tokens(tree: DraftTree, forced_tokens: list[int], max_draft_tokens: int) -> DraftTree:
    """The forced tokens as a chain from the root, then as much of the tree as fits."""
    if not forced_tokens:
        return tree
    led, place = DraftTree(tree.tokens[ROOT]), {ROOT: ROOT}
    led.add_chain(forced_tokens, source=GRAMMAR_SOURCE)
    for node in range(1, len(tree)):
        parent = place.get(tree.parents[node])
        if parent is None:
            continue
        found = led.child(parent, tree.tokens[node])
        if found is None and len(led) <= max_draft_tokens:
            found = led.add(tree.tokens[node], parent, tree.sources[node])
        if found is not None:
            place[node] = found
    led.samples = {place[node]: draw for node, draw in tree.samples.items() if node in place}
    return led
