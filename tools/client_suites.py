"""`python -m tools.client_suites [--packages FOLDER] [NAME...]`: a table of the tests and examples of other projects.

Each suite runs against `specchat serve` (the plugin specchat-serve, installed): the tests of llama-server, the examples
of Ollama's page of its API, packages that use one, and clients of `tests.clients.run`. What a suite needs is
installed into FOLDER, in environments of their own, where it is not there yet. Prints the section of docs/clients.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.clients import http_sdks, llama_suite
from tests.clients.chosen_names import add_names
from tests.clients.llama_suite import Case, llama_cases, make_environment
from tests.clients.ollama_examples import EXAMPLES, ollama_examples
from tests.clients.run import CLIENTS, Client
from tests.clients.world import NotAvailable, World, new_world

LLAMA, OLLAMA = "llama.cpp, `tools/server/tests`", "Ollama's examples"
PACKAGES: Mapping[str, Client] = {
    OLLAMA: ollama_examples,
    "instructor": http_sdks.instructor,
    "pydantic-ai": http_sdks.pydantic_ai,
    "langchain": http_sdks.langchain,
    "litellm": http_sdks.litellm,
}
SDKS = ("openai", "anthropic", "ollama", "instructor", "pydantic-ai", "langchain", "litellm", "Codex", "Claude Code")
ENVIRONMENTS: Mapping[str, Sequence[str]] = {
    "sdks": ("openai", "anthropic", "ollama", "llm"),
    "instructor": ("instructor", "anthropic"),
    "pydantic-ai": ("pydantic-ai-slim[openai,anthropic]",),
    "langchain": ("langchain", "langchain-openai", "langchain-anthropic", "langchain-ollama"),
    "litellm": ("litellm",),
}
HEAD = """### Suites of other projects

Output of `python -m tools.client_suites` on {date}, against the embedded model on a CPU. Assertions about the text or
the counts of tokens of another model are off (`tests/clients/llama_suite.toml`). *applies*: passed of those that apply.

| suite | passed | failed | does not apply | applies |
|---|---|---|---|---|"""


def client_cases(name: str) -> Callable[[World], Iterator[Case]]:
    """The steps of a client as cases; an error that ends it is a case, too."""
    client = PACKAGES[name] if name in PACKAGES else CLIENTS[name][1]

    def cases(world: World) -> Iterator[Case]:
        try:
            for step in client(world):
                if step.done != "version":
                    yield Case(step.done, "" if step.is_well else step.seen)
        except (AssertionError, LookupError, subprocess.TimeoutExpired) as fault:
            yield Case("the next step", " ".join(str(fault).split())[-300:])

    return cases


def ollama_cases(world: World) -> Iterator[Case]:
    """Those that apply, which run, and the others."""
    yield from client_cases(OLLAMA)(world)
    yield from (Case(each.name, "", each.not_ours) for each in EXAMPLES if each.not_ours)


SUITES: Mapping[str, Callable[[World], Iterator[Case]]] = {
    LLAMA: llama_cases,
    OLLAMA: ollama_cases,
    **{name: client_cases(name) for name in SDKS},
}


def row(name: str, cases: Sequence[Case]) -> str:
    """A line of the table."""
    others = sum(bool(each.not_ours) for each in cases)
    failed = sum(bool(each.problem) for each in cases if not each.not_ours)
    passed = len(cases) - others - failed
    share = f"{passed / (passed + failed):.0%}" if passed + failed else ""
    return f"| {name} | {passed} | {failed} | {others} | {share} |"


def explained(name: str, cases: Sequence[Case]) -> Iterator[str]:
    """Below the table: why cases do not apply, and which fail."""
    for reason, count in Counter(each.not_ours for each in cases if each.not_ours).items():
        yield f"- {name}: {count} do not apply: {reason}"
    for each in cases:
        if each.problem and not each.not_ours:
            yield f"- {name}, failed: {_code(each.name)}: {_code(each.problem)}"


def _code(text: str) -> str:
    return f"`{text.replace('`', '').replace('|', '/')}`"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=Path("dist/clients"), help="where the clients are installed")
    add_names(parser, list(SUITES))
    given = parser.parse_args(arguments)
    packages: Path = given.packages.absolute()
    names: Sequence[str] = given.names
    if LLAMA in names:
        llama_suite.install(packages)
    for name, needed in ENVIRONMENTS.items():
        if name in names or name == "sdks":
            make_environment(packages / name, needed)
    os.environ["PATH"] = f"{packages / 'npm' / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    print(HEAD.format(date=time.strftime("%Y-%m-%d")))
    lines, is_well = list[str](), True
    with new_world(packages) as world:
        for name in names:
            try:
                cases = list(SUITES[name](world))
            except NotAvailable as missing:
                print(f"| {name} | not run: {missing} | | | |", flush=True)
                continue
            is_well &= not any(each.problem for each in cases if not each.not_ours)
            print(row(name, cases), flush=True)
            lines += explained(name, cases)
    print("", *lines, sep="\n")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
