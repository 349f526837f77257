"""The code blocks of an answer, and the files that they name."""

from __future__ import annotations

import pytest

from specchat.app.code_blocks import CodeBlock, find_code_blocks


@pytest.mark.parametrize(
    ("info", "file"),
    [
        ("python", ""),
        ("", ""),
        ("c++", ""),
        ("python src/a.py", "src/a.py"),
        ("python:src/a.py", "src/a.py"),
        ("src/a.py", "src/a.py"),
        ("src/Makefile", "src/Makefile"),
        ('toml title="pyproject.toml"', "pyproject.toml"),
        ("{.python file=a.py}", "a.py"),
        ("python /etc/passwd", "/etc/passwd"),
        ("python ../a.py", "../a.py"),
        ("python the parser", ""),
    ],
)
def test_a_fence_may_name_its_file(info, file):
    assert file == CodeBlock(info, "x\n").file


def test_blocks_stand_in_order_and_one_that_was_not_closed_is_none():
    answer = "a\n```python a.py\nx = 1\n```\n~~~\n```\ny\n~~~\n```python\nz = "

    assert [CodeBlock("python a.py", "x = 1\n"), CodeBlock("", "```\ny\n")] == find_code_blocks(answer)


def test_code_is_the_text_between_fences():
    answer = "x\n```py\na\n```\ny\n````\nb\n```\n````\n"

    assert ["a\n", "b\n```\n"] == [block.text for block in find_code_blocks(answer)]
    assert [] == find_code_blocks("none")
