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
from specchat.hub.machine import Machine, this_machine
from specchat.hub.memory_plan import GIB, Held, need
from specchat.hub.recommend import Pair, in_gib, reasons, recommend
from specchat.profile import Profile, configuration_folder, load_profile

OK, WARN, FAIL = "ok", "warn", "fail"
NEEDED = ("transformers", "safetensors", "tokenizers", "textual", "click")
ROOM_WARNS, ROOM_FAILS = 5 * GIB, GIB // 4
SLOW_BYTES = 15e9  # a second: below it even small models write slower than one reads


@dataclass(frozen=True)
class Finding:
    """One line: how it is, what was looked at, what was found and what to do."""

    verdict: str
    what: str
    text: str


@dataclass
class Patient:
    """What several checks look at, found once."""

    profile_name: str = "chat"
    is_quick: bool = False  # measures nothing and starts no other process

    @cached_property
    def machine(self) -> Machine:
        """Memory, cards and the CPU."""
        return this_machine(is_measured=not self.is_quick)

    @cached_property
    def packages(self) -> dict[str, dict[str, Any]]:
        """What torch, bitsandbytes and our own kernels say of themselves; all are asked at once."""
        if self.is_quick:
            return {}
        from specchat.hub.probe import PROBES, probe

        with ThreadPoolExecutor(len(PROBES)) as pool:
            return dict(zip(PROBES, pool.map(probe, PROBES), strict=True))

    @cached_property
    def profile(self) -> Profile:
        """The profile that was asked for; ProfileError when it cannot be used."""
        return load_profile(self.profile_name)


def findings(patient: Patient) -> Iterator[Finding]:
    """Everything, in the order in which one thing rests on another."""
    for what, check in CHECKS.items():
        try:
            yield from check(patient)
        except SpecchatError as error:
            yield Finding(FAIL, what, str(error))
        except Exception as error:  # noqa: BLE001 - a doctor who faints helps nobody
            first_line = (str(error).strip() or "no message").splitlines()[0]
            yield Finding(FAIL, what, f"{type(error).__name__}: {first_line}")


def _python(_patient: Patient) -> Iterator[Finding]:
    said = f"{platform.python_version()} ({sys.executable}), specchat {__version__}, {platform.platform()}"
    yield Finding(OK if sys.version_info >= (3, 11) else FAIL, "python", said)
    for package in NEEDED:
        try:
            yield Finding(OK, package, version(package))
        except PackageNotFoundError:
            yield Finding(FAIL, package, "not installed; install specchat again")


def _torch(patient: Patient) -> Iterator[Finding]:
    if patient.is_quick:
        return
    found = patient.packages["torch"]
    if trouble := _trouble(found, "it multiplies wrongly"):
        yield Finding(FAIL, "torch", f"does not work: {trouble}; install it again")
        return
    yield Finding(OK, "torch", f"{found['version']}, CUDA {found['cuda'] or 'left out'}, {found['threads']} threads")
    seen, cards = len(found["cards"]), [device for device in patient.machine.devices if device.is_card]
    if len(cards) > seen:
        said = f"the driver knows {len(cards)} and torch {seen}: its CUDA is {found['cuda'] or 'left out'}"
        yield Finding(WARN, "cards", f"{said}; install a build that fits the driver")


def _bitsandbytes(patient: Patient) -> Iterator[Finding]:
    if patient.is_quick:
        return
    found = patient.packages["bitsandbytes"]
    if trouble := _trouble(found, "it holds weights wrongly"):
        yield Finding(WARN, "bitsandbytes", f"does not work, so no weights in 4 bits: {trouble}")
        return
    yield Finding(OK, "bitsandbytes", f"{found['version']}, weights in 4 bits on {found['device']}")


def _kernels(patient: Patient) -> Iterator[Finding]:
    if patient.is_quick or patient.machine.best is not patient.machine.cpu:
        return
    if trouble := _trouble(patient.packages["kernels"], "they compute otherwise than torch"):
        yield Finding(WARN, "kernels", f"left out, so small models are slower on the CPU: {trouble}")
        return
    yield Finding(OK, "kernels", "compiled for this CPU")


def _trouble(found: Mapping[str, Any], wrong: str) -> str:
    """What is the matter with a package that was tried; `wrong` is said of one that computes something else."""
    return str(found.get("trouble") or ("" if found.get("computes") else wrong))


def _machine(patient: Patient) -> Iterator[Finding]:
    machine = patient.machine
    for device in machine.devices:
        short = device.free < GIB
        said = f"{device.name}: {in_gib(device.free)} of {in_gib(device.total)} free"
        yield Finding(WARN if short else OK, "card" if device.is_card else "memory", said)
    if machine.best is machine.cpu:
        yield Finding(OK, "cards", "none found; everything runs on the CPU")
    lacking = "" if "BF16" in machine.skills else "; without BF16 weights are computed in float32, twice the bytes"
    yield Finding(OK if not lacking else WARN, "cpu", f"{' '.join(machine.skills) or 'no vector units known'}{lacking}")
    if machine.bytes_per_second is not None:
        slow = machine.best is machine.cpu and machine.bytes_per_second < SLOW_BYTES
        said = f"{machine.bytes_per_second / 1e9:.1f} GB/s while copying, measured now with whatever else runs"
        yield Finding(WARN if slow else OK, "bandwidth", f"{said}{'; small models only' * slow}")


def _folders(_patient: Patient) -> Iterator[Finding]:
    from specchat.host.spawn import history_path, runtime_folder
    from specchat.hub.local_files import cache_of_hub

    places: dict[str, Callable[[], Path]] = {
        "runtime": runtime_folder, "history": lambda: history_path().parent, "configuration": configuration_folder,
        "measurements": _measurements, "models": cache_of_hub,
    }  # fmt: skip
    for name, place in places.items():
        try:
            folder = place()
        except SpecchatError as error:
            yield Finding(FAIL, f"folder: {name}", str(error))
            continue
        yield _folder(name, folder)


def _measurements() -> Path:
    """Where costs of passes are kept; as engine.costs has it, which cannot be asked without torch."""
    if chosen := os.environ.get("SPECCHAT_CACHE") or os.environ.get("SPECCHAT_RUNTIME"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("specchat", appauthor=False)


def _folder(name: str, folder: Path) -> Finding:
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
    said = f"{folder}{'' if there == folder else ' (made when needed)'}, {in_gib(free)} free"
    if name != "models":
        return Finding(FAIL if free < ROOM_FAILS // 4 else OK, f"folder: {name}", said)
    verdict = FAIL if free < ROOM_FAILS else WARN if free < ROOM_WARNS else OK
    return Finding(verdict, f"folder: {name}", said + "; a model of 8 B takes 15 GiB" * (verdict != OK))


def _engine(_patient: Patient) -> Iterator[Finding]:
    from specchat.host.client import connect

    line = connect("specchat doctor", start=False)
    if line is None:
        yield Finding(OK, "engine", "no process runs; the first question starts one")
        return
    stats = line.call("stats", {})
    held = sum(stats["memory"].values())
    said = (
        f"process {line.hello['pid']}, {stats['state']}, {in_gib(held)} of weights and text, {stats['turns']} answers"
    )
    verdict, beside = (OK, "") if line.hello["version"] == __version__ else (WARN, f"; it is {line.hello['version']}")
    yield Finding(WARN if stats["trouble"] else verdict, "engine", f"{said}{beside} {stats['trouble'] or ''}".rstrip())


def _profiles(patient: Patient) -> Iterator[Finding]:
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


def _models(patient: Patient) -> Iterator[Finding]:
    """Are they here, and do they fit the memory that is free?"""
    from specchat.hub.local_files import Located, locate

    models = patient.profile.models
    found: dict[str, Located] = {}
    drafting = [name for name in models.heads if name != "embedded"]
    wanted = [("target", models.target), ("draft", models.draft), *(("head", name) for name in drafting)]
    for role, name in wanted:
        if not name:
            continue
        try:
            found[role] = locate(f"embedded/{role}" if name == "embedded" else name)
        except ModelError as error:
            yield Finding(FAIL, f"model: {role}", _missing(name, error))
            continue
        here = found[role].folder is not None
        said = f"{found[role].folder or f'{name} is not on this disk; specchat models pull {name}'}"
        yield Finding(OK if here else FAIL, f"model: {role}", said)
    if "target" in found:
        yield _fit(patient, found["target"].anatomy, found.get("draft"))


def _missing(name: str, error: ModelError) -> str:
    is_hub_id = name.count("/") == 1 and not name.startswith((".", "/", "~"))
    return f"{name} is not on this disk; specchat models pull {name}" if is_hub_id else str(error)


def _fit(patient: Patient, anatomy: Any, draft: Any) -> Finding:
    models, limits = patient.profile.models, patient.profile.limits
    device = patient.machine.cpu if models.device == "cpu" else patient.machine.best
    way = models.weights if models.weights != "float" else "float32" if models.dtype == "float32" else "bf16"
    beside = Held(draft.anatomy, "bf16") if draft else None
    tokens = min(limits.context, anatomy.longest or limits.context)
    taken = need(Held(anatomy, way), beside, tokens, on_card=device.is_card, keeps_windows=False).total
    said = f"{in_gib(taken)} with a text of {tokens} tokens, {in_gib(device.free)} free on {device.name}"
    return Finding(OK if taken <= device.free else FAIL, "memory needed", said)


def _choice(patient: Patient) -> Iterator[Finding]:
    """What would be chosen here, and why."""
    machine = patient.machine
    pairs: list[Pair] = recommend(machine.best, None, machine.skills, machine.bytes_per_second)
    if not pairs:
        yield Finding(OK, "choice", "nothing of the catalog fits here; the embedded models do")
        return
    best = pairs[0]
    drafter = best.drafting.id or "copies of its own text"
    yield Finding(OK, "choice", f"{best.entry.id} ({best.way}) with {drafter}; 'specchat models recommend' says more")
    yield from (Finding(OK, "because", line) for line in reasons(best))


def _plugins(_patient: Patient) -> Iterator[Finding]:
    from specchat.plugins.discovery import plugins

    found = plugins()
    for plugin in found:
        if plugin.trouble:
            yield Finding(WARN, "plugin", f"{plugin.name} is left out: {plugin.trouble}")
        else:
            yield Finding(OK, "plugin", f"{plugin.name} {plugin.version}".rstrip())
    if not found:
        off = "SPECCHAT_LOAD_PLUGINS" in os.environ
        yield Finding(OK, "plugin", "none; SPECCHAT_LOAD_PLUGINS turns them off" if off else "none is installed")


CHECKS: dict[str, Callable[[Patient], Iterator[Finding]]] = {
    "python": _python,
    "torch": _torch,
    "bitsandbytes": _bitsandbytes,
    "kernels": _kernels,
    "machine": _machine,
    "folders": _folders,
    "engine": _engine,
    "profile": _profiles,
    "models": _models,
    "choice": _choice,
    "plugins": _plugins,
}
