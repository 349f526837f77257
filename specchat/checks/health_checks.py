"""Does everything work here, and what would be chosen? The checks of `specchat doctor`.

One finding a line: ok, warn (it works, but could be better) or fail (it does not). A check is a generator of findings.
An error inside a check becomes a finding, and the other checks still run.
"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from specchat import __version__
from specchat.devices import DeviceKind, drivers, may_have_gpu
from specchat.errors import ModelError, SpecchatError, first_line
from specchat.hub.catalog import catalog_review_date
from specchat.hub.machine import Machine, cpu_features, main_memory, memory_bandwidth, probe, probed_gpus
from specchat.hub.memory_plan import GIB
from specchat.hub.recommend import TOO_LARGE, format_gib
from specchat.paths import cache_folder, configuration_folder, hub_cache_folder
from specchat.profile.keys import Profile
from specchat.profile.profile_files import load_profile
from specchat.profile.project_file import find_project_file
from specchat.profile.validation import merge_sources

OK, WARN, FAIL = "ok", "warn", "fail"
REQUIRED_PACKAGES = ("transformers", "safetensors", "tokenizers", "textual", "click")
LOW_DISK_BYTES, MIN_DISK_BYTES = 5 * GIB, GIB // 4
TRITON_KERNELS = "triton_kernels"  # of PROBES
TORCH_INDEX = "https://download.pytorch.org/whl/"
TORCH_BUILDS = {"NVIDIA": "cu130", "AMD": "rocm6.4", "Intel": "xpu"}  # docs/platforms.md names others
MAX_CATALOG_AGE_DAYS = 365
SLOW_BYTES_PER_SECOND = 15e9  # below it even small models answer slower than people read


@dataclass(frozen=True)
class Finding:
    status: str
    check: str
    message: str


@dataclass
class CheckContext:
    """What several checks share, computed once."""

    profile_name: str = "chat"
    skips_measurements: bool = False  # and starts no other process
    on_wait: Callable[[str], None] = lambda _line: None

    @cached_property
    def machine(self) -> Machine:
        gpus = probed_gpus(self.package_probes.get("torch", {}))
        bandwidth = None if self.skips_measurements else memory_bandwidth()
        return Machine((*gpus, main_memory()), cpu_features(), bandwidth)

    @cached_property
    def package_probes(self) -> dict[str, dict[str, Any]]:
        """The results of probing PROBES, at the same time; that of GPUs only where one may be."""
        if self.skips_measurements:
            return {}
        from specchat.hub.package_probes import PROBES

        names = [name for name in PROBES if name != TRITON_KERNELS or may_have_gpu()]
        done = Queue[tuple[str, dict[str, Any]]]()
        for name in names:  # daemons, because Ctrl-C would wait for the threads of a pool
            Thread(target=lambda name=name: done.put((name, probe(name))), daemon=True).start()
        found = dict([done.get()])
        while waiting := [name.replace("_", " ") for name in names if name not in found]:
            self.on_wait(f"waiting for {' and '.join(waiting)}")
            found.update([done.get()])
        return found

    @cached_property
    def profile(self) -> Profile:
        return load_profile(self.profile_name)


def run_checks(context: CheckContext) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        try:
            yield from check(context)
        except SpecchatError as error:
            yield Finding(FAIL, name, str(error))
        except Exception as error:  # noqa: BLE001 - a failing check is a finding
            yield Finding(FAIL, name, f"{type(error).__name__}: {first_line(error)}")


def _python(_context: CheckContext) -> Iterator[Finding]:
    message = f"{platform.python_version()} ({sys.executable}), specchat {__version__}, {platform.platform()}"
    yield Finding(OK if sys.version_info >= (3, 11) else FAIL, "python", message)
    for package in REQUIRED_PACKAGES:
        try:
            yield Finding(OK, package, version(package))
        except PackageNotFoundError:
            yield Finding(FAIL, package, "not installed; install specchat again")


def _torch(context: CheckContext) -> Iterator[Finding]:
    if context.skips_measurements:
        return
    found = context.package_probes["torch"]
    if problem := _problem_with(found, "it computes wrong results"):
        yield Finding(FAIL, "torch", f"does not work: {problem}; install it again")
        return
    built_for = found["platform"] or "no GPU"
    yield Finding(OK, "torch", f"{found['version']}, for {built_for}, {found['threads']} threads")
    if not found["gpus"] and (makers := drivers()):
        message = f"a driver of {' and '.join(makers)} is loaded, and torch, built for {built_for}, finds no GPU"
        builds = " or ".join(TORCH_INDEX + TORCH_BUILDS[maker] for maker in makers)
        yield Finding(WARN, "gpus", f"{message}; install a build of torch that fits the driver, as from {builds}")


def _devices(context: CheckContext) -> Iterator[Finding]:
    """What is used on each kind of device here, and what of it was never tried."""
    if context.skips_measurements:
        yield Finding(OK, "gpus", "not looked for: --quick does not import torch")
        return
    for kind in dict.fromkeys(device.kind for device in context.machine.devices):
        uses = [_graphs_and_kernels(context, kind) if kind.is_gpu else "kernels in C++ where they compile"]
        uses.append(f"weights {', '.join(kind.weight_formats)}")
        yield Finding(OK, f"device {kind.name}", f"{'; '.join(uses)}; {kind.tried}")


def _graphs_and_kernels(context: CheckContext, kind: DeviceKind) -> str:
    if not kind.has_kernels:
        return "no graphs, no kernels of our own: torch computes, and nothing stays in 4 bits"
    graphs = "CUDA graphs" if kind.has_graphs else "no graphs"
    found = context.package_probes.get(TRITON_KERNELS, {"error": "not probed"})
    if problem := _problem_with(found, "their results differ from torch"):
        return f"{graphs}, no Triton kernels: {problem}"
    four_bits = "AWQ and GPTQ stay in 4 bits" if found["has_int4"] else "AWQ and GPTQ are dequantized"
    blocks = "GGUF files keep their blocks" if found["has_blocks"] else "GGUF files are dequantized"
    return f"{graphs}, Triton kernels compiled and compared with torch, {four_bits}, {blocks}"


def _bitsandbytes(context: CheckContext) -> Iterator[Finding]:
    if context.skips_measurements:
        return
    found = context.package_probes["bitsandbytes"]
    if problem := _problem_with(found, "it computes wrong results"):
        yield Finding(WARN, "bitsandbytes", f"does not work, so there are no 4-bit weights: {problem}")
        return
    yield Finding(OK, "bitsandbytes", f"{found['version']}, 4-bit weights on {found['device']}")


def _native_ops(context: CheckContext) -> Iterator[Finding]:
    if context.skips_measurements or context.machine.best_device is not context.machine.cpu:
        return
    found = context.package_probes["native_ops"]
    if problem := _problem_with(found, "their results differ from torch"):
        yield Finding(WARN, "native ops", f"not used: torch computes, small models are slower on the CPU: {problem}")
        return
    yield Finding(OK, "native ops", found["origin"])


def _problem_with(probe_result: Mapping[str, Any], wrong_result_message: str) -> str:
    return str(probe_result.get("error") or ("" if probe_result.get("computes") else wrong_result_message))


def _machine(context: CheckContext) -> Iterator[Finding]:
    machine = context.machine
    for device in machine.devices:
        short = device.free_bytes < GIB
        message = f"{device.name}: {format_gib(device.free_bytes)} of {format_gib(device.total_bytes)} free"
        yield Finding(WARN if short else OK, "gpu" if device.is_gpu else "memory", message)
    if machine.best_device is machine.cpu and not context.skips_measurements:
        yield Finding(OK, "gpus", "none found; everything runs on the CPU")
    lacking = "" if "BF16" in machine.cpu_features else "; without BF16 it computes in float32, with twice the bytes"
    features = " ".join(machine.cpu_features) or "no vector instructions found"
    yield Finding(WARN if lacking else OK, "cpu", f"{features}{lacking}")
    if machine.bytes_per_second is not None:
        slow = machine.best_device is machine.cpu and machine.bytes_per_second < SLOW_BYTES_PER_SECOND
        message = f"{machine.bytes_per_second / 1e9:.1f} GB/s while copying, measured now beside other programs"
        yield Finding(WARN if slow else OK, "bandwidth", f"{message}{'; small models only' * slow}")


def _folders(_context: CheckContext) -> Iterator[Finding]:
    from specchat.host.spawn import history_path, runtime_folder

    folders: dict[str, Callable[[], Path]] = {
        "runtime": runtime_folder, "history": lambda: history_path().parent, "configuration": configuration_folder,
        "measurements": cache_folder, "models": hub_cache_folder,
    }  # fmt: skip
    for name, find_folder in folders.items():
        try:
            folder = find_folder()
        except SpecchatError as error:
            yield Finding(FAIL, f"folder: {name}", str(error))
            continue
        yield _check_writable_folder(name, folder)


def _check_writable_folder(name: str, folder: Path) -> Finding:
    """Whether the folder is writable, or can be created; leaves no file."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        if not existing.is_dir():
            return Finding(FAIL, f"folder: {name}", f"{existing} is not a folder; move it away")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        message = f"{folder} cannot be written ({error.strerror}); change its permissions, or choose another folder"
        return Finding(FAIL, f"folder: {name}", message)
    free = shutil.disk_usage(existing).free
    message = f"{folder}{'' if existing == folder else ' (created when needed)'}, {format_gib(free)} free"
    if name != "models":
        return Finding(FAIL if free < MIN_DISK_BYTES // 4 else OK, f"folder: {name}", message)
    status = FAIL if free < MIN_DISK_BYTES else WARN if free < LOW_DISK_BYTES else OK
    return Finding(status, f"folder: {name}", message + "; a model of 8 B takes 15 GiB" * (status != OK))


def _engine(_context: CheckContext) -> Iterator[Finding]:
    from specchat.host.client import connect

    connection = connect("specchat doctor", starts_host=False)
    if connection is None:
        yield Finding(OK, "engine", "not running; the first question starts it")
        return
    with closing(connection):
        stats, host_version = connection.call("stats", {}), connection.host_info["version"]
    memory = format_gib(sum(stats["memory_bytes"].values()))
    conversations = f"{stats['sessions']} conversation{'' if stats['sessions'] == 1 else 's'}"
    message = f"process {connection.host_info['pid']}, {stats['state']}, {conversations}"
    version_note = "" if host_version == __version__ else f"; it is {host_version}"
    message += f", {memory} of models and conversations{version_note} {stats['warning'] or ''}"
    yield Finding(WARN if stats["warning"] or version_note else OK, "engine", message.rstrip())
    yield from engine_variables(connection.host_info)


def engine_variables(host_info: Mapping[str, Any]) -> Iterator[Finding]:
    """A warning where the engine was started with other environment variables."""
    from specchat.host.environment import differing_variables

    if other := differing_variables(host_info["environment"]):
        names = f"{', '.join(other)} {'differs' if len(other) == 1 else 'differ'} from this terminal"
        yield Finding(WARN, "engine", f"{names}; 'specchat host stop' lets the next question start it anew")


def _profiles(context: CheckContext) -> Iterator[Finding]:
    folder = configuration_folder() / "profiles"
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
        try:
            load_profile(str(path))
        except SpecchatError as error:
            yield Finding(FAIL, "profile", str(error))
    profile, models = context.profile, context.profile.models
    message = f"{profile.name}: {models.target} ({models.weights}), drafter {profile.speculation.variant}"
    yield Finding(OK, "profile", message)


def _models(context: CheckContext) -> Iterator[Finding]:
    from specchat.loading.fitted_plan import plan_for_machine

    models = context.profile.models
    if models.is_on_server:
        yield Finding(OK, "models", f"on the server {models.url} ({models.backend})")
        return
    try:
        plan = plan_for_machine(context.profile, context.machine)
    except ModelError as error:
        role = "draft" if models.draft and str(error).startswith(models.draft) else "target"
        yield Finding(FAIL, f"model: {role}", str(error))
        return
    for line in plan.lines():
        status = WARN if line.is_left_out else OK if line.is_local else FAIL
        yield Finding(status, f"model: {line.role}", line.text)
    if fit := plan.fit(context.machine):
        yield Finding(FAIL if fit.label == TOO_LARGE else OK, "memory needed", plan.refusal or fit.describe())
    if plan.given_way:
        yield Finding(WARN, "memory needed", plan.given_way)


def catalog_age(reviewed: date, today: date) -> Iterator[Finding]:
    """A warning where newer models than those of the catalog have been published for a year."""
    if (today - reviewed).days > MAX_CATALOG_AGE_DAYS:
        message = f"the models that are known were last reviewed on {reviewed:%Y-%m-%d}; a newer specchat knows more"
        yield Finding(WARN, "catalog", message)


def _plugins(_context: CheckContext) -> Iterator[Finding]:
    from specchat.plugins.discovery import installed_plugins

    found = installed_plugins()
    for plugin in found:
        if plugin.error:
            yield Finding(WARN, "plugin", f"{plugin.name} is not loaded: {plugin.error}")
        else:
            yield Finding(OK, "plugin", f"{plugin.name} {plugin.version}".rstrip())
    if not found:
        is_off = "SPECCHAT_LOAD_PLUGINS" in os.environ
        yield Finding(OK, "plugin", "none; SPECCHAT_LOAD_PLUGINS turns them off" if is_off else "none is installed")


def _tool_sources(context: CheckContext) -> Iterator[Finding]:
    """Those of the profile and of a trusted project file; nothing of them is started."""
    from specchat.app.tool_sources import SourceRequest, ToolSources
    from specchat.host.spawn import project_trust

    project = find_project_file(Path.cwd())
    sources = [project.source()] if project and project_trust().is_trusted(project) else []
    found = ToolSources(SourceRequest(merge_sources(context.profile, sources).value))
    for each in found.checks():
        yield Finding(WARN if each.is_problem else OK, each.subject, each.message)
    yield from (Finding(WARN, "tools", line) for line in found.take_notices())


CHECKS: dict[str, Callable[[CheckContext], Iterator[Finding]]] = {
    "python": _python, "torch": _torch, "bitsandbytes": _bitsandbytes, "native ops": _native_ops, "machine": _machine,
    "devices": _devices,
    "folders": _folders, "engine": _engine, "profile": _profiles, "models": _models,
    "catalog": lambda _context: catalog_age(catalog_review_date(), datetime.now(tz=UTC).date()),
    "plugins": _plugins, "tools": _tool_sources,
}  # fmt: skip
