"""The JSON Schema of profiles, with which editors complete and check them."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from specchat.errors import ProfileError
from specchat.profile.profile_files import load_profile
from specchat_editors.install.profile_schema import profile_schema
from tests.each_row import each_row
from tests.front import command
from tests.test_profile import DOCS, FILES, SHIPPED, own_folder, write  # noqa: F401 (a fixture)


def test_the_schema_is_printed(monkeypatch):
    assert profile_schema() == json.loads(command(monkeypatch, "editors", "schema").out)


def test_the_schema_in_the_docs_is_current():
    assert profile_schema() == json.loads((DOCS / "profile.schema.json").read_text(encoding="utf-8"))


@each_row("name", SHIPPED)
def test_every_shipped_profile_matches_the_schema(name):
    assert not list(misfits(tomllib.loads((FILES / f"{name}.toml").read_text(encoding="utf-8")), profile_schema()))


@each_row(
    "text",
    [
        "[sampling]\ntemprature = 1", "[sampling]\ntemperature = 6", "[sampling]\ntop_p = 0.0",
        "[limits]\nanswer = 'x'",
        "[speculation]\nvariant = 'lokup'", "[[routes]]\ncontains = ['x']", "[[routes]]\nkind = 'x'", "models = 3",
        "[speculation]\nbudget = true",
    ],
)  # fmt: skip
def test_an_invalid_profile_does_not_match_the_schema_either(own_folder, text):  # noqa: F811
    write(own_folder, "wrong", text)

    assert list(misfits(tomllib.loads(text), profile_schema()))
    with pytest.raises(ProfileError):
        load_profile("wrong")


JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float),
}  # fmt: skip


def misfits(value: Any, wanted: dict[str, Any], path: str = "") -> Any:
    """The paths of invalid values, for the keywords of JSON Schema that our schema uses."""
    assert wanted.keys() <= {
        "$schema", "title", "description", "default", "type", "properties", "additionalProperties",
        "required", "items", "enum",
        "minimum", "maximum", "exclusiveMinimum",
    }  # fmt: skip
    kinds = JSON_TYPES[wanted["type"]]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        yield path
        return
    if value not in wanted.get("enum", [value]):
        yield path
    if isinstance(value, int | float) and not (
        wanted.get("minimum", value) <= value <= wanted.get("maximum", value)
        and value > wanted.get("exclusiveMinimum", value - 1)
    ):
        yield path
    for key, item in value.items() if isinstance(value, dict) else ():
        known = wanted.get("properties", {}).get(key) or wanted["additionalProperties"]
        yield from misfits(item, known, f"{path}.{key}") if known else [f"{path}.{key}"]
    yield from (f"{path}.{key}" for key in wanted.get("required", ()) if key not in value)
    for item in value if isinstance(value, list) else ():
        yield from misfits(item, wanted["items"], path)
