"""Comments and docstrings."""

from __future__ import annotations

from specchat.syntax import comments
from tests.each_row import each_row


@each_row(
    "language, text, expected",
    [
        ("python", '"""A."""\nx = "no"  # yes\ndef f():\n    """B."""\n    "no"\n', ['"""A."""', "# yes", '"""B."""']),
        ("javascript", "// a\nlet s = '// no' /* b */\n", ["// a", "/* b */"]),
        ("rust", "/// a\nfn f() {}\n", ["/// a"]),
        ("html", "<!-- a --><p>b</p>", ["<!-- a -->"]),
        ("markdown", "# Heading\n", []),
        ("", "# no language\n", []),
    ],
)  # fmt: skip
def test_comments_and_docstrings_are_found(language, text, expected):
    assert expected == [each.text for each in comments(text, language)]
