"""`specchat bench gpu`, which is also `specchat doctor --gpu`: a report of the GPU to send back."""

from pathlib import Path

import click

from specchat.cli.doctor import BROKEN_EXIT_CODE
from specchat.cli.notes import print_note

REPORT = "specchat-gpu.json"


@click.command()
@click.option("--sections", "names", default="", help="Only these parts, separated by commas.")
@click.option(
    "--report", "report_path", type=click.Path(path_type=Path, dir_okay=False), default=REPORT, show_default=True,
    help="The file of the JSON object.",
)  # fmt: skip
@click.option("--limit", default=300.0, show_default=True, help="Seconds; the rest is left out.")
@click.option("--json", "is_json", is_flag=True, help="Print the JSON object instead of tables.")
def gpu(names: str, report_path: Path, limit: float, *, is_json: bool) -> int:
    """Try and time everything on the GPU, without a model, in five minutes at most.

    The file is complete after each section, so that it tells all before a crash. Exit code 11 when a part failed.
    """
    from specchat_bench.gpu.report import SectionResult, as_json, as_text, run_sections
    from specchat_bench.gpu.sections import gpu_sections

    results = list[SectionResult]()
    for result in run_sections(gpu_sections(filter(None, names.split(","))), print_note, limit):
        results.append(result)
        report_path.write_text(as_json(results), encoding="utf-8")
        if not is_json:
            print(as_text(result), flush=True)
    if is_json:
        print(as_json(results))
    print_note(f"written to {report_path.resolve()}: please send this file back")
    return BROKEN_EXIT_CODE if any(result.has_errors for result in results) else 0
