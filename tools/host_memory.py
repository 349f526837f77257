"""What the engine process holds after more and more short turns, in MiB by name: `specchat host status` as a table.

    python -m tools.host_memory --turns 300

Conversations of ten turns each, with the default profile: the starter where it is on this disk. They are stored in the
history, so use a SPECCHAT_HOME of its own. Each row is read when the process was quiet for a few seconds.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing

from specchat.chat.request import Request
from specchat.host.client import Conversation, connect
from specchat.host.host_lock import stop_host

MARKS = (1, 10, 30, 100, 200, 300, 500, 1000)
TURNS, TOKENS, QUIET_SECONDS = 10, 32, 4
WORDS = ("river", "stone", "paper", "cloud", "engine", "garden", "music", "winter", "bread", "mirror")


def memory_by_name() -> dict[str, int]:
    """Once it is quiet. MiB"""
    time.sleep(QUIET_SECONDS)
    connection = connect("host memory", starts_host=False)
    assert connection is not None, "the engine process has ended"
    with closing(connection):
        stats = connection.call("stats", {})
    return {name: round(size / 2**20) for name, size in (stats["memory_bytes"] | stats["process_bytes"]).items()}


def print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=300)
    turns, names, asked = parser.parse_args().turns, list[str](), 0
    stop_host()
    while asked < turns:
        with Conversation() as talk:
            for word in WORDS[: min(TURNS, turns - asked)]:
                list(talk.ask(Request(f"Tell me something about a {word} and the number {asked}.", max_tokens=TOKENS)))
                asked += 1
                if asked not in (*MARKS, turns):
                    continue
                memory = memory_by_name()
                if not names:
                    names = [*memory]
                    print_row("turns", *names, "in all")
                    print_row(*["---"] * (len(names) + 2))
                print_row(asked, *(memory[name] for name in names), sum(memory.values()))
    stop_host()


if __name__ == "__main__":
    main()
