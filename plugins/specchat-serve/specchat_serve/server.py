"""Routes and sockets: requests in, JSON or server-sent events out. Other modules parse and build the objects."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Event
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from specchat.chat.fim_request import FimRequest
from specchat.errors import SpecchatError, UsageError
from specchat.host.protocol import MAX_LINE_BYTES
from specchat_serve import anthropic_messages, ollama_api, openai_objects
from specchat_serve.answer import Answer
from specchat_serve.answer_counts import AnswerCounts
from specchat_serve.anthropic_messages import translate_count, translate_message
from specchat_serve.api_errors import (
    INTERNAL_SERVER_ERROR,
    NOT_IMPLEMENTED,
    REQUEST_TIMEOUT,
    UNAUTHORIZED,
    ApiError,
    RequestError,
    to_api_error,
)
from specchat_serve.authorization import AccessPolicy, is_loopback
from specchat_serve.choices import ChoicesReply
from specchat_serve.connection_pool import ENGINE_READY, MAX_CONNECTIONS, ConnectionPool
from specchat_serve.engine_request import EngineRequest
from specchat_serve.json_fields import JsonObject, check_model, parse_json_body
from specchat_serve.llama_server_api import (
    props_body,
    slots_body,
    translate_detokenize,
    translate_infill,
    translate_llama_completion,
    translate_template,
    translate_tokenize,
)
from specchat_serve.metrics_page import CONTENT_TYPE, metrics_page, read_host_stats
from specchat_serve.model_facts import ModelFacts
from specchat_serve.ollama_api import (
    pull_body,
    running_body,
    show_body,
    tags_body,
    translate_generate,
    translate_ollama_chat,
    version_body,
)
from specchat_serve.openai_chat import translate_chat
from specchat_serve.openai_completions import translate_completion
from specchat_serve.openai_responses import translate_response
from specchat_serve.replies import TranslatedRequest, answered_text, send_reply
from specchat_serve.served_models import RunningModel, ServedModel, named_model
from specchat_serve.texts_as_tokens import with_token_ids

log = logging.getLogger(__name__)

REQUEST_SECONDS = 30.0  # for the headers of a request, and again for its body; then the connection is closed
RUN_APP_OPTIONS: dict[str, Any] = {
    "access_log": None,
    "shutdown_timeout": 5.0,  # seconds
    "keepalive_timeout": REQUEST_SECONDS,  # until headers are complete, also those of a next request
    "lingering_time": 5.0,  # for the rest of a body that nothing reads
    "handler_cancellation": True,  # a disconnected client cancels its answer
}
ANTHROPIC_VERSION = "anthropic-version"  # the header of its clients; any version will do
ALLOWED_HEADERS = "Authorization, Content-Type"  # of web pages, unless their browser asks for others
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",  # as llama-server; another one of them is a 405
    "Access-Control-Max-Age": "600",
}
HEALTH_PATHS = ("/health", "/v1/health")
Translate = Callable[[JsonObject, Sequence[str]], TranslatedRequest]
TranslateCount = Callable[[JsonObject, Sequence[str]], EngineRequest | FimRequest]
APPLY_PATH = "/v1/apply"
CLIENT_HAS_LEFT = 499  # the status of other servers for it
MAX_NOTICES = 100  # a client may invent fields without end
TRANSLATIONS: dict[str, Translate] = {
    "/v1/chat/completions": translate_chat,
    "/v1/completions": translate_completion,
    "/v1/responses": translate_response,
    "/v1/messages": translate_message,
    "/completion": translate_llama_completion,
    "/infill": translate_infill,
    "/tokenize": translate_tokenize,
    "/detokenize": translate_detokenize,
    "/apply-template": translate_template,
    "/api/chat": translate_ollama_chat,
    "/api/generate": translate_generate,
}
# With those that llama-server has without a version; its /completions is its own API.
ALL_PATHS: dict[str, Translate] = TRANSLATIONS | {
    "/chat/completions": translate_chat,
    "/responses": translate_response,
    "/completions": translate_llama_completion,
}
RAW_COMPLETIONS = (translate_completion, translate_llama_completion)
COUNTED_PATHS = ("/v1/chat/completions", "/chat/completions", "/v1/responses", "/responses")
COUNTED = {"object": "response.input_tokens"}  # the fields of a count of OpenAI
NO_FIELDS: Mapping[str, str] = {}
# The error body of the API that a path belongs to.
ERROR_BODIES: tuple[tuple[str, Callable[[ApiError], JsonObject]], ...] = (
    ("/api/", ollama_api.error_body),
    ("/v1/messages", anthropic_messages.error_body),
    ("/", openai_objects.error_body),
)
EMBEDDING_PATHS = ("/v1/embeddings", "/api/embed", "/api/embeddings")
NO_EMBEDDINGS = "the model of this server writes text; it has no embeddings"
UNKNOWN_PATH = "unknown"  # a client may ask for any text
OLLAMA_FACTS = tuple(f"/api/{name}" for name in ("tags", "ps", "show", "pull", "version"))
OTHER_ENDPOINTS = (APPLY_PATH, "/v1/models", "/props", "/slots", *OLLAMA_FACTS)
ENDPOINTS_HINT = f"the endpoints are {', '.join((*TRANSLATIONS, *OTHER_ENDPOINTS))}"


@dataclass(frozen=True)
class ServeConfig:
    models: tuple[ServedModel, ...]  # the one of requests without a name first
    access_policy: AccessPolicy


class ApiServer:
    def __init__(self, config: ServeConfig, notify: Callable[[str], None]) -> None:
        self._config, self._notify = config, notify
        self._started_at = datetime.now(UTC)
        self._answer_counts = AnswerCounts()
        self._request_counts = Counter[tuple[str, str]]()  # by path and status
        self._models: tuple[RunningModel, ...] = ()
        self._said_notices = set[str]()

    def application(self) -> web.Application:
        middlewares = [self._counting_middleware, self._access_and_error_middleware]
        application = web.Application(middlewares=middlewares, client_max_size=MAX_LINE_BYTES)
        application.add_routes([
            web.get("/v1/models", self.list_models),
            web.get("/models", self.list_models),
            web.get("/v1/models/{name:.+}", self.get_model),
            web.post(APPLY_PATH, self.apply_sketch),
            web.get("/", self.greet),
            *(web.get(path, self.health) for path in HEALTH_PATHS),
            web.get("/metrics", self.metrics),
            web.get("/props", self.llama_props),
            web.get("/slots", self.llama_slots),
            web.get("/api/version", self.ollama_version),
            web.get("/api/tags", self.ollama_tags),
            web.get("/api/ps", self.ollama_running),
            web.post("/api/show", self.ollama_show),
            web.post("/api/pull", self.ollama_pull),
            web.post("/v1/messages/count_tokens", self._count_handler(translate_count)),
            *(
                web.post(f"{path}/input_tokens", self._count_handler(_request_of(ALL_PATHS[path]), COUNTED))
                for path in COUNTED_PATHS
            ),
            *(web.post(path, self.refuse_embeddings) for path in EMBEDDING_PATHS),
            *(web.post(path, self._answer_handler(translate)) for path, translate in ALL_PATHS.items()),
        ])  # fmt: skip
        application.on_response_prepare.append(self._on_response_prepare)
        application.on_startup.append(self._on_startup)
        application.on_shutdown.append(self._on_shutdown)
        return application

    @property
    def connection_pool(self) -> ConnectionPool:
        """The connections to the first model; available after startup."""
        return self._models[0].pool

    def _model_of(self, fields: JsonObject) -> RunningModel:
        """The model that the body of a request names."""
        return named_model(self._models, fields.get("model") or fields.get("name"))

    async def list_models(self, request: web.Request) -> web.Response:
        if ANTHROPIC_VERSION in request.headers:
            names = [each.model.name for each in self._models]
            return web.json_response(anthropic_messages.models_body(names, self._started_at))
        listed = [(each.model.name, each.pool.context_window) for each in self._models]
        return web.json_response(openai_objects.models_body(listed, self._started_at))

    async def get_model(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = named_model(self._models, name)
        check_model(name, found.model.names)
        if ANTHROPIC_VERSION in request.headers:
            return web.json_response(anthropic_messages.model_body(found.model.name, self._started_at))
        body = openai_objects.model_body(found.model.name, self._started_at, found.pool.context_window)
        return web.json_response(body)

    def _count_handler(self, translate: TranslateCount, common: Mapping[str, str] = NO_FIELDS) -> Handler:
        """The number of prompt tokens of a conversation. The engine counts them when it begins to prefill them."""

        async def count(request: web.Request) -> web.Response:
            fields, answer = parse_json_body(await request.read()), Answer()
            asked = self._model_of(fields)
            counted = translate(fields, asked.model.names)
            async with aclosing(asked.pool.stream_answers(counted)) as events:
                async for event in events:
                    answer.on_event(event)
                    if answer.prefill:
                        break
            tokens = answer.prefill.prompt_tokens if answer.prefill else answer.totals.prompt_tokens
            return web.json_response({**common, "input_tokens": tokens})

        return count

    async def apply_sketch(self, request: web.Request) -> web.Response:
        """A text with the changes of a sketch; a client that disconnects ends the answer of the model."""
        from specchat_serve.apply_sketch import apply_sketch  # imports the grammars, which few servers need

        fields, cancelled = parse_json_body(await request.read()), Event()
        model = self._model_of(fields).model
        try:
            merged = await asyncio.to_thread(apply_sketch, fields, model.names, model.session_request, cancelled)
        finally:
            cancelled.set()
        return web.json_response(merged)

    async def greet(self, _request: web.Request) -> web.Response:
        """Clients of Ollama look here whether a server runs."""
        return web.Response(text="specchat is running")

    async def health(self, request: web.Request) -> web.Response:
        """The server is well while it answers this; the engine loads the models for the next answer if necessary."""
        if self._access_error(request):  # programs that watch over servers have no token
            return web.json_response({"status": "ok"})
        host_stats = await asyncio.to_thread(read_host_stats)
        return web.json_response({"status": "ok", "engine": host_stats["state"], "model": self._config.models[0].name})

    async def metrics(self, _request: web.Request) -> web.Response:
        host_stats = await asyncio.to_thread(read_host_stats)
        load = (
            sum(each.pool.running_count for each in self._models),
            sum(each.pool.waiting_count for each in self._models),
        )
        page = metrics_page(self._answer_counts, self._request_counts, *load, host_stats)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE})

    async def llama_props(self, _request: web.Request) -> web.Response:
        window = self.connection_pool.context_window
        return web.json_response(props_body(self._config.models[0].name, window, MAX_CONNECTIONS))

    async def llama_slots(self, _request: web.Request) -> web.Response:
        pool = self.connection_pool
        return web.json_response(slots_body(MAX_CONNECTIONS, pool.running_count, pool.context_window))

    async def ollama_version(self, _request: web.Request) -> web.Response:
        return web.json_response(version_body())

    async def ollama_tags(self, _request: web.Request) -> web.Response:
        return web.json_response(tags_body([(each.model.name, await self._facts_of(each)) for each in self._models]))

    async def ollama_running(self, _request: web.Request) -> web.Response:
        facts, host_stats = await self._facts_of(self._models[0]), await asyncio.to_thread(read_host_stats)
        window, is_loaded = self.connection_pool.context_window, host_stats["state"] == ENGINE_READY
        return web.json_response(running_body(self._config.models[0].name, facts, window, is_loaded=is_loaded))

    async def ollama_pull(self, request: web.Request) -> web.Response:
        """One object, or one line of a stream: the same bytes."""
        body = parse_json_body(await request.read())
        return web.json_response(pull_body(body, self._model_of(body).model.names))

    async def ollama_show(self, request: web.Request) -> web.Response:
        body = parse_json_body(await request.read())
        shown = self._model_of(body)
        facts = await self._facts_of(shown)
        return web.json_response(show_body(body, shown.model.names, facts, shown.pool.context_window))

    async def refuse_embeddings(self, _request: web.Request) -> web.Response:
        raise RequestError(NO_EMBEDDINGS, status=NOT_IMPLEMENTED, code="unsupported_endpoint")

    async def _facts_of(self, running: RunningModel) -> ModelFacts:
        return await asyncio.to_thread(running.read_facts, self._started_at)

    def _answer_handler(self, translate: Translate) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            given = parse_json_body(await request.read())
            asked = self._model_of(given)
            ask = asked.pool.stream_answers
            fields = await with_token_ids(given, ask, may_ignore_ends=translate in RAW_COMPLETIONS)
            translated = translate(fields, asked.model.names)
            self._say_once(translated.reply.answer.notices)
            if translated.shown is not None and isinstance(translated.reply, ChoicesReply):
                translated.reply.prompt = await answered_text(ask(translated.shown))
            requests = translated.request, *translated.other_requests
            async with aclosing(ask(*requests)) as events:
                return await send_reply(request, events, translated)

        return handle

    def _say_once(self, notices: Iterable[str]) -> None:
        """Tell what is left out of requests, each thing once."""
        for notice in dict.fromkeys(notices):
            if notice not in self._said_notices and len(self._said_notices) < MAX_NOTICES:
                self._said_notices.add(notice)
                self._notify(notice)

    @web.middleware
    async def _counting_middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count requests by route and status, and none of a client that has disconnected."""
        try:
            response, resource = await handler(request), request.match_info.route.resource
        except ConnectionError:
            return web.Response(status=CLIENT_HAS_LEFT)  # read by no client; an error here would be one of ours
        path = resource.canonical if resource else UNKNOWN_PATH
        self._request_counts[path, str(response.status)] += 1
        return response

    @web.middleware
    async def _access_and_error_middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._config.access_policy.is_preflight(request.host, request.method, request.headers.get("Origin")):
            allowed = request.headers.get("Access-Control-Request-Headers", ALLOWED_HEADERS)
            return web.Response(headers={**PREFLIGHT_HEADERS, "Access-Control-Allow-Headers": allowed})
        error_response, access_error = partial(_error_response, request), self._access_error(request)
        is_public = request.path in HEALTH_PATHS and access_error is not None and access_error.status == UNAUTHORIZED
        if access_error is not None and not is_public:
            return error_response(access_error)
        try:
            if await _has_body(request):
                return await handler(request)
            late = error_response(ApiError(REQUEST_TIMEOUT, f"the body did not come within {REQUEST_SECONDS:g} s"))
            late.force_close()
            return late
        except SpecchatError as error:
            return error_response(to_api_error(error))
        except web.HTTPNotFound:
            return error_response(ApiError(404, f"{request.path} does not exist; {ENDPOINTS_HINT}"))
        except web.HTTPException as error:
            return error_response(ApiError(error.status, f"{request.method} {request.path}: {error.reason}"))
        except ConnectionError:
            raise  # the client has disconnected
        except Exception as error:  # the edge: no request may end the server
            log.exception("a request failed")
            message = f"unexpected {type(error).__name__}; see stderr of the server"
            return error_response(ApiError(INTERNAL_SERVER_ERROR, message))

    def _access_error(self, request: web.Request) -> ApiError | None:
        given = (request.headers.get(name) for name in ("Origin", "Authorization", "x-api-key"))
        return self._config.access_policy.check_access(request.host, *given)

    async def _on_response_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let a web page read the response where it may. Its cookies have no effect here, so it may send them."""
        if (origin := request.headers.get("Origin")) is not None and self._config.access_policy.may_read(origin):
            response.headers.update({"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
            response.headers["Access-Control-Allow-Credentials"] = "true"

    async def _on_startup(self, _: web.Application) -> None:
        self._models = tuple(
            RunningModel(each, ConnectionPool(each.session_request, self._notify, self._answer_counts.on_event))
            for each in self._config.models
        )
        await self.connection_pool.preload()

    async def _on_shutdown(self, _: web.Application) -> None:
        for each in self._models:
            each.pool.close()


def _request_of(translate: Translate) -> TranslateCount:
    return lambda fields, models: translate(fields, models).request


async def _has_body(request: web.Request) -> bool:
    """Read the body, which the request keeps; False when it does not come in time."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            await request.read()
    except TimeoutError:
        return False
    return True


def _error_response(request: web.Request, api_error: ApiError) -> web.Response:
    """The error in the form of the API that a request belongs to."""
    by_path = (error_body for prefix, error_body in ERROR_BODIES if request.path.startswith(prefix))
    body = anthropic_messages.error_body if ANTHROPIC_VERSION in request.headers else next(by_path)
    return web.json_response(body(api_error), status=api_error.status)


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 selects a free port. UsageError when the address is not available."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(f"{host}, port {port}: {error.strerror}; choose another --port") from error
    return listener


def is_loopback_socket(listener: socket.socket) -> bool:
    return is_loopback(str(listener.getsockname()[0]))


def serve(
    config: ServeConfig, listener: socket.socket, notify: Callable[[str], None], on_ready: Callable[[], None]
) -> None:
    """Serve until Ctrl-C or SIGTERM. Calls `on_ready` when the server accepts requests."""
    web.run_app(ApiServer(config, notify).application(), sock=listener, print=lambda *_: on_ready(), **RUN_APP_OPTIONS)
