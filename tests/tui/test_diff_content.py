"""A diff as coloured text: nothing of it is lost, whatever its lines hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.drawing.glyphs import printable
from specchat.tui.diff_content import diff_content


@pytest.mark.full
@given(
    st.sampled_from(["a.py", "b.md", "c", "d.json", "e.rs"]),
    st.lists(st.tuples(st.sampled_from("+- @"), st.text(st.characters(exclude_characters="\n"))).map("".join)),
)
def test_the_text_of_a_diff_is_kept_in_every_language(file, lines):
    diff = "\n".join(lines)

    assert diff_content(file, diff).plain == "\n".join(printable(line.rstrip("\r\n")) for line in diff.split("\n"))


def test_marks_have_the_colour_of_their_line_and_the_code_that_of_its_language():
    content = diff_content("a.py", " def f():\n-    return 1\n+    return 'two'")
    coloured = {content.plain[span.start : span.end]: str(span.style) for span in content.spans}

    assert {"-": "$text-error", "+": "$text-success"}.items() <= coloured.items()
    assert coloured["    return 'two'".strip().partition(" ")[0]] == coloured["def"]
    assert coloured["+    return 'two'"] == "on $success 15%"
