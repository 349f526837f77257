"""Names that an edit leaves without their definition, and what stands where it cannot."""

from __future__ import annotations

from specchat.syntax.names import lost_names, strayed

LOST = (  # language, old, new, the names that are lost
    ("javascript", "function load() {}\nload();\n", "function read() {}\nload();\n", "load"),
    ("javascript", "const limit = 3;\nf(limit);\n", "f(limit);\n", "limit"),
    ("javascript", "function f(x) {\n  const y = x;\n  return y;\n}\n", "function f(x) {\n  return y;\n}\n", "y"),
    ("javascript", "import { a } from 'm';\na();\n", "a();\n", "a"),
    ("javascript", "const a = 1;\nmodule.exports = { a };\n", "module.exports = { a };\n", "a"),
    ("javascript", "function f() {}\n<F a={f} />;\n", "<F a={f} />;\n", "f"),
    ("typescript", "interface A { x: string }\nlet y: A;\n", "let y: A;\n", "A"),
    ("typescript", "function f(x: number) { return x }\n", "function f(z: number) { return x }\n", "x"),
    (
        "go",
        "package a\n\nfunc load() {}\n\nfunc f() {\n\tload()\n}\n",
        "package a\n\nfunc f() {\n\tload()\n}\n",
        "load",
    ),
    ("go", "package a\n\nfunc f() {\n\tx := 1\n\tg(x)\n}\n", "package a\n\nfunc f() {\n\tg(x)\n}\n", "x"),
    ("rust", "fn load() {}\nfn f() { load(); }\n", "fn f() { load(); }\n", "load"),
    ("rust", "fn f() { let x = 1; g(x); }\n", "fn f() { g(x); }\n", "x"),
    (
        "c",
        "static int load(void) { return 1; }\nint f(void) { return load(); }\n",
        "int f(void) { return load(); }\n",
        "load",
    ),
    ("c", "int f(int n) { return n; }\n", "int f(int m) { return n; }\n", "n"),
    ("cpp", "int g() { return 1; }\nint f() { return g(); }\n", "int f() { return g(); }\n", "g"),
    ("java", "class A {\n  void g() {}\n  void f() { g(); }\n}\n", "class A {\n  void f() { g(); }\n}\n", "g"),
    ("java", "class A {\n  int n = 1;\n  int f() { return n; }\n}\n", "class A {\n  int f() { return n; }\n}\n", "n"),
)
NOT_LOST = (
    ("javascript", "function load() {}\nload();\n", "import { load } from './load.js';\nload();\n"),
    ("javascript", "function load() {}\nload();\n", "const { load } = require('./load');\nload();\n"),
    ("javascript", "const { Buffer } = require('buffer');\nBuffer.of(1);\n", "Buffer.of(1);\n"),
    ("javascript", "const a = 1;\nf(a);\n", "for (const a of b) f(a);\n"),
    ("javascript", "const a = 1;\nf(x.a, a);\n", "f(x.a, { a: 1 });\n"),
    ("javascript", "function f() {\n  const y = 1;\n  g(y);\n}\nh(y);\n", "function f() {\n  g(1);\n}\nh(y);\n"),
    ("javascript", "const a = 1;\nexport { a };\n", "export { a } from './b.js';\n"),
    ("typescript", "type A = string;\nlet y: A;\n", "function f<A>(y: A) {}\n"),
    (
        "go",
        "package a\n\nfunc f() {\n\tx := 1\n\tg(x)\n}\n",
        "package a\n\nfunc f() {\n\tfor _, x := range y {\n\t\tg(x)\n\t}\n}\n",
    ),
    ("go", "package a\n\nfunc g() {}\n\nfunc f() {\n\tg()\n}\n", 'package a\n\nimport . "g"\n\nfunc f() {\n\tg()\n}\n'),
    ("rust", "fn load() {}\nfn f() { load(); }\n", "use crate::m::*;\nfn f() { load(); }\n"),
    ("rust", "fn f() { let x = 1; g(x); }\n", "fn f() { if let Some(x) = h() { g(x); } }\n"),
    (
        "c",
        "static int load(void) { return 1; }\nint f(void) { return load(); }\n",
        '#include "load.h"\nint f(void) { return load(); }\n',
    ),
    ("c", "int f(int n) { return n; }\n", "#define n 1\nint f(void) { return n; }\n"),
    (
        "java",
        "class A extends B {\n  void g() {}\n  void f() { g(); }\n}\n",
        "class A extends B {\n  void f() { g(); }\n}\n",
    ),
    ("java", "class A {\n  void g() {}\n  void f(A a) { g(); }\n}\n", "class A {\n  void f(A a) { a.g(); }\n}\n"),
    ("bash", "f() { :; }\nf\n", "f\n"),
)


def test_a_name_that_only_the_old_text_defines_is_lost():
    found = [(*each, sorted(lost_names(old, new, language))) for each in LOST for language, old, new, _name in [each]]

    assert not [each for each in found if each[-1] != [each[3]]]


def test_a_name_that_something_may_bind_is_not():
    assert not [each for each in NOT_LOST if lost_names(each[1], each[2], each[0])]


def test_await_and_return_have_to_stand_in_their_functions():
    await_, return_ = "`await` stands in a function that is not async", "`return` stands outside of a function"

    assert [(1, await_)] == strayed("function f() { await g(); }\n", "javascript")
    assert [(1, return_)] == strayed("return 1;\n", "typescript")
    assert [(1, await_)] == strayed("fn f() { g().await; }\n", "rust")
    assert [] == strayed(
        "async function f() { await g(); }\nawait h();\nconst k = async () => await f();\n", "javascript"
    )
    assert [] == strayed("async fn f() { g().await; }\nfn h() { async { g().await }; }\n", "rust")
