"""The language of a text without a name."""

from specchat.syntax.sniff import sniff_language
from tests.each_row import each_row

TEXTS = {
    "python": [
        "def f(x):\n    return x\n",
        "    for x in y:\n        print(x)\n",
        "import os\n\nx = 1\n",
        "class A:\n    pass\n",
    ],
    "javascript": [
        "const x = 1;\nconsole.log(x);\n",
        "function f(a) {\n  return a === 1;\n}\n",
        "let f = (x) => x + 1;\n",
    ],
    "typescript": ["interface A {\n  x: number;\n}\n", "const f = (x: string): number => x.length;\nlet y: string;\n"],
    "go": ["package main\n\nfunc main() {\n\tx := 1\n\tfmt.Println(x)\n}\n"],
    "rust": ['fn main() {\n    let mut x = 1;\n    println!("{}", x);\n}\n'],
    "c": ['#include <stdio.h>\n\nint main(void) {\n  printf("x");\n  return 0;\n}\n'],
    "cpp": ["#include <iostream>\n\nint main() {\n  std::cout << 1;\n}\n"],
    "java": ["public class A {\n  public static void main(String[] a) {\n    System.out.println(1);\n  }\n}\n"],
    "bash": ['if [ -f x ]; then\n  echo "$x"\nfi\n', "#!/bin/sh\nls\n"],
    "html": ["<!DOCTYPE html>\n<html><body><p>x</p></body></html>\n"],
    "css": [".a {\n  color: red;\n}\n"],
    "json": ['{"a": [1, 2]}', '[\n  {"x": null}\n]\n', "[1, 2]"],
    "yaml": ["name: x\non:\n  push: true\n- a\n"],
    "toml": ["[tool.ruff]\nline-length = 120\n", '[a]\nx = "1"\n[b]\n'],
}


CASES = [(language, text) for language, texts in TEXTS.items() for text in texts]


@each_row("language, text", CASES)
def test_a_text_tells_its_language(language, text):
    assert language == sniff_language(text)


@each_row(
    "text",
    [
        "",
        "x = 1\ny = 2\n",
        "f(x)\n",
        "me and him was late for the train again on monday\n",
        "Dear all,\n\nthe meeting is at 10: bring the report, please.\n\nBest,\nA\n",
        "Name: Jane\nMain points:\n- Architect\n- Interested in Tech\nWrite a biography of her from these points.\n",
        "# Title\n\nSome **bold** words and a [link](x).\n",
    ],
)
def test_prose_and_what_several_languages_share_tell_none(text):
    assert "" == sniff_language(text)


def test_a_part_that_does_not_parse_alone_is_told_by_its_lines():
    assert "python" == sniff_language("    elif x:\n        self.y = 1\n    else:\n        raise ValueError(x)\n")
