"""Renaming in languages other than Python: what belongs to the name, and what leaves a doubt."""

from __future__ import annotations

import pytest

from specchat.edit.refactoring.identifier_rename import rename_identifier
from specchat.edit.refactoring.operations import NameKind, Rename
from specchat.edit.refactoring.splices import RefusedError, whole_area


def renamed(language: str, text: str, kind: NameKind = NameKind.ANY, scope: str = "", new: str = "neu") -> str:
    return rename_identifier(text, language, Rename("old", new, kind, scope), whole_area(text)).apply(text)


@pytest.mark.parametrize(
    ("language", "before", "after"),
    [
        ("javascript", "export function old() {}\nold(); x.old;\n", "export function neu() {}\nneu(); x.old;\n"),
        ("javascript", "const {old} = o; f({old, k: old});\n", "const {old: neu} = o; f({old: neu, k: neu});\n"),
        ("javascript", "import {a as old} from 'm'; old();\n", "import {a as neu} from 'm'; neu();\n"),
        ("javascript", "import old from 'm'; `${old}`;\n", "import neu from 'm'; `${neu}`;\n"),
        ("javascript", "/**\n * @param {x} old - a\n */\nconst f = (old) => old;\n",
         "/**\n * @param {x} neu - a\n */\nconst f = (neu) => neu;\n"),
        ("javascript", "for (const old of x) old();\n", "for (const neu of x) neu();\n"),
        ("typescript", "class old {}\nconst x: old = new old();\n", "class neu {}\nconst x: neu = new neu();\n"),
        ("tsx", "const f = (old: number) => <A old={old}/>;\n", "const f = (neu: number) => <A old={neu}/>;\n"),
        ("c", "static int old(int x);\nint old(int x) { return x; }\nint y = old(1);\n",
         "static int neu(int x);\nint neu(int x) { return x; }\nint y = neu(1);\n"),
        ("c", '#include "a.h"\nstatic int old(int x) { return x; }\n',
         '#include "a.h"\nstatic int neu(int x) { return x; }\n'),
        ("c", "int f(int *old) { struct s v = {.old = *old}; return v.old; }\n",
         "int f(int *neu) { struct s v = {.old = *neu}; return v.old; }\n"),
        ("c", "#define old 1\nint x = old;\n", "#define neu 1\nint x = neu;\n"),
        ("cpp", "int f(a::b<int> &old) { return old[0]; }\n", "int f(a::b<int> &neu) { return neu[0]; }\n"),
        ("go", "package a\n\nfunc f() (x int) { old, err := 1, 2; old, x = old, err; return }\n",
         "package a\n\nfunc f() (x int) { neu, err := 1, 2; neu, x = neu, err; return }\n"),
        ("rust", 'fn f(old: i32) -> S { println!("{}", old); S { old } }\n',
         'fn f(neu: i32) -> S { println!("{}", neu); S { old: neu } }\n'),
        ("java", "class A { int f(int old) { this.old = old; return old() + old; } }\n",
         "class A { int f(int neu) { this.old = neu; return old() + neu; } }\n"),
    ],
)  # fmt: skip
def test_a_name_is_renamed_wherever_it_is_the_same_name(language, before, after):
    assert after == renamed(language, before)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("javascript", "import {old} from 'm'; old();\n"),
        ("javascript", "import old from 'm'; export {old};\n"),
        ("javascript", "var old; var old;\n"),
        ("javascript", "let old; eval('old');\n"),
        ("javascript", "let old, neu;\n"),
        ("javascript", "let x; x.old;\n"),
        ("javascript", "function f(old) {}\nfunction g(old) {}\n"),
        ("typescript", "function old(): void;\nfunction old(x?: number) {}\n"),
        ("typescript", "class A { constructor(private old: number) {} }\n"),
        ("c", "#define M(x) old(x)\nint old(int x) { return x; }\n"),
        ("c", "#ifdef A\n#define old 1\n#endif\n"),
        ("c", "int f(int old) { { g(old); int old = 1; } return old; }\n"),
        ("c", '#include "a.h"\nint old(int x) { return x; }\n'),
        ("c", '#include "a.h"\nint old;\n'),
        ("c", "#define old 1\n#include <a.h>\nint x = old;\n"),
        ("cpp", "int old() { return 1; }\n"),
        ("go", "package a\n\nfunc old() {}\n"),
        ("go", "package a\n\nvar old = 1\n"),
        ("go", "package a\n\nfunc f(old int) T { return T{old: old} }\n"),
        ("rust", "impl S { fn old(&self) {} }\n"),
        ("rust", 'fn f(old: i32) { println!("{old}"); }\n'),
        ("rust", "fn f(old: i32) { mystery!(old); }\n"),
        ("rust", "fn f(old: i32) { let old = old + 1; }\n"),
        ("rust", "use a::old;\nfn f() { old(); }\n"),
        ("java", "class A { int old; }\n"),
        ("java", "class A { void old() {} }\n"),
        ("bash", "old=1\n"),
        ("javascript", "let old = ;\n"),
    ],
)
def test_a_renaming_that_is_not_certain_is_refused(language, text):
    with pytest.raises(RefusedError):
        renamed(language, text)


def test_names_of_other_scopes_stay():
    text = "let old = 1;\nfunction f(old) {\n  return old;\n}\nfunction g() {\n  return old;\n}\n"
    outer = text.replace("let old", "let neu").replace("g() {\n  return old", "g() {\n  return neu")
    inner = text.replace("f(old) {\n  return old", "f(neu) {\n  return neu")

    assert outer == renamed("javascript", text, NameKind.VARIABLE)
    assert inner == renamed("javascript", text, NameKind.PARAMETER, "f")


@pytest.mark.parametrize(("language", "new"), [("javascript", "class"), ("go", "Neu"), ("rust", "self"), ("c", "a b")])
def test_a_name_that_means_something_else_is_refused(language, new):
    text = {"go": "package a\n\nvar old = 1\n", "rust": "static old: i32 = 1;\n", "c": "int old;\n"}

    with pytest.raises(RefusedError):
        renamed(language, text.get(language, "let old;\n"), new=new)
