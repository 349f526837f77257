"""The plugin, and those of sketches and completions, installed, for this process and those that tests start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.plugins.conftest import installed_plugin, write_metadata

PLUGIN = Path(__file__).parents[1]
ROOT = PLUGIN.parents[1]
OTHERS = [PLUGIN.with_name(f"specchat-{name}") for name in ("apply", "completions")]


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    for each in OTHERS:
        write_metadata(each, site)
    with installed_plugin(PLUGIN, site), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (site, ROOT, PLUGIN, *OTHERS))))
        yield
