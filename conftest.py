"""One thread for each test process: tiny networks are not faster with two, and spinning threads slow down others."""

import os
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cover import rest_of_cover

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("SPECCHAT_CACHE", tempfile.mkdtemp(prefix="specchat-cache-"))  # compiled kernels are shared
# Without a GPU, Triton's kernels run in its interpreter, which must be chosen before anything imports Triton.
_has_gpu = any(Path(driver).exists() for driver in ("/dev/nvidiactl", "/dev/kfd"))
os.environ.setdefault("TRITON_INTERPRET", "0" if _has_gpu else "1")
# Nothing of the user is read or written.
os.environ["SPECCHAT_HOME"] = tempfile.mkdtemp(prefix="specchat-home-")
# Without the starter model, the embedded model is the default; the starter is declined, so no command offers it.
_models = Path(os.environ["SPECCHAT_HOME"], "data", "models")
_models.mkdir(parents=True)
(_models / "starter-declined").touch()
# Examples have no time limit: on a busy machine, it fails by chance.
settings.register_profile("no time limit", deadline=None)
settings.load_profile("no time limit")

DEFAULT_CASES = 8  # of one test function in a default run; `pytest -m full` runs the others


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a function beyond its first eight `full`: those that add the fewest new pairs of values."""
    cases = defaultdict[tuple[Path, str], list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function) and not any(map(item.get_closest_marker, ("full", "gpu"))):
            cases[item.path, item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        for item in rest_of_cover(group, DEFAULT_CASES):
            item.add_marker(pytest.mark.full)
