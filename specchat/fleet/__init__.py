"""Answers from another server: vLLM, SGLang, or any server with OpenAI's API. Computes and distributes nothing itself.

server_session.py      a conversation whose answers come from a server, and its engine for the host
server_client.py       the thread that talks to the server, with OpenAI's client library; its errors, as one line each
server_metrics.py      the speculation counters of a server
server_probe.py        what a running server is (`fleet join`)
launch_plan.py         server commands with speculative decoding (`fleet plan`, `fleet up`)
installed_servers.py   the servers installed on this machine
"""
