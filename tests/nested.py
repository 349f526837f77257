"""Parts of nested tuples, lists and dicts: `torch.utils._pytree` for the few kinds that kernels take, but fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def tree_leaves(tree: Any) -> list[Any]:
    """What is in this tree and no container; None counts."""
    return list(_leaves(tree))


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, tuple | list):
        for each in tree:
            yield from _leaves(each)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        yield tree


def tree_map(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with other leaves."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return kind([tree_map(change, each) for each in tree])
    if kind is dict:
        return {key: tree_map(change, each) for key, each in tree.items()}
    if isinstance(tree, tuple):  # one of torch, with names; such as torch.Size it may also be one of numbers
        parts = [tree_map(change, each) for each in tree]
        return kind(*parts) if hasattr(tree, "_fields") else kind(parts)
    return change(tree)
