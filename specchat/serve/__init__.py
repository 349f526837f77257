"""Programs that speak the HTTP API of OpenAI are served: their requests in, calls of the host protocol out.

    guard.py     who may come in
    asked.py     a body of JSON -> a conversation so far, and a request
    rooms.py     which conversation with the host goes on from there
    told.py      events -> the objects of the API
    server.py    sockets

Knows no model: the engine lives in the process of the host.
"""
