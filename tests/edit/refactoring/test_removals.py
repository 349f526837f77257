"""What goes with a removed statement, comment or docstring, and what stays."""

from __future__ import annotations

import pytest

from specchat.edit.refactoring.operations import Removable, Remove
from specchat.edit.refactoring.removals import remove_things
from specchat.edit.refactoring.splices import RefusedError


def without(text: str, what: Removable, language: str = "python", **how) -> str:
    return remove_things(text, language, Remove(what, **how)).apply(text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1\nprint(x)  # now\ny = 2\n", "x = 1\ny = 2\n"),
        ("if x:\n\tprint(1)\nelse:\n\tprint(2)\n\tprint(3)\n", "if x:\n\tpass\nelse:\n\tpass\n"),
        ("def f():\n    print('a',\n          'b')\n    return 1\n", "def f():\n    return 1\n"),
        ("if x: print(1)\n", "if x: pass\n"),
        ("x = 1; print(x)\n", "x = 1\n"),
        ("print(1); x = 1\n", "x = 1\n"),
        ("x = 1; print(1); print(2); y = 2\n", "x = 1; y = 2\n"),
        ("print(1); print(2)\nx = 1", "x = 1"),
        ("for x in y:\n    print(x)\n    # why\n", "for x in y:\n    pass\n    # why\n"),
        ("try:\n    print(1)\nfinally:\n    print(2)\n", "try:\n    pass\nfinally:\n    pass\n"),
        ("print(1)\n", ""),
        ("x = 1\n\nprint(1)\nprint(2)\n\ny = 2\n", "x = 1\n\ny = 2\n"),
        ("def f():\n    print(1)\n\n    return 1\n", "def f():\n    return 1\n"),
        ("def f(): ...\n\n\nprint(1)\n\nx = 1\n", "def f(): ...\n\n\nx = 1\n"),
        ("pprint(1)\nx.print(2)\nf(print)\n", "pprint(1)\nx.print(2)\nf(print)\n"),
        ("def print(x): ...\nprint(1)\n", "def print(x): ...\nprint(1)\n"),
    ],
)
def test_prints_go_and_the_text_stays_valid(before, after):
    assert after == without(before, Removable.PRINTS)


def test_a_print_inside_an_expression_stays_and_is_counted():
    step = remove_things("f = lambda: print(1)\nprint(2)\n", "python", Remove(Removable.PRINTS))

    assert "remove 1 print statement; 1 print inside other expressions left" == step.summary


def test_logging_calls_of_loggers_go():
    text = (
        "logger.info('a')\nself._log.debug('b', 1)\nlogging.getLogger(__name__).error('c')\nmath.log(2)\nblog.info(1)\n"
    )

    assert "math.log(2)\nblog.info(1)\n" == without(text, Removable.LOGGING)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "#!/usr/bin/python\n# -*- coding: utf-8 -*-\n# a\nx = 1  # b\n",
            "#!/usr/bin/python\n# -*- coding: utf-8 -*-\nx = 1\n",
        ),
        (
            "import os  # noqa: F401\nx: int = f()  # type: ignore\n",
            "import os  # noqa: F401\nx: int = f()  # type: ignore\n",
        ),
        ("f(a,  # first\n  b)\n", "f(a,\n  b)\n"),
        ("def f():\n    # only\n    pass\n", "def f():\n    pass\n"),
        ("x = '# no comment'\n", "x = '# no comment'\n"),
        ("# licence\n\nimport os\n\n# a\n# b\n\nx = 1\n", "import os\n\nx = 1\n"),
    ],
)
def test_comments_of_python_go_but_not_those_for_tools(before, after):
    assert after == without(before, Removable.COMMENTS)


@pytest.mark.parametrize(
    ("language", "before", "after"),
    [
        ("javascript", "f(a /* in */, b); // end\n/* a\n   b */\nreturn/**/x;\n", "f(a, b);\nreturn x;\n"),
        ("javascript", "// eslint-disable-next-line\nf();\n", "// eslint-disable-next-line\nf();\n"),
        ("rust", "/// Doc.\nfn f() {} // end\n", "fn f() {}\n"),
        ("c", "int x; /* a */ int y;\n", "int x; int y;\n"),
        ("toml", "a = 1 # b\n# c\n", "a = 1\n"),
        ("go", "//go:build x\n\npackage a // b\n", "//go:build x\n\npackage a\n"),
    ],
)
def test_comments_of_other_languages(language, before, after):
    assert after == without(before, Removable.COMMENTS, language)


@pytest.mark.parametrize(
    ("language", "before", "after"),
    [
        ("javascript", "if (a) console.log(a); else b();\nconsole.log(1)\nx();\n", "if (a) {} else b();\nx();\n"),
        ("rust", 'fn f() {\n    println!("{}", 1);\n    g();\n}\n', "fn f() {\n    g();\n}\n"),
        ("c", 'int main(void) { printf("x"); return 0; }\n', "int main(void) { return 0; }\n"),
        ("java", "class A { void f() { System.out.println(1); g(); } }\n", "class A { void f() { g(); } }\n"),
    ],
)
def test_prints_of_other_languages(language, before, after):
    assert after == without(before, Removable.PRINTS, language)


def test_docstrings_go_and_an_emptied_body_gets_pass():
    text = '"""Doc."""\n\nclass A:\n    """Doc."""\n\n    def f(self):\n        "doc"\n\n    x = """no doc"""\n'

    assert 'class A:\n    def f(self):\n        pass\n\n    x = """no doc"""\n' == without(text, Removable.DOCSTRINGS)


def test_only_the_named_definition_is_concerned():
    text = 'def f():\n    "doc"\n    print(1)\n\ndef g():\n    "doc"\n    print(1)\n'

    assert text.replace("    print(1)\n\n", "\n") == without(text, Removable.PRINTS, scope="f")
    assert 'def f():\n    "doc"\n    print(1)\n\ndef g():\n    print(1)\n' == without(
        text, Removable.DOCSTRINGS, scope="g"
    )


@pytest.mark.parametrize(
    ("text", "remove", "language"),
    [
        ("print(1)\nprint(2)\n", Remove(Removable.PRINTS, is_single=True), "python"),
        ("print(x := 1)\n", Remove(Removable.PRINTS), "python"),
        ("print(1)\n", Remove(Removable.PRINTS, scope="f"), "python"),
        ("print 1\n", Remove(Removable.PRINTS), "python"),
        ('"doc"\nprint(__doc__)\n', Remove(Removable.DOCSTRINGS), "python"),
        ("#define X 1 // c\nint x; // d\n", Remove(Removable.COMMENTS), "c"),
        ('package a\n/*\n#include <x.h>\n*/\nimport "C"\n', Remove(Removable.COMMENTS), "go"),
        ('package a\nimport "fmt"\nfunc f() {\n\tfmt.Println(1)\n}\n', Remove(Removable.PRINTS), "go"),
        ("<b>x</b>\n", Remove(Removable.PRINTS), "html"),
    ],
)
def test_a_removal_that_is_not_certain_is_refused(text, remove, language):
    with pytest.raises(RefusedError):
        remove_things(text, language, remove)
