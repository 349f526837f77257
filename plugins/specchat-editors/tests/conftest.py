"""The plugin and that of completions as an installation leaves them, in this process and in those that tests start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.plugins.conftest import installed_plugin, write_metadata

PLUGIN = Path(__file__).parents[1]
ROOT = PLUGIN.parents[1]
COMPLETIONS = PLUGIN.with_name("specchat-completions")


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    write_metadata(COMPLETIONS, site)
    with installed_plugin(PLUGIN, site), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (site, ROOT, PLUGIN, COMPLETIONS, PLUGIN / "tests"))))
        yield
