"""Sketches: merged where their place is certain, refused with the reason where it is not."""

from __future__ import annotations

import pytest

from specchat.edit.sketch import UnclearSketchError
from specchat.edit.source_text import make_source
from specchat.errors import InputError
from specchat_apply.merge import StructureMerger, keep_to_sketch, merge_sketch, missing_line

GAP = "# ... existing code ...\n"
CODE = '''\
import os


class Store:
    """Texts by name."""

    def load(self, name):
        with open(name) as file:
            return file.read()

    def save(self, name, text):
        self.check(name)
        with open(name, "w") as file:
            file.write(text)

    def check(self, name):
        if os.sep in name:
            raise ValueError(name)


def main():
    store = Store()
    store.save("a", "b")
    return store
'''
SAVE = "    def save(self, name, text):\n"


def merged(sketch: str, text: str = CODE, name: str = "a.py") -> str:
    return merge_sketch(make_source(text.encode(), name), sketch)


def replaced(*pairs: tuple[str, str]) -> str:
    text = CODE
    for old, new in pairs:
        assert 1 == text.count(old)
        text = text.replace(old, new)
    return text


QUIET = ('        with open(name, "w") as file:\n', '        with open(name, "w", newline="") as file:\n')
TAKEN = {
    "a line on each side": (
        f"        {GAP}        self.check(name)\n{QUIET[1]}            file.write(text)\n        {GAP}",
        replaced(QUIET),
    ),
    "headers, one marker in each body": (
        f"{GAP}class Store:\n    {GAP}{SAVE}        {GAP}{QUIET[1]}            file.write(text)\n    {GAP}".replace(
            f"        {GAP}", "        self.check(name)\n"
        ),
        replaced(QUIET),
    ),
    "a whole function, changed in its first line, too": (
        f"{GAP}    def check(self, name, sign=os.sep):\n        assert sign not in name\n{GAP}",
        replaced(
            (
                "    def check(self, name):\n        if os.sep in name:\n            raise ValueError(name)\n",
                "    def check(self, name, sign=os.sep):\n        assert sign not in name\n",
            )
        ),
    ),
    "a method alone, at the margin": (
        "def load(self, name):\n    return open(name).read()\n",
        replaced(
            (
                "        with open(name) as file:\n            return file.read()\n",
                "        return open(name).read()\n",
            )
        ),
    ),
    "a dropped line, between two that are shown": (
        f"{GAP}    store = Store()\n    return store\n",
        replaced(('    store.save("a", "b")\n', "")),
    ),
    "a new method at the end of a class": (
        f"{GAP}class Store:\n    {GAP}\n    def clear(self):\n        self.names = []\n\n{GAP}",
        replaced(
            (
                "            raise ValueError(name)\n",
                "            raise ValueError(name)\n\n    def clear(self):\n        self.names = []\n",
            )
        ),
    ),
    "a new import": (f"import os\nimport sys\n{GAP}", replaced(("import os\n", "import os\nimport sys\n"))),
    "in a fence, with CRLF": (
        f"```python\n{GAP}    store = Store()\n    store.save('a', 'c')\n    return store\n```\n".replace("\n", "\r\n"),
        replaced(('store.save("a", "b")', "store.save('a', 'c')")),
    ),
    "a diff with other lines around": (
        """\
@@ -20,4 +20,4 @@
 def main(args):
     store = Store()
-    store.save("a", "b")
+    store.save("a", "c")
     return store
""",
        replaced(('"a", "b"', '"a", "c"')),
    ),
    "a search at the margin": (
        """\
<<<<<<< SEARCH
if os.sep in name:
    raise ValueError(name)
=======
if os.sep in name:
    raise KeyError(name)
>>>>>>> REPLACE
""",
        replaced(("ValueError", "KeyError")),
    ),
}


@pytest.mark.parametrize("markers", [GAP, "# … rest unchanged …\n", "...\n"])
def test_what_a_sketch_shows_is_merged_and_the_rest_stays(markers):
    wrong = {name: text for name, (sketch, text) in TAKEN.items() if text != merged(sketch.replace(GAP, markers))}

    assert {} == wrong


def test_a_sketch_of_what_is_there_changes_nothing():
    assert CODE == merged(f"{GAP}{SAVE}        self.check(name)\n        {GAP}")
    assert CODE == merged(CODE)


UNCLEAR = {
    "an anchor twice": (f"{GAP}        with open(x) as file:\n    {GAP}", "nothing says where it belongs"),
    "a new line below a gap": (
        f"{GAP}    store.save('x')\n    return store\n",
        "may replace a line in the gap above it",
    ),
    "a new line above a gap": (f"{GAP}    store = Store()\n    x = 1\n    {GAP}", "in the gap below it"),
    "many lines left out without a gap": (
        f"{GAP}    def load(self, name):\n    def check(self, name):\n{GAP}",
        "would",
    ),
    "a function left out without a gap": (
        f'{GAP}class Store:\n    """Texts by name."""\n{SAVE}        self.check(name)\n        {GAP}',
        "no gap",
    ),
    "a function up to a gap beside it": (
        f"{GAP}    def save(self, name):\n        self.check(name)\n    {GAP}",
        "the gap below may stand for them",
    ),
    "no gap above": (f"def main():\n    store = Store(1)\n    store.save('a', 'b')\n{GAP}", "no gap above it"),
    "a new function anywhere": (f"{GAP}def other():\n    return 1\n{GAP}", "nothing says where it belongs"),
    "a gap in the middle of a statement": (f"{GAP}    store = Store(\n        {GAP}        1,\n    )\n{GAP}", "sketch"),
    "a diff of another file": ("@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "nowhere"),
}


def test_what_is_not_certain_is_refused_with_the_line_of_the_sketch():
    said = {}
    for name, (sketch, _reason) in UNCLEAR.items():
        try:
            said[name] = f"merged: {merged(sketch)}"
        except UnclearSketchError as error:
            said[name] = str(error)

    assert {} == {name: text for name, text in said.items() if UNCLEAR[name][1] not in text}


def test_the_only_lines_of_a_sketch_must_not_be_gaps():
    with pytest.raises(InputError, match="only gaps"):
        merged(f"{GAP}\n{GAP}")
    with pytest.raises(UnclearSketchError, match="of its own"):
        merged("...\nclass Reader:\n    x = 1\n", "class Reader:\n    ...\n")


@pytest.mark.parametrize(
    ("name", "text", "sketch", "new"),
    [
        (
            "a.js",
            "const a = 1;\n\nfunction f(x) {\n\tconst y = x;\n\treturn y;\n}\n\nfunction g() {\n\treturn 1;\n}\n",
            "// ... existing code ...\nfunction f(x) {\n  // ...\n  return y + a;\n}\n// ... existing code ...\n",
            None,
        ),
        (
            "a.js",
            "const a = 1;\n\nfunction f(x) {\n\tconst y = x;\n\treturn y;\n}\n",
            "// ... existing code ...\nfunction f(x) {\n  const y = x + a;\n  return y;\n}\n",
            "const a = 1;\n\nfunction f(x) {\n\tconst y = x + a;\n\treturn y;\n}\n",
        ),
        (
            "a.yaml",
            "name: x\non:\n  push: yes\njobs:\n  test:\n    image: a\n    steps: 3\n",
            "# ...\njobs:\n  test:\n    image: b\n    steps: 3\n",
            "name: x\non:\n  push: yes\njobs:\n  test:\n    image: b\n    steps: 3\n",
        ),
        (  # perhaps g goes, perhaps not
            "a.c",
            "int f() {\n  return 1;\n}\n\nint g() {\n  return 2;\n}\n\nint main() {\n  f();\n  g();\n  return 0;\n}\n",
            "// ...\n}\n\nint main() {\n// ...\n  f();\n  return 0;\n}\n",
            None,
        ),
        (
            "a.c",
            "int a;\n\n/* It. */\nint f() {\n  int x = 1;\n  start();\n  return x;\n}\n\n/* End. */\nint h;\n",
            "#\n/* It. */\nint g(y) {\n  int x = 1;\n#\n  return x;\n}\nint f() {g(0);}\n/* End. */\n#\n".replace(
                "#", "// ..."
            ),
            None,
        ),
        ("a.txt", "one\ntwo\nthree\nfour\n", "...\ntwo\n3\nfour\n", "one\ntwo\n3\nfour\n"),
    ],
)
def test_sketches_of_other_languages(name, text, sketch, new):
    if new is None:
        with pytest.raises(UnclearSketchError):
            merged(sketch, text, name)
    else:
        assert new == merged(sketch, text, name)


def test_what_a_model_makes_beside_the_sketch_is_put_back():
    source, sketch = make_source(CODE.encode(), "a.py"), TAKEN["a dropped line, between two that are shown"][0]
    wanted = replaced(('    store.save("a", "b")\n', ""))
    lossy = wanted.replace("        self.check(name)\n", "").replace("ValueError", "KeyError")

    text, foreign, beyond = keep_to_sketch(source, sketch, lossy)

    assert (wanted, 2, []) == (text, len(foreign), beyond)
    without_check = CODE.replace(CODE[CODE.index("    def check") : CODE.index("    store =")], "def main(name):\n")
    kept = StructureMerger().keep(
        source, without_check, f"{GAP}def main(name):\n    store = Store()\n{GAP}", lambda _text: True
    )
    assert "def check(self, name)" in kept.warnings.summary
    assert "" == missing_line(source, sketch, text)
    assert "    store = Store()" == missing_line(source, sketch, CODE.replace("Store()", "x"))


def test_a_function_that_the_sketch_does_not_show_keeps_its_lines_or_is_named():
    old = """\
import store

def load(form):
    if form is None:
        return None

    match form.name:
        case "a":
            return form.a
        case _:
            return None

def save(form):
    match form.name:
        case "a":
            store.add(form.a)
"""
    source = make_source(old.encode(), "a.py")
    sketch = "# ...\ndef save(form, path):\n    if path is None:\n        return\n    # ...\n"
    right = old.replace("def save(form):\n", "def save(form, path):\n    if path is None:\n        return\n")
    lossy = "import store\n\n\n" + right[right.index("def save") :]

    assert right == StructureMerger().keep(source, right, sketch, lambda _text: True).text
    assert "" == StructureMerger().keep(source, right, sketch, lambda _text: True).warnings.summary
    assert "`def load(form)" in StructureMerger().keep(source, lossy, sketch, lambda _text: True).warnings.summary
