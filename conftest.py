"""One thread for each test process: tiny networks are not faster with two, and spinning threads slow down others."""

import atexit
import gc
import logging
import os
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings

from tests import cover
from tests.cover import rest_of_cover, rest_of_sample
from tests.processes import alone_among_test_processes

# A shell ignores Ctrl-C in background jobs, and what is started there would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Without bytecode, each of hundreds of processes would compile all modules, for a third of the time of the run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "SPECCHAT_CACHE" not in os.environ:
    os.environ["SPECCHAT_CACHE"] = tempfile.mkdtemp(prefix="specchat-cache-")
    # What jedi has parsed is not read while another process writes it, so each process has its own.
    _kept = Path(__file__).parent / ".pytest_cache" / f"jedi{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    _kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(os.environ["SPECCHAT_CACHE"], "jedi").symlink_to(_kept)
# Without a GPU, Triton's kernels run in its interpreter, which must be chosen before anything imports Triton.
_has_gpu = any(Path(driver).exists() for driver in ("/dev/nvidiactl", "/dev/kfd"))
os.environ.setdefault("TRITON_INTERPRET", "0" if _has_gpu else "1")
logging.getLogger().addHandler(logging.NullHandler())  # else warnings go to stderr, of which tests count the lines
# Nothing of the user is read or written.
os.environ["SPECCHAT_HOME"] = tempfile.mkdtemp(prefix="specchat-home-")
# Without the starter model, the embedded model is the default; the starter is declined, so no command offers it.
_models = Path(os.environ["SPECCHAT_HOME"], "data", "models")
_models.mkdir(parents=True)
(_models / "starter-declined").touch()
ENVIRONMENT = dict(os.environ)  # before a test changes it
# Examples have no time limit: on a busy machine, it fails by chance.
settings.register_profile("no time limit", deadline=None)
settings.load_profile("no time limit")

# Every engine that a test closes would have the collector look through all modules and cases, for a third of a second.
# Small networks and screens leave many objects and little memory: with the thresholds of Python, looking for circles
# takes an eighth of the run.
gc.set_threshold(20_000, 20, 50)
KEEPS_FROZEN = patch.multiple(gc, freeze=lambda: None, unfreeze=lambda: None)
if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)  # called last: to take thousands of modules apart takes a process five seconds
MANY_MODULES = 200
_frozen_modules = 0
DEFAULT_CASES, DEAR_CASES = 2, 1  # of one function in a default run; the others are `full`, of which there is a sample
DEFAULT_MARKS = "not full and not gpu"  # in pyproject.toml


@pytest.fixture(scope="session")
def native_library() -> Path:
    """The native kernels of this CPU, compiled for the first test that asks; without a compiler, it is skipped."""
    from specchat.forward.native.native_ops import native_kernels

    library = native_kernels().library
    if library is None:
        pytest.skip("no C++ compiler here")
    return Path(library._name)  # noqa: SLF001 (a CDLL tells its path in no other way)


class LogCapture(logging.Handler):
    """What is logged. That of pytest looks through thousands of loggers, six times a test: 2 % of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        return "\n".join(map(self.format, self.records))

    def clear(self) -> None:
        self.records.clear()


@pytest.fixture
def caplog() -> Iterator[LogCapture]:
    """All records of the loggers that pass theirs on."""
    handler = LogCapture()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def kernels_anew() -> Iterator[None]:
    """A process without loaded kernels. Afterwards it has those of all homes, which take long to compile."""
    from specchat.forward.native.native_ops import native_kernels

    native_kernels.cache_clear()
    yield
    native_kernels.cache_clear()
    with patch.dict(os.environ, ENVIRONMENT, clear=True):
        native_kernels()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-combination", action="store_true", help="with -m full: hours")


def pytest_configure(config: pytest.Config) -> None:
    cover.makes_full_cases = config.option.markexpr != DEFAULT_MARKS
    cover.makes_every_case = config.option.every_combination


def freeze_objects() -> None:
    """What is alive now stays to the end of the run: the garbage collector never looks through it."""
    global _frozen_modules
    _frozen_modules = len(sys.modules)
    gc.freeze()
    KEEPS_FROZEN.start()


def import_own_share(config: pytest.Config) -> None:
    """Import each n-th test module, of n processes. In a fresh clone, one process compiles it for all of them.

    In the same order, all would compile all at the same time. A module that cannot be imported is told of later.
    """
    number, count = os.environ.get("PYTEST_XDIST_WORKER", "")[2:], int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if count > 1 and [config.invocation_params.dir / each for each in config.args] == [config.rootpath / "tests"]:
        paths = sorted(config.rootpath.glob("tests/*/**/test_*.py"))
        packaged = [path.relative_to(config.rootpath) for path in paths if path.with_name("__init__.py").exists()]
        for path in packaged[int(number) :: count]:
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Freeze all modules and cases."""
    gc.disable()
    import_own_share(session.config)
    yield
    freeze_objects()
    gc.enable()  # not earlier: it would look through all of them once


def pytest_runtest_teardown() -> None:
    """Forget which formats of edits worked, and freeze what was imported since, which torch does by the thousand."""
    Path(ENVIRONMENT["SPECCHAT_HOME"], "data", "edit_formats.json").unlink(missing_ok=True)
    if len(sys.modules) > _frozen_modules + MANY_MODULES:
        KEEPS_FROZEN.stop()
        gc.collect()
        freeze_objects()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Load the native kernels before a test chooses an empty cache, for which they would be compiled again."""
    native_ops = sys.modules.get("specchat.forward.native.native_ops")  # not there unless torch is needed anyway
    if native_ops is not None and not session.config.option.collectonly:
        with alone_among_test_processes(Path(ENVIRONMENT["SPECCHAT_CACHE"])):
            native_ops.native_kernels()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases of a function beyond two `full`, of a dear one beyond one: those that add the fewest new pairs.

    A run of full cases takes a sample of each function's, unless it is to have every combination.
    """
    for group in _cases_by_function(items, is_full=False):
        for item in rest_of_cover(group, DEAR_CASES if group[0].get_closest_marker("dear") else DEFAULT_CASES):
            item.add_marker(pytest.mark.full)
    if cover.makes_full_cases and not cover.makes_every_case:
        left_out = set[pytest.Item]()
        for group in _cases_by_function(items, is_full=True):
            left_out.update(rest_of_sample(group))
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _cases_by_function(items: list[pytest.Item], is_full: bool) -> Iterable[list[pytest.Function]]:
    cases = defaultdict[tuple[Path, str], list[pytest.Function]](list)
    for item in items:
        kept = item.get_closest_marker("full") if is_full else not any(map(item.get_closest_marker, ("full", "gpu")))
        if isinstance(item, pytest.Function) and kept:
            cases[item.path, item.nodeid.partition("[")[0]].append(item)
    return cases.values()
