"""A plugin for specchat: an HTTP server with the APIs of other servers, as a thin client of the host. Knows no model.

command.py             `specchat serve`
server.py              routes and sockets
authorization.py       which requests are accepted
connection_pool.py     connections to the host, one for each answer that runs
engine_request.py      what an API asks of the engine
answer.py              the events of an answer, collected
completer.py           a gap in a text in, events out
replies.py             an answer to a response, whole or as a stream
json_fields.py, api_errors.py   the fields of a body, and what is wrong with them
tool_fields.py         tools and the arguments of their calls
openai_chat.py, openai_completions.py, openai_responses.py   the API of OpenAI: bodies to requests, answers to objects
choices.py, token_logprobs.py, openai_objects.py   what these share
anthropic_messages.py  the API of Anthropic
ollama_api.py          the API of Ollama
llama_server_api.py, llama_server_reply.py   the own API of llama-server: bodies to requests, answers to objects
llama_server_objects.py   what it adds to the answers of other APIs
texts_as_tokens.py     texts where ids of tokens are meant
apply_sketch.py        a text and a sketch of its changes to the new text
answer_counts.py       what was answered, counted
metrics_page.py        the page for Prometheus
model_facts.py         what the files of the model say

It is a front end: it imports `specchat.app`, `specchat.host.client` and plain types, which contracts in pyproject.toml
hold. Every process of specchat imports this file, so it only declares the command.
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    serve = "Serve programs that use the API of OpenAI, Anthropic or Ollama."
    return [Extension("serve", serve, "specchat_serve.command:serve")]
