"""Nothing outside `drafters/` and `forward/` asks which drafter, head or model it has."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import specchat

ROOT = Path(specchat.__file__).parent
PACKAGES = {"drafters": {"Drafter", "DraftHead"}, "forward": {"LlamaModel", "TransformersModel"}}  # and their bases
CORE = ("chat", "chooser", "engine", "host", "loading")  # import no such class by name, either


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def concrete_classes() -> dict[str, str]:
    """The classes under the bases of each package, with their package."""
    found = dict.fromkeys(PACKAGES["forward"], "forward")
    for package, bases in PACKAGES.items():
        classes = [
            node
            for path in (ROOT / package).rglob("*.py")
            for node in ast.walk(parse(path))
            if isinstance(node, ast.ClassDef)
        ]
        known = set(bases)
        while new := {
            each.name
            for each in classes
            if each.name not in known
            and known
            & {getattr(base, "value", base).id for base in each.bases if hasattr(getattr(base, "value", base), "id")}
        }:
            known |= new
        found |= dict.fromkeys(known - bases, package)
    return found


def questions(module: ast.Module) -> list[tuple[int, str]]:
    """The names of classes that a module asks for: isinstance, issubclass and patterns of `match`."""
    asked = list[tuple[int, str]]()
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked += [(node.lineno, each.id) for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)]
        elif isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name):
            asked.append((node.lineno, node.cls.id))
    return asked


def imports(module: ast.Module) -> list[tuple[int, str]]:
    nodes = (node for node in ast.walk(module) if isinstance(node, ast.ImportFrom))
    return [(node.lineno, each.name) for node in nodes for each in node.names]


def faults(package: str, module: ast.Module) -> list[tuple[int, str]]:
    classes = concrete_classes()
    named = questions(module) + (imports(module) if package in CORE else [])
    return [(line, name) for line, name in named if classes.get(name, package) != package]


def test_no_concrete_drafter_head_or_model_is_asked_for_outside_its_package():
    named = re.compile(rf"\b({'|'.join(concrete_classes())})\b")
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in ROOT.rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
        and (wrong := faults(path.relative_to(ROOT).parts[0], parse(path)))
    }

    assert {} == found


def test_a_planted_question_and_a_planted_import_are_found():
    classes = concrete_classes()
    assert {"EagleDrafter", "SuffixDecoding", "PluginDrafterGuard", "EagleHead", "LlamaModel"} <= set(classes)
    planted = "from specchat.drafters.eagle.head import EagleHead\nif isinstance(a, (int, EagleDrafter)):\n    pass\n"

    assert [(2, "EagleDrafter"), (1, "EagleHead")] == faults("loading", ast.parse(planted))
    assert [(3, "LlamaModel")] == faults(
        "drafters", ast.parse("match model:\n  case int(): pass\n  case LlamaModel(): pass\n")
    )
