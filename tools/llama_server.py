"""`llama-server`, from a package that has its code as a library (xllamacpp): the options that `fleet plan` prints.

Runs in the environment of that package; imports nothing of specchat.
"""

from __future__ import annotations

import argparse
import time

import xllamacpp  # pyright: ignore[reportMissingImports]

THREADS = 1  # several that spin for each other are slower where other programs run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="model")
    parser.add_argument("-c", dest="context", type=int)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--spec-type")
    given = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.n_ctx, params.hostnames, params.port = given.context, [given.host], given.port
    params.endpoint_metrics, params.use_jinja = given.metrics, True
    params.cpuparams.n_threads = THREADS
    if given.spec_type:
        name = f"COMMON_SPECULATIVE_TYPE_{given.spec_type.upper().replace('-', '_')}"
        params.speculative.types = [xllamacpp.common_speculative_type[name]]
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
