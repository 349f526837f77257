"""Kinds of heads that plugins add: their formats are asked first, and a broken one is left out."""

from __future__ import annotations

import pytest

HOOKS = """
@hookimpl
def register_heads():
    return [
        Extension("absent", "a kind whose module is missing", "no_such_module:detect"),
        Extension("own", "a kind of its own", "own_format:detect"),
    ]

"""
FORMAT = """
from specchat.drafters.heads.spec import HeadSpec


def detect(checkpoint):
    return HeadSpec("own", "Own", checkpoint.tensors) if "model.layers.3.eh_proj.weight" in checkpoint.tensors else None

"""


@pytest.fixture
def own_format(install):
    folder = install("heads_of_a_plugin", HOOKS)
    (folder / "own_format.py").write_text(FORMAT)


@pytest.mark.usefixtures("own_format")
def test_a_format_of_a_plugin_is_asked_before_the_built_in_ones_and_a_broken_one_is_left_out(capsys):
    from specchat.drafters.heads.detect import inspect_head
    from tests.tiny_heads import saved_head

    assert "own" == inspect_head(saved_head("mtp")).kind
    assert "eagle3" == inspect_head(saved_head("eagle3")).kind
    assert "plugin heads_of_a_plugin: 'absent' cannot be loaded from no_such_module:detect" in capsys.readouterr().err
