"""A route that names a drafter which cannot run is refused when a conversation starts, with its place in the file."""

from __future__ import annotations

import json

import pytest

from specchat.chat.events import Finished, Routed
from specchat.chat.request import Request
from specchat.cli.options import ProfileLayers
from specchat.errors import ProfileError
from specchat.loading.load_engine import load_engine
from specchat.profile import Profile, load_profile
from specchat.profile.profile_files import read_profile_chain, read_settings_file
from specchat.profile.settings import Settings, read_settings
from tests.each_row import each_row
from tests.tiny import speaking

ROUTES = """extends = "chat"

[[routes]]
contains = ["recipe"]
kind = "creative"
variants = VARIANTS
"""


@pytest.fixture(scope="module")
def engine():
    return load_engine(Profile().override({"models.target": str(speaking()), "models.draft": "", "models.heads": []}))


@pytest.fixture
def profile_with(tmp_path):
    """A profile file whose only own route has these variants, in its sixth line."""

    def write(variants: str) -> Profile:
        path = tmp_path / "mine.toml"
        path.write_text(ROUTES.replace("VARIANTS", variants))
        return load_profile(str(path), {"models.target": str(speaking()), "models.draft": "", "models.heads": []})

    return write


@each_row("variants", ['["dflash"]', '["auto", "dflash"]', '["dflash", "eagle3"]'])
def test_a_route_whose_drafters_cannot_run_is_refused_with_its_line(engine, profile_with, variants):
    with pytest.raises(ProfileError) as refused:
        engine.create_session(profile=profile_with(variants))

    assert str(refused.value).startswith("/")
    assert "mine.toml:6: the route for creative names dflash, which needs a DFlash head" in str(refused.value)
    assert "\n" not in str(refused.value)


@each_row("variants", ['["auto"]', '["dflash", "suffix"]', '["auto", "lookup"]', '["plain"]'])
def test_a_route_with_a_drafter_that_can_run_is_accepted(engine, profile_with, variants):
    with engine.create_session(profile=profile_with(variants)) as session:
        events = list(session.ask(Request("a recipe", max_tokens=2)))

    assert isinstance(events[-1], Finished), events[-1]
    routed = next(event for event in events if isinstance(event, Routed))
    assert routed.variant == next(name for name in json.loads(variants) if name != "dflash")


def test_a_stored_conversation_keeps_the_place_of_its_routes(engine, profile_with, tmp_path):
    profile_with('["dflash"]')
    stored = json.loads(json.dumps(read_settings(str(tmp_path / "mine.toml")).to_json()))

    with pytest.raises(ProfileError, match=r"mine\.toml:6: the route"):
        engine.create_session(profile=Settings.from_json(stored).profile)


def test_a_route_of_a_project_file_keeps_its_place_on_the_way_to_the_engine(engine, tmp_path):
    path = tmp_path / ".specchat.toml"
    path.write_text('[[routes]]\nkind = "chat"\nvariants = ["dflash"]\n')
    source = read_settings_file(path, path.read_bytes()).source("project file")
    layers = ProfileLayers("chat", read_profile_chain("chat"), (source,))

    with pytest.raises(ProfileError, match=r"specchat\.toml:3: the route for chat names dflash"):
        engine.create_session(profile=Settings.from_json(layers.settings().to_json()).profile)
