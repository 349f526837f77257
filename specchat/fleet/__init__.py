"""When one machine is not enough: answers from vLLM, SGLang, or any server that speaks as OpenAI's does.

    session.py      a conversation whose answers come from a server, and the engine that the host steps
    line.py         the thread that talks to the server, by the official client
    faults.py       what can go wrong there, in one line each
    acceptance.py   what the server tells of its guesses
    found.py        what a running server is (`fleet join`)
    plan.py         launch lines with speculation (`fleet plan`, `fleet up`)
    installed.py    which servers are on this machine

Nothing here computes, and nothing here distributes: that is what those servers are for.
"""
