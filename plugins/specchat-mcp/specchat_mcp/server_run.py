"""One run of an MCP server, from its start to its end: a task on the thread of the event loop.

Everything here is asynchronous, and this is the only module besides the transports that imports the package `mcp`,
which takes a second; so it is imported when the first server starts.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any, TypeVar

import anyio
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    Implementation,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    ToolListChangedNotification,
)

from specchat import __version__
from specchat_mcp.checked_tools import with_checked_tools
from specchat_mcp.http_transport import http_transport
from specchat_mcp.server_errors import McpServerError, one_line
from specchat_mcp.server_settings import ServerSettings
from specchat_mcp.stdio_transport import ServerProcess, stdio_transport

MAX_PAGES, MAX_LISTED = 100, 1000  # of a list of tools, prompts or resources
CHANGED_TOOLS = "has other tools now; '/mcp restart {}' reads them"
END_SECONDS = 2.0
Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Catalog:
    """What a server offers, as it said when it started."""

    tools: Sequence[Tool] = ()
    prompts: Sequence[Prompt] = ()
    resources: Sequence[Resource] = ()
    templates: Sequence[ResourceTemplate] = ()


class ServerRun:
    """`started` gets the catalog or an McpServerError; `failure` says why the server ended, "" while it runs."""

    def __init__(self, settings: ServerSettings, on_notice: Callable[[str], None]) -> None:
        self.settings, self._on_notice = settings, on_notice
        self.started: Future[Catalog] = Future()
        self.failure, self.has_ended = "", Flag()
        self._client: Client | None = None
        self._process: ServerProcess | None = None
        self._scope: anyio.CancelScope | None = None
        self._is_over = anyio.Event()  # `failure` is known
        self._is_stopped = self._has_changed = False

    async def serve(self) -> None:
        """Start the server, and stay until it ends or is stopped."""
        self._process = process = ServerProcess()
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self.settings.start_seconds) as self._scope:
                if not self._is_stopped:
                    await self._serve(process)
        except Exception as error:  # noqa: BLE001 (a server and its transport may fail in any way)
            self._end(process.failure or one_line(error))
        else:
            self._end(process.failure or f"did not start within {self.settings.start_seconds:g} s")

    async def _serve(self, process: ServerProcess) -> None:
        info = Implementation(name="specchat", version=__version__)
        transport = self._transport(process)
        async with Client(transport, client_info=info, message_handler=self._on_message, cache=None) as client:
            catalog = await _read_catalog(client)
            if self._scope:
                self._scope.deadline = math.inf
            self._client = client
            with suppress(InvalidStateError):  # the front end waits for it no more
                self.started.set_result(catalog)
            await process.has_ended.wait()

    def _transport(self, process: ServerProcess) -> AbstractAsyncContextManager[Any]:
        settings = self.settings
        transport = stdio_transport(settings, process) if settings.command else http_transport(settings)
        return with_checked_tools(transport, lambda text: self._on_notice(str(McpServerError(settings.name, text))))

    async def ask(self, question: Callable[[Client], Awaitable[Result]], seconds: float) -> Result:
        """The answer; McpServerError when there is none within this time, or an error instead."""
        if self._client is None:
            raise McpServerError(self.settings.name, self.failure or "is not running")
        try:
            with anyio.fail_after(seconds):
                return await question(self._client)
        except TimeoutError:
            raise McpServerError(self.settings.name, f"did not answer within {seconds:g} s") from None
        except Exception as error:  # a server may answer in any way
            if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
                await self._learn_failure()
            raise McpServerError(self.settings.name, self.failure or one_line(error)) from error

    async def _learn_failure(self) -> None:
        """Wait for the reason why the connection is closed: the program has ended, or the transport will have."""
        if self._process and self._process.failure:
            self._fail(self._process.failure)
            return
        with anyio.move_on_after(END_SECONDS):
            await self._is_over.wait()

    async def stop(self) -> None:
        self._is_stopped = True
        if self._scope:
            self._scope.cancel()

    def _end(self, failure: str) -> None:
        self._client = None
        self._fail("was stopped" if self._is_stopped else failure)
        if not self.started.done():
            with suppress(InvalidStateError):
                self.started.set_exception(McpServerError(self.settings.name, self.failure))
        self.has_ended.set()

    def _fail(self, failure: str) -> None:
        """Remember why the server is of no more use, and say it once."""
        if not self.failure:
            self.failure = failure
            self._is_over.set()
            if not self._is_stopped:
                self._on_notice(str(McpServerError(self.settings.name, failure)))

    async def _on_message(self, message: Any) -> None:
        """New tools are read when the user says so: a tool that was allowed must not become another one."""
        if isinstance(message, ToolListChangedNotification) and self._client and not self._has_changed:
            self._has_changed = True
            self._on_notice(str(McpServerError(self.settings.name, CHANGED_TOOLS.format(self.settings.name))))


async def _read_catalog(client: Client) -> Catalog:
    offered = client.server_capabilities
    tools = await _all_pages(lambda cursor: client.list_tools(cursor=cursor), "tools") if offered.tools else []
    prompts, resources, templates = list[Prompt](), list[Resource](), list[ResourceTemplate]()
    with suppress(MCPError, ValueError):  # a server without them may say that it has them, or list other things
        if offered.prompts:
            prompts = await _all_pages(lambda cursor: client.list_prompts(cursor=cursor), "prompts")
    with suppress(MCPError, ValueError):
        if offered.resources:
            resources = await _all_pages(lambda cursor: client.list_resources(cursor=cursor), "resources")
            listing = "resource_templates"
            templates = await _all_pages(lambda cursor: client.list_resource_templates(cursor=cursor), listing)
    return Catalog(tools, prompts, resources, templates)


async def _all_pages(list_page: Callable[[str | None], Awaitable[Any]], name: str) -> list[Any]:
    items, cursor = list[Any](), None
    for _ in range(MAX_PAGES):
        page = await list_page(cursor)
        items += getattr(page, name)
        cursor = page.next_cursor
        if cursor is None or len(items) >= MAX_LISTED:
            break
    return items[:MAX_LISTED]
