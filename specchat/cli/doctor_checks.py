"""What `specchat doctor` looks at, one finding a line: ok, warn (it works, and could be better) or fail (it does not).

A check is a generator of findings. Whatever goes wrong inside one becomes a finding too, and the others still run.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specchat import __version__
from specchat.errors import ModelError, SpecchatError
from specchat.hub.machine import Machine, detect_machine
from specchat.hub.memory_plan import GIB, QuantizedModel, plan_memory
from specchat.hub.recommend import ModelPair, format_gib, reasons, recommend
from specchat.profile import Profile, configuration_folder, load_profile

OK, WARN, FAIL = "ok", "warn", "fail"
REQUIRED_PACKAGES = ("transformers", "safetensors", "tokenizers", "textual", "click")
LOW_DISK_BYTES, MIN_DISK_BYTES = 5 * GIB, GIB // 4
SLOW_BYTES_PER_SECOND = 15e9  # a second: below it even small models write slower than one reads


@dataclass(frozen=True)
class Finding:
    """One line: how it is, what was looked at, what was found and what to do."""

    status: str
    check: str
    message: str


@dataclass
class CheckContext:
    """What several checks look at, found once."""

    profile_name: str = "chat"
    skips_measurements: bool = False  # measures nothing and starts no other process

    @cached_property
    def machine(self) -> Machine:
        """Memory, cards and the CPU."""
        return detect_machine(measures_bandwidth=not self.skips_measurements)

    @cached_property
    def package_probes(self) -> dict[str, dict[str, Any]]:
        """What torch, bitsandbytes and our own kernels say of themselves; all are asked at once."""
        if self.skips_measurements:
            return {}
        from specchat.hub.probe import PROBES, probe

        with ThreadPoolExecutor(len(PROBES)) as pool:
            return dict(zip(PROBES, pool.map(probe, PROBES), strict=True))

    @cached_property
    def profile(self) -> Profile:
        """The profile that was asked for; ProfileError when it cannot be used."""
        return load_profile(self.profile_name)


def run_checks(context: CheckContext) -> Iterator[Finding]:
    """Everything, in the order in which one thing rests on another."""
    for what, check in CHECKS.items():
        try:
            yield from check(context)
        except SpecchatError as error:
            yield Finding(FAIL, what, str(error))
        except Exception as error:  # noqa: BLE001 - a doctor who faints helps nobody
            first_line = (str(error).strip() or "no message").splitlines()[0]
            yield Finding(FAIL, what, f"{type(error).__name__}: {first_line}")


def _python(_patient: CheckContext) -> Iterator[Finding]:
    said = f"{platform.python_version()} ({sys.executable}), specchat {__version__}, {platform.platform()}"
    yield Finding(OK if sys.version_info >= (3, 11) else FAIL, "python", said)
    for package in REQUIRED_PACKAGES:
        try:
            yield Finding(OK, package, version(package))
        except PackageNotFoundError:
            yield Finding(FAIL, package, "not installed; install specchat again")


def _torch(patient: CheckContext) -> Iterator[Finding]:
    if patient.skips_measurements:
        return
    found = patient.package_probes["torch"]
    if trouble := _problem_with(found, "it multiplies wrongly"):
        yield Finding(FAIL, "torch", f"does not work: {trouble}; install it again")
        return
    yield Finding(OK, "torch", f"{found['version']}, CUDA {found['cuda'] or 'left out'}, {found['threads']} threads")
    seen, cards = len(found["cards"]), [device for device in patient.machine.devices if device.is_gpu]
    if len(cards) > seen:
        said = f"the driver knows {len(cards)} and torch {seen}: its CUDA is {found['cuda'] or 'left out'}"
        yield Finding(WARN, "cards", f"{said}; install a build that fits the driver")


def _bitsandbytes(patient: CheckContext) -> Iterator[Finding]:
    if patient.skips_measurements:
        return
    found = patient.package_probes["bitsandbytes"]
    if trouble := _problem_with(found, "it holds weights wrongly"):
        yield Finding(WARN, "bitsandbytes", f"does not work, so no weights in 4 bits: {trouble}")
        return
    yield Finding(OK, "bitsandbytes", f"{found['version']}, weights in 4 bits on {found['device']}")


def _kernels(patient: CheckContext) -> Iterator[Finding]:
    if patient.skips_measurements or patient.machine.best_device is not patient.machine.cpu:
        return
    if trouble := _problem_with(patient.package_probes["kernels"], "they compute otherwise than torch"):
        yield Finding(WARN, "kernels", f"left out, so small models are slower on the CPU: {trouble}")
        return
    yield Finding(OK, "kernels", "compiled for this CPU")


def _problem_with(probe_result: Mapping[str, Any], wrong_result_message: str) -> str:
    """What is the matter with a package that was tried; `wrong` is said of one that computes something else."""
    return str(probe_result.get("trouble") or ("" if probe_result.get("computes") else wrong_result_message))


def _machine(patient: CheckContext) -> Iterator[Finding]:
    machine = patient.machine
    for device in machine.devices:
        short = device.free_bytes < GIB
        said = f"{device.name}: {format_gib(device.free_bytes)} of {format_gib(device.total_bytes)} free"
        yield Finding(WARN if short else OK, "card" if device.is_gpu else "memory", said)
    if machine.best_device is machine.cpu:
        yield Finding(OK, "cards", "none found; everything runs on the CPU")
    lacking = (
        "" if "BF16" in machine.cpu_features else "; without BF16 weights are computed in float32, twice the bytes"
    )
    yield Finding(
        OK if not lacking else WARN, "cpu", f"{' '.join(machine.cpu_features) or 'no vector units known'}{lacking}"
    )
    if machine.bytes_per_second is not None:
        slow = machine.best_device is machine.cpu and machine.bytes_per_second < SLOW_BYTES_PER_SECOND
        said = f"{machine.bytes_per_second / 1e9:.1f} GB/s while copying, measured now with whatever else runs"
        yield Finding(WARN if slow else OK, "bandwidth", f"{said}{'; small models only' * slow}")


def _folders(_patient: CheckContext) -> Iterator[Finding]:
    from specchat.host.spawn import history_path, runtime_folder
    from specchat.hub.local_models import hub_cache_folder

    places: dict[str, Callable[[], Path]] = {
        "runtime": runtime_folder, "history": lambda: history_path().parent, "configuration": configuration_folder,
        "measurements": _measurements_folder, "models": hub_cache_folder,
    }  # fmt: skip
    for name, place in places.items():
        try:
            folder = place()
        except SpecchatError as error:
            yield Finding(FAIL, f"folder: {name}", str(error))
            continue
        yield _check_writable_folder(name, folder)


def _measurements_folder() -> Path:
    """Where costs of passes are kept; as engine.costs has it, which cannot be asked without torch."""
    if chosen := os.environ.get("SPECCHAT_CACHE") or os.environ.get("SPECCHAT_RUNTIME"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("specchat", appauthor=False)


def _check_writable_folder(name: str, folder: Path) -> Finding:
    """Whether one can write there, or make it where it is missing; nothing is left behind."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        if not there.is_dir():
            return Finding(FAIL, f"folder: {name}", f"{there} is no folder; move it away")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        said = f"{folder} cannot be written ({error.strerror}); change its permissions, or choose another place"
        return Finding(FAIL, f"folder: {name}", said)
    free = shutil.disk_usage(there).free
    said = f"{folder}{'' if there == folder else ' (made when needed)'}, {format_gib(free)} free"
    if name != "models":
        return Finding(FAIL if free < MIN_DISK_BYTES // 4 else OK, f"folder: {name}", said)
    verdict = FAIL if free < MIN_DISK_BYTES else WARN if free < LOW_DISK_BYTES else OK
    return Finding(verdict, f"folder: {name}", said + "; a model of 8 B takes 15 GiB" * (verdict != OK))


def _engine(_patient: CheckContext) -> Iterator[Finding]:
    from specchat.host.client import connect

    line = connect("specchat doctor", starts_host=False)
    if line is None:
        yield Finding(OK, "engine", "no process runs; the first question starts one")
        return
    stats = line.call("stats", {})
    held = sum(stats["memory"].values())
    said = f"process {line.host_info['pid']}, {stats['state']}, {format_gib(held)} of weights and text, {stats['turns']} answers"
    verdict, beside = (
        (OK, "") if line.host_info["version"] == __version__ else (WARN, f"; it is {line.host_info['version']}")
    )
    yield Finding(WARN if stats["trouble"] else verdict, "engine", f"{said}{beside} {stats['trouble'] or ''}".rstrip())


def _profiles(patient: CheckContext) -> Iterator[Finding]:
    """The user's own ones, all of them: a broken one is met when it is needed, which is late."""
    folder = configuration_folder() / "profiles"
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
        try:
            load_profile(str(path))
        except SpecchatError as error:
            yield Finding(FAIL, "profile", str(error))
    profile = patient.profile
    said = (
        f"{profile.name}: {profile.models.target} ({profile.models.weights}), guesses by {profile.speculation.variant}"
    )
    yield Finding(OK, "profile", said)


def _models(patient: CheckContext) -> Iterator[Finding]:
    """Are they here, and do they fit the memory that is free?"""
    from specchat.hub.local_models import LocatedModel, locate_model

    models = patient.profile.models
    found: dict[str, LocatedModel] = {}
    drafting = [name for name in models.heads if name != "embedded"]
    wanted = [("target", models.target), ("draft", models.draft), *(("head", name) for name in drafting)]
    for role, name in wanted:
        if not name:
            continue
        try:
            found[role] = locate_model(f"embedded/{role}" if name == "embedded" else name)
        except ModelError as error:
            yield Finding(FAIL, f"model: {role}", _missing_model_message(name, error))
            continue
        here = found[role].folder is not None
        said = f"{found[role].folder or f'{name} is not on this disk; specchat models pull {name}'}"
        yield Finding(OK if here else FAIL, f"model: {role}", said)
    if "target" in found:
        yield _check_memory_fit(patient, found["target"].architecture, found.get("draft"))


def _missing_model_message(name: str, error: ModelError) -> str:
    is_hub_id = name.count("/") == 1 and not name.startswith((".", "/", "~"))
    return f"{name} is not on this disk; specchat models pull {name}" if is_hub_id else str(error)


def _check_memory_fit(patient: CheckContext, architecture: Any, draft: Any) -> Finding:
    models, limits = patient.profile.models, patient.profile.limits
    device = patient.machine.cpu if models.device == "cpu" else patient.machine.best_device
    way = models.weights if models.weights != "float" else "float32" if models.dtype == "float32" else "bf16"
    beside = QuantizedModel(draft.anatomy, "bf16") if draft else None
    tokens = min(limits.context, architecture.longest or limits.context)
    taken = plan_memory(
        QuantizedModel(architecture, way), beside, tokens, on_gpu=device.is_gpu, uses_sliding_windows=False
    ).total_bytes
    said = f"{format_gib(taken)} with a text of {tokens} tokens, {format_gib(device.free_bytes)} free on {device.name}"
    return Finding(OK if taken <= device.free_bytes else FAIL, "memory needed", said)


def _recommended_models(patient: CheckContext) -> Iterator[Finding]:
    """What would be chosen here, and why."""
    machine = patient.machine
    pairs: list[ModelPair] = recommend(machine.best_device, None, machine.cpu_features, machine.bytes_per_second)
    if not pairs:
        yield Finding(OK, "choice", "nothing of the catalog fits here; the embedded models do")
        return
    best = pairs[0]
    drafter = best.drafter.id or "copies of its own text"
    yield Finding(
        OK, "choice", f"{best.entry.id} ({best.quant_format}) with {drafter}; 'specchat models recommend' says more"
    )
    yield from (Finding(OK, "because", line) for line in reasons(best))


def _plugins(_patient: CheckContext) -> Iterator[Finding]:
    from specchat.plugins.discovery import installed_plugins

    found = installed_plugins()
    for plugin in found:
        if plugin.error:
            yield Finding(WARN, "plugin", f"{plugin.name} is left out: {plugin.error}")
        else:
            yield Finding(OK, "plugin", f"{plugin.name} {plugin.version}".rstrip())
    if not found:
        off = "SPECCHAT_LOAD_PLUGINS" in os.environ
        yield Finding(OK, "plugin", "none; SPECCHAT_LOAD_PLUGINS turns them off" if off else "none is installed")


CHECKS: dict[str, Callable[[CheckContext], Iterator[Finding]]] = {
    "python": _python,
    "torch": _torch,
    "bitsandbytes": _bitsandbytes,
    "kernels": _kernels,
    "machine": _machine,
    "folders": _folders,
    "engine": _engine,
    "profile": _profiles,
    "models": _models,
    "choice": _recommended_models,
    "plugins": _plugins,
}
