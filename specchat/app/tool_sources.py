"""Where plugins bring tools for the model, prompts and texts from: the sources of the conversations of a front end.

Nothing is built before something of it is needed: the agent, a name after an @, a completion. A source gives no
consent (`agent/call_consent.py` does), and one that fails is a line for the user, while everything else continues.
"""

import atexit
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import TypeVar

from specchat.app.agent.agent_tool import AgentTool
from specchat.context.at_names import Loader
from specchat.errors import SpecchatError, UsageError
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension, error_text
from specchat.plugins.own_plugins import missing_plugin
from specchat.profile.keys import Profile

MCP = "mcp"  # the source that reads `[mcp]` of a profile, and the servers that an editor passes on
Offer = TypeVar("Offer")


@dataclass(frozen=True)
class SourceRequest:
    """For whom a source is built. The folder and the servers are those of a session of an editor (its own values)."""

    profile: Profile = field(default_factory=Profile)
    folder: Path | None = None
    editor_servers: Sequence[object] = ()


@dataclass(frozen=True)
class OfferedName:
    """What a user can type: "mcp:git:review" after a slash, or "@git:notes://today"."""

    name: str
    help: str
    arguments: str = ""


@dataclass(frozen=True)
class SourceCheck:
    """A line of `specchat doctor` about something that the source uses."""

    subject: str
    message: str
    is_problem: bool = False


class ToolSource:
    """What a plugin overrides; this source offers nothing. Any thread may use it, and no method waits for ever."""

    def tools(self, cancelled: Flag) -> Sequence[AgentTool]:
        """The tools for the agent, asked for with each question."""
        return ()

    def allow_rules(self) -> Sequence[str]:
        """The rules of consent (`TOOL` or `TOOL:PATTERN`) that the user wrote into the settings of the source."""
        return ()

    def take_notices(self) -> Sequence[str]:
        """Lines for the user about what has failed since; each once."""
        return ()

    def prompts(self) -> Sequence[OfferedName]:
        """The slash commands "SOURCE:GROUP:NAME" that are known without waiting."""
        return ()

    def prompt(self, name: str, argument: str, cancelled: Flag) -> str:
        """The question that the slash command "SOURCE:GROUP:NAME" stands for."""
        raise UsageError(f"there is no command /{name}")

    def resources(self) -> Sequence[OfferedName]:
        """The names "@NAME:REST" that are known without waiting."""
        return ()

    def loader(self, name: str, cancelled: Flag) -> Loader | None:
        """What loads the text of "@NAME:REST" by its rest; None for a name that is not of this source."""
        return None

    def checks(self) -> Iterable[SourceCheck]:
        """What `specchat doctor` says; starts nothing."""
        return ()

    def close(self) -> None:
        """End everything that was started."""


class AbsentSource(ToolSource):
    """A source that cannot be used, and the line that says why where it is needed."""

    def __init__(self, error: SpecchatError, names: Iterable[str] = ()) -> None:
        self._error, self._names, self._notices = error, frozenset(names), (str(error),)

    def take_notices(self) -> Sequence[str]:
        notices, self._notices = self._notices, ()
        return notices

    def prompt(self, name: str, argument: str, cancelled: Flag) -> str:
        raise self._error

    def loader(self, name: str, cancelled: Flag) -> Loader | None:
        return self._fail if name in self._names else None

    def _fail(self, _rest: str) -> str:
        raise self._error


class ToolSources:
    """The sources of a front end, as if they were one. `cancelled` is that of the line that the user waits for."""

    def __init__(self, request: SourceRequest | None = None) -> None:
        self.request, self.cancelled = request or SourceRequest(), Flag()
        self._lock, self._failures = Lock(), dict[str, str]()  # by source
        self._built: Mapping[str, ToolSource] | None = None

    @property
    def by_name(self) -> Mapping[str, ToolSource]:
        with self._lock:
            self._built = _build_all(self.request) if self._built is None else self._built
            return self._built

    def tools(self, cancelled: Flag) -> Sequence[AgentTool]:
        return self._offered(lambda source: source.tools(cancelled))

    def allow_rules(self) -> Sequence[str]:
        return self._offered(lambda source: source.allow_rules())

    def prompts(self) -> Sequence[OfferedName]:
        return self._offered(lambda source: source.prompts())

    def resources(self) -> Sequence[OfferedName]:
        return self._offered(lambda source: source.resources())

    def checks(self) -> Sequence[SourceCheck]:
        return self._offered(lambda source: source.checks())

    def take_notices(self) -> Sequence[str]:
        """Builds no source: one that was not needed has no notice."""
        notices = self._offered(lambda source: source.take_notices()) if self._built else []
        failures, self._failures = self._failures, {}
        return [*notices, *failures.values()]

    def prompt(self, name: str, argument: str) -> str | None:
        """The question that the slash command "SOURCE:GROUP:NAME" stands for; None without such a source."""
        source = name.partition(":")[0]
        if source in self.by_name:
            return self.by_name[source].prompt(name, argument, self.cancelled)
        if source == MCP:
            raise missing_plugin(f"'/{name}'", MCP)
        return None

    def loader(self, name: str) -> Loader | None:
        """What loads "@NAME:REST", of the first source that knows the name."""
        return next(iter(self._offered(lambda source: filter(None, [source.loader(name, self.cancelled)]))), None)

    def close(self) -> None:
        for source in (self._built or {}).values():
            source.close()

    def _offered(self, ask: Callable[[ToolSource], Iterable[Offer]]) -> list[Offer]:
        """What the sources answer. One that raises anything offers nothing, which is a notice."""
        offered = list[Offer]()
        for name, source in self.by_name.items():
            try:
                offered += ask(source)
            except Exception as error:  # noqa: BLE001 (foreign code may fail in any way)
                self._failures[name] = f"the source of tools {name!r} failed: {error_text(error)}"
        return offered


def _build_all(request: SourceRequest) -> Mapping[str, ToolSource]:
    sources = {name: _build(extension, request) for name, extension in find_extensions("tool_sources").items()}
    named = list(dict.fromkeys(each.name for each in request.profile.mcp if each.command or each.url))
    if MCP not in sources and (named or request.editor_servers):
        sources[MCP] = AbsentSource(missing_plugin("the use of MCP servers", MCP), named)
    return sources


def _build(extension: Extension, request: SourceRequest) -> ToolSource:
    try:
        source = extension.call(request)
        if isinstance(source, ToolSource):
            return source
        raise extension.plugin_error(f"returned a {type(source).__name__}, which is no ToolSource")
    except SpecchatError as error:
        return AbsentSource(error)


_sources = ToolSources()


def front_end_sources() -> ToolSources:
    """The sources of the command line, for the one conversation of a screen or a line mode."""
    return _sources


def use_sources(request: SourceRequest) -> None:
    """Name what the front end of this process wants, before it opens; its sources end with the process."""
    global _sources
    _sources.close()
    _sources = ToolSources(request)
    atexit.register(_sources.close)
