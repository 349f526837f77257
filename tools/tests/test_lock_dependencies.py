"""The lock of the packages that the checks of a change install, and their licences in SECURITY.md."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from typing import Any

from packaging.requirements import Requirement

from tools.lock_dependencies import LEFT_OUT, LOCK, ROOT, lock_lines


def installed(name: str, version: str, **archive_info: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "version": version}, "download_info": {"archive_info": archive_info}}


def test_a_line_has_version_and_hash_without_torch_and_this_project():
    report = {
        "install": [
            installed("tree_sitter", "1.0", hashes={"sha256": "ab"}),
            installed("Jinja2", "3.1", hashes={"sha256": "cd"}),
            installed("torch", "2.9", hashes={"sha256": "ef"}),
            {"metadata": {"name": "specchat", "version": "0"}, "download_info": {"dir_info": {}}},
        ]
    }

    assert lock_lines(report) == ["jinja2==3.1 --hash=sha256:cd", "tree-sitter==1.0 --hash=sha256:ab"]


def test_the_lock_has_every_dependency_in_a_version_that_is_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = dict(line.split()[0].split("==") for line in LOCK.read_text(encoding="utf-8").splitlines())
    wanted = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["dev"]])

    missing = [
        str(each)
        for each in wanted
        if each.name != project["name"]
        and not LEFT_OUT.fullmatch(each.name)
        and locked.get(each.name) not in each.specifier
    ]

    assert missing == []


def test_the_licence_of_each_direct_dependency_is_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name: licence for licence, names in rows for name in re.split(", | and its ", names)}
    names = [Requirement(each).name for each in project["dependencies"]]
    faults = [
        name
        for name in names
        if stated_licence(name) not in listed.get(name, listed["grammars"]) and stated_licence(name)
    ]

    assert faults == []
    assert {name for name in names if not name.startswith("tree-sitter-")} <= set(listed)


def stated_licence(name: str) -> str:
    """The first word of the licence in the metadata of a package."""
    found = metadata(name)
    text = " ".join([found.get("License-Expression", ""), found.get("License", ""), *found.get_all("Classifier", [])])
    [first] = re.findall(r"Apache|BSD|MIT", text)[:1] or [""]
    return first
