"""The engine process (the host). Models, caches and the queue live here; every front end is a thin client.

environment.py          the variables that the host takes over from the client that starts it
address.py              a Unix socket, or TCP with tokens: where the host listens, and who may connect
spawn.py                the runtime folder and who may use it; finds the host or starts it
client.py               a conversation from the client's side
pending_answer.py       an answer or a completion that comes, also when the host dies or is silent
host_session.py         a session that goes on with the next host
host_connection.py      a connection to the host, which is started if need be
protocol.py             JSON-RPC 2.0: messages to lines and back
wire_values.py          requests, events and other values to JSON and back
__main__.py             `python -m specchat.host`
host_process.py         descriptors, lock, environment; everything before and after `serve`
engine_loader.py        loads engines, and plans their memory
server.py               the I/O thread: accepts, reads and writes
door.py                 who is let in as a client, and who is refused
connection.py           one client on the host side: its send buffer
methods.py              the methods of the protocol, one function each
open_sessions.py        the sessions in memory: their settings and turns
session_turns.py        what the model reads of the turns of a session
answer_delivery.py      the events of running answers, to clients and to the history
queue.py                the engine thread: turns and completions wait here, start and run step by step
queued_work.py          what waits for the engine thread, and the events that come back
engine_loading.py       which engines load, and what the others wait for
loaded_engines.py       the engines in memory, and which one goes when another one needs room
engine_interface.py     what the host expects of an engine
event_batches.py        the events of an answer, merged and added up
"""
