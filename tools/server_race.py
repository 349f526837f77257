"""`bench peers --server` on one GGUF file: starts llama-server in each way to draft, and ours plain and auto.

    PYTHONPATH=dist/plugins python -m tools.server_race model.gguf --llama-server build/bin/llama-server --threads 1

Every server has so many threads, and one computes at a time. What follows the options goes to `bench peers`.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.real_servers_starts import RealServer, running

SPECULATION_TYPES = ("none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod")  # they need no draft model
OUR_VARIANTS = ("plain", "auto")
LOOPBACK = "127.0.0.1"


def llama_server(program: Path, file: Path, threads: int, speculation: str, context: int) -> RealServer:
    words = [
        str(program), "-m", str(file), "-t", str(threads), "-tb", str(threads), "-c", str(context), "-np", "1",
        "--jinja", "--spec-type", speculation, "--host", LOOPBACK,
    ]  # fmt: skip
    return RealServer(speculation, "", lambda _folder, port: [*words, "--port", str(port)])


def our_server(file: Path, threads: int, variant: str) -> RealServer:
    words = [sys.executable, "-m", "specchat", "serve", "--target", str(file), "--draft", "", "--variant", variant]
    environment = {"OMP_NUM_THREADS": str(threads)}
    return RealServer(variant, "", lambda _folder, port: [*words, "--port", str(port)], environment)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--llama-server", type=Path, required=True, help="the program")
    parser.add_argument("--threads", type=int, default=1, help="of each server")
    parser.add_argument("--context", type=int, default=8192, help="tokens that llama-server has room for")
    parser.add_argument("--types", default=",".join(SPECULATION_TYPES), help="of llama-server, separated by commas")
    given, rest = parser.parse_known_args(arguments)
    theirs = [
        llama_server(given.llama_server, given.file, given.threads, each, given.context)
        for each in given.types.split(",")
    ]
    ours = [our_server(given.file, given.threads, variant) for variant in OUR_VARIANTS]
    words = ["bench", "peers"]
    with ExitStack() as stack:
        for option, servers in (("--ours", ours), ("--server", theirs)):
            for each in servers:
                folder = Path(stack.enter_context(TemporaryDirectory()))
                started = stack.enter_context(running(each, folder, folder))
                words += [option, f"{each.name}={started.root}"]
        ended = subprocess.call([sys.executable, "-m", "specchat", *words, *rest])
    started_by = shlex.join(["python", "-m", "tools.server_race", *(sys.argv[1:] if arguments is None else arguments)])
    print(f"Started by `{started_by}`.")
    return ended


if __name__ == "__main__":
    sys.exit(main())
