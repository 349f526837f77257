"""The engine process (the host). Models, caches and sessions live here; every front end is a thin client.

environment.py          the variables that the host takes over from the client that starts it
address.py              a Unix socket, or TCP with tokens: where the host listens, and who may connect
spawn.py                the runtime folder and who may use it; finds the host or starts it
client.py               a conversation from the client's side, with reconnects
private_turns.py        the turns and versions of a conversation that is not stored
protocol.py             JSON-RPC 2.0: messages to lines and back
__main__.py             `python -m specchat.host`
host_process.py         descriptors, lock, environment; everything before and after `serve`
wiring.py               the components of the real host: profiles, engines, stored turns
server.py               the I/O thread: accepts, reads and writes
connection.py           one client on the host side: its subscriptions and its send buffer
methods.py              the methods of the protocol, one function each
open_sessions.py        the sessions in memory, their turns and their events
queue.py                the engine thread: turns wait here and run step by step
loaded_engines.py       the engines in memory, and which one goes when another one needs room
allocator.py            gives free memory back to the system when it is quiet
engine_interface.py     what the host expects of an engine
event_feed.py           the event log of a session, batched and replayable
answer_sums.py          what each drafter brought, summed over the stored answers
metrics.py              counters, and the OpenMetrics page
metrics_server.py       serves that page over HTTP
"""
