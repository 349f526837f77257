"""A plugin for specchat: answers from vLLM, SGLang, or any server with OpenAI's API. It computes nothing itself.

command.py             `specchat fleet`
server_session.py      a conversation whose answers come from a server, and its engine for the host
server_client.py       the thread that talks to the server, with OpenAI's client library; its errors, as one line each
retry.py               when a question goes again to a server that did not begin to answer
bounded_body.py        how much a server may send
server_metrics.py      the speculation counters of a server
server_probe.py        what a running server is (`fleet join`)
launch_plan.py         server commands with speculative decoding (`fleet plan`, `fleet up`)
installed_servers.py   the servers installed on this machine

Every process of specchat imports this file, so it only declares the extensions.
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    return [Extension("fleet", "Let vLLM, SGLang or another server answer.", "specchat_fleet.command:fleet")]


@hookimpl
def register_servers() -> list[Extension]:
    names = {"vllm": "vLLM", "sglang": "SGLang", "openai": "any other server with OpenAI's API"}
    return [Extension(name, text, "specchat_fleet.server_session:connect_server") for name, text in names.items()]
