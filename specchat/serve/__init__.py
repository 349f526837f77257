"""An HTTP server with the API of OpenAI, as a thin client of the host. Knows no model.

server.py           routes and sockets: requests in, JSON or server-sent events out
authorization.py    which requests are accepted
requests.py         a JSON body to a conversation history and a request
session_pool.py     the host session that continues this history
responses.py        events and errors to the objects of the API
"""
