"""One browser tab: a process that renders for it and exits with it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

STOP_TIMEOUT_SECONDS = 10.0  # for the process to store its running answer


class BrowserTab(AppService):
    """Runs the command without a shell, and kills a process that does not exit in time."""

    def __init__(
        self,
        command: Sequence[str],
        write_bytes: Callable[[bytes], Awaitable[None]],
        write_str: Callable[[str], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        download_manager: DownloadManager,
    ) -> None:
        super().__init__(
            " ".join(command),
            write_bytes=write_bytes,
            write_str=write_str,
            close=close,
            download_manager=download_manager,
        )
        self._arguments = tuple(command)

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        environment = self._build_environment(width=width, height=height)
        process = await asyncio.create_subprocess_exec(
            *self._arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment
        )
        self._process, self._stdin = process, process.stdin
        return process

    async def stop(self) -> None:
        """Ask the process to exit, then kill it."""
        try:
            await asyncio.wait_for(super().stop(), STOP_TIMEOUT_SECONDS)
        except TimeoutError:
            self._task = None
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
