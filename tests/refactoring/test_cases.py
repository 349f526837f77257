"""Every case of `cases.toml`: the right text, or a refusal where it has to be one, and never a wrong text."""

from __future__ import annotations

from collections import Counter

import pytest

from specchat.edit.operations import (
    NameKind,
    Operation,
    Removable,
    Remove,
    RemoveDefinition,
    Rename,
    SetValue,
    SortImports,
)
from specchat.edit.source_text import make_source
from specchat.refactoring import RefusedError, plan_refactorings
from specchat.refactoring.find_refactoring import make_refactoring
from tools.refactoring_cases import Case, Outcome, read_cases, run_case

SHARES = 6
MAX_REFUSED = 1  # jedi 0.20 does not know the parameters of types


def share_of_cases(share: int) -> list[Case]:
    """A share of the cases. The first has each operation in each language, with a trap or none, done or refused."""
    shares, counts = list[Case](), Counter[tuple[str, str, bool, bool]]()
    for case in read_cases():
        sort = (case.kind, case.language, bool(case.trap), case.after is None)
        shares += [case] if counts[sort] % SHARES == share else []
        counts[sort] += 1
    return shares


@pytest.mark.parametrize("share", [0, *(pytest.param(each, marks=pytest.mark.full) for each in range(1, SHARES))])
def test_an_operation_is_right_or_refused_and_never_wrong(share):
    outcomes = [(case, *run_case(case)) for case in share_of_cases(share)]

    assert not [f"{case}\n-> {made}" for case, outcome, made in outcomes if outcome is Outcome.WRONG]
    assert Counter(outcome for _case, outcome, _made in outcomes)[Outcome.REFUSED] <= MAX_REFUSED


def summary_of(text: str, operation: Operation, name: str = "a.py") -> str:
    try:
        return make_refactoring(make_source(text.encode(), name), [operation]).describe()
    except RefusedError as refused:
        return str(refused)


def test_the_summary_counts_what_changes_and_what_is_left():
    renamed = summary_of("def old(): ...  # old\n\nold()\n", Rename("old", "new"))
    removed = summary_of("f = lambda: print(1)\nprint(2)\nprint(xs.pop())\n", Remove(Removable.PRINTS))

    assert "rename function `old` to `new`: 2 places; 1 mention in strings and comments left" == renamed
    assert "remove 1 print statement; 1 print inside other expressions left; 1 print that may do more left" == removed


def test_a_refusal_says_where_and_why():
    texts = {
        "def old(): ...\n\nnew = 1\nold()\n": "`new` is in use in line 3",
        "def f(old): ...\n\ndef g(old): ...\n": "may be the parameter of line 1 or the parameter of line 3",
        "x = 1\n": "does not define `old`",
        "from m import old\n\nold()\n": "is imported",
        "class C:\n    def old(self): ...\n\nx.old()\n": "line 4",
        "class C(Base):\n    def old(self): ...\n": "`Base`, a base of `C`",
        "@app.route('/')\ndef old(): ...\n": "`@route`",
        "def old(:\n": "does not parse",
    }

    assert not [
        (text, found) for text, why in texts.items() if why not in (found := summary_of(text, Rename("old", "new")))
    ]


def made(text: str, operation: Operation, name: str = "a.py") -> str:
    try:
        return make_refactoring(make_source(text.encode(), name), [operation]).text
    except RefusedError as refused:
        return str(refused)


def test_a_name_beside_macros_of_rust_that_make_texts_of_their_arguments_is_sure_if_none_takes_it():
    macro = "macro_rules! named { ($x:expr) => { stringify!($x) } }\n"
    free = "fn f(old: i32) -> i32 { old }\n"
    nested = 'fn f(old: i32) { println!("{}", named!(old)); }\n'
    inner = 'fn f(old: bool) { println!("{} {}", !(old), format!("{}", anyhow!("{}", old))); }\n'
    joined = "fn f(old: i32) -> i32 { paste! { [<o ld>] } }\n"

    renamed = {each: made(macro + each, Rename("old", "neu"), "a.rs") for each in (free, nested, inner, joined)}

    assert macro + free.replace("old", "neu") == renamed[free]
    assert macro + inner.replace("old", "neu") == renamed[inner]
    assert "a macro names `old` in line 2" == renamed[nested]
    assert "the file may find names in other ways" == renamed[joined]


def test_sorted_imports_keep_the_blank_lines_after_them():
    text = "import re\nimport os\n\nos.umask(0)\nimport sys\n\n\nx = 1\n"

    assert text.replace("import re\nimport os\n", "import os\nimport re\n") == made(text, SortImports())


def test_an_amount_with_a_unit_is_a_text_of_yaml():
    before = "run:\n  timeout: 5m\n  size: on\n"

    assert before.replace("5m", "10m") == made(before, SetValue("timeout", "10m"), "a.yaml")
    assert "the value of `size` is no constant" == made(before, SetValue("size", "10m"), "a.yaml")
    assert "`size` is a number, not a text" == made("size: 0x1f\n", SetValue("size", "10m"), "a.yaml")


def test_a_language_that_the_tree_does_not_know_is_left_to_a_model():
    assert [] == plan_refactorings([make_source(b"old=1\n", "a.sh")], "rename old to new")
    assert [] == plan_refactorings([make_source(b"old = 1\n", "a.txt")], "set old to 5")


def removed(text: str, kind: NameKind, path: str = "a.py") -> str:
    operation = RemoveDefinition("old", kind)
    try:
        return make_refactoring(make_source(text.encode(), path), [operation]).text
    except RefusedError as refused:
        return str(refused)


def test_a_definition_that_nothing_mentions_goes_with_its_decorators_and_its_comment():
    texts = {
        "x = 1\n\n\n# Says hello.\n@cache\ndef old():\n    return 1\n\n\ny = 2\n": "x = 1\n\n\ny = 2\n",
        "def old():\n    return old()\n": "",
        "x = 1  # of x\ndef old(): ...\n": "x = 1  # of x\n",
        "# noqa: N802\ndef old(): ...\n": "# noqa: N802\n",
        "def f():\n    def old(): ...\n    return 1\n": "def f():\n    return 1\n",
    }

    assert texts == {text: removed(text, NameKind.FUNCTION) for text in texts}
    assert "class C:\n    pass\n" == removed("class C:\n    def old(self): ...\n", NameKind.METHOD)
    assert "x = 1\n" == removed("class old:\n    y = 2\n\nx = 1\n", NameKind.CLASS)


def test_a_definition_that_something_may_reach_stays(tmp_path):
    texts = {
        "def old(): ...\n\nold()\n": "line 3 mentions `old`",
        "def old(): ...\n\n\nHOOKS = ['old']\n": "line 4 mentions `old`",
        "def old(): ...\n\n\nx = globals()[name]\n": "line 4 may reach `old`",
        "class C(Thread):\n    def old(self): ...\n": "a base of `C` may use `old`",
        "def old(): ...\n\ndef old(): ...\n": "defines 2 functions with the name `old`",
        "x = 1\n": "defines 0 functions",
        "def old(:\n": "does not parse",
    }
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\ntool = "a:old"\n')
    (tmp_path / "a.py").write_text("def old(): ...\n")

    assert not [(text, found) for text, why in texts.items() if why not in (found := removed(text, NameKind.FUNCTION))]
    assert "pyproject.toml mentions `old`" == removed("def old(): ...\n", NameKind.FUNCTION, str(tmp_path / "a.py"))
    (tmp_path / "b.py").write_text("from a import old\n")
    assert "b.py mentions `old`" == removed("def old(): ...\n", NameKind.FUNCTION, str(tmp_path / "a.py"))
