"""The plugin as an installation leaves it: its metadata on the import path."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.plugins.conftest import rediscover

SOURCE = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))  # for `plugin_heads`


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory):
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    [(name, module)] = project["entry-points"]["specchat"].items()
    folder = tmp_path_factory.mktemp("site")
    metadata = folder / "specchat_heads-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (metadata / "entry_points.txt").write_text(f"[specchat]\n{name} = {module}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delenv("SPECCHAT_LOAD_PLUGINS", raising=False)
        rediscover()
        yield
    rediscover()
