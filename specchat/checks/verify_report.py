"""The report of `specchat verify` as text: identical answers by variant."""

from __future__ import annotations

from specchat.checks.lossless_check import Difference, VerifyReport

MAX_LISTED_DIFFERENCES = 5  # of one variant


def as_text(report: VerifyReport) -> str:
    exact = ", exact" if report.exact else ""
    lines = [f"{report.model} in {report.dtype}{exact}", "", f"{'variant':<12}{'T':>5}  identical"]
    for result in report.results:
        identical = result.skip_reason or f"{result.identical_answers} of {result.answers}"
        ties = f", {len(result.near_ties)} decided a near tie the other way" if result.near_ties else ""
        lines.append(f"{result.variant:<12}{result.temperature:>5g}  {identical}{ties}")
        lines += [f"{'':19}{_difference_text(difference)}" for difference in result.mismatches[:MAX_LISTED_DIFFERENCES]]
    share = f"{report.near_tie_tokens} of {report.sampled_tokens} sampled tokens of plain decoding were near ties"
    lines += ["", share]
    for fit in report.distribution_tests:
        outcome = "do not fit" if fit.is_failure else "fit"
        samples = f"{fit.rule}, {fit.token_position}: {fit.draws} samples {outcome}"
        lines.append(f"{samples} the probabilities of a plain pass (p = {fit.p_value:.2g})")
    last_line = "decoding is lossless here" if report.is_lossless else "decoding is not lossless here"
    if not report.is_complete:
        last_line = f"stopped before the end; {last_line}, as far as it was compared"
    return "\n".join([*lines, "", last_line])


def _difference_text(difference: Difference) -> str:
    return (
        f"token {difference.position + 1}: {difference.drafted_token} instead of {difference.plain_token}, "
        f"which had a higher logit in plain decoding, by {difference.logit_margin:.3g}"
    )
