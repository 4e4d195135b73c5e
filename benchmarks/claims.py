"""What the paper says of its experiments, sentence by sentence, and what came out: the first section of docs/paper.md.

Every answer is computed. A regret is called lower where the mean difference on the same worlds is more than two of its
standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from metabandit.lab.report import groups, ratio, where
from metabandit.lab.result import REGRET, Part, Result, mean_and_error
from metabandit.lab.study import Outcome

Array = np.ndarray[Any, Any]
Outcomes = Mapping[tuple[str, str], Outcome]
Shares = list[tuple[float, float]]

GAUSSIAN, BERNOULLI = "figure-2-gaussian", "figure-2-bernoulli"
SHARES = {"task_var=0.25": 0.533, "task_var=0.5": 0.682}  # Section 6: MTTS / individual-TS, concurrent
SURE = 2.0  # standard errors
EARLY = 20  # tasks: "when N is still small"


def percent(share: float, error: float) -> str:
    """A share with its standard error; none with one seed."""
    return f"{share:.1%}" if np.isnan(error) else f"{share:.1%} ± {error:.1%}"


def parts_of(outcome: Outcome, order: str | None = None) -> list[dict[str, Part]]:
    """The policies of every setting, by name."""
    found = ({part.name: part for part in group} for group in groups(outcome.result))
    return [group for group in found if order in (None, next(iter(group.values())).order)]


def _apart(first: Array, second: Array) -> int:
    """-1 where the first is lower on the same seeds, 1 where it is higher, 0 where nobody can tell."""
    mean, error = mean_and_error(first - second)
    return int(np.sign(mean)) if abs(mean) > SURE * error else 0


def _to(values: list[float], form: Callable[[float], str]) -> str:
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"


def _times(value: float) -> str:
    return f"{value:.2f}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


# -- claims: what came out under one variant -----------------------------------------------------------------------


def number(label: str) -> Callable[[Outcomes, str], str]:
    """One of the two numbers of Section 6."""

    def said(outcomes: Outcomes, variant: str) -> str:
        result = outcomes[GAUSSIAN, variant].result
        pair = (result.part(name, label, "concurrent").totals() for name in ("mtts", "individual-ts"))
        share, error = ratio(*pair)
        gap = (share - SHARES[label]) / error
        verdict = "in agreement" if abs(gap) <= SURE else f"{'above' if gap > 0 else 'below'} it"
        return f"{percent(share, error)}, {abs(gap):.1f} of our standard errors from the paper's: {verdict}"

    return said


def beats(names: tuple[str, ...], *studies: str) -> Callable[[Outcomes, str], str]:
    """How often MTTS has a lower regret than others, and how often a higher one."""

    def said(outcomes: Outcomes, variant: str) -> str:
        lines = []
        for name in names:
            found = [
                _apart(group["mtts"].totals(), group[name].totals())
                for study in studies for group in parts_of(outcomes[study, variant]) if name in group
            ]  # fmt: skip
            lines.append(f"{name}: lower in {found.count(-1)}, higher in {found.count(1)} of {len(found)}")
        return "; ".join(lines)

    return said


def _multitask(outcomes: Outcomes, variant: str, name: str) -> list[Array]:
    """Multi-task regret along the tasks, sequential, in every setting of Figure 2: (seeds, tasks) each."""
    found = []
    for study in (GAUSSIAN, BERNOULLI):
        result: Result = outcomes[study, variant].result
        parts = [part for part in result.parts if part.name == name and part.order == "sequential"]
        found += [curve for part in parts if (curve := result.multitask(part)) is not None]
    return found


def sublinear(outcomes: Outcomes, variant: str) -> str:
    """Whether the multi-task regret of MTTS bends over."""
    curves = _multitask(outcomes, variant, "mtts")
    bent = sum(_apart(curve[:, -1], 2 * curve[:, curve.shape[1] // 2 - 1]) == -1 for curve in curves)
    return (
        f"sublinear in {bent} of {len(curves)} settings; {_grown(curves)} times that after half of the tasks"
    )


def _grown(curves: list[Array]) -> str:
    shares = [ratio(curve[:, -1], curve[:, curve.shape[1] // 2 - 1])[0] for curve in curves]
    return _to(shares, _times)


def approaches(outcomes: Outcomes, variant: str) -> str:
    """The regret of MTTS as a share of the oracle's, in the first and in the last quarter of the tasks."""
    first, last = [], []
    for study in (GAUSSIAN, BERNOULLI):
        for group in parts_of(outcomes[study, variant], "sequential"):
            mine, best = (group[name].curves(REGRET) for name in ("mtts", "oracle-ts"))
            quarter = max(1, mine.shape[1] // 4)
            first.append(ratio(mine[:, quarter - 1], best[:, quarter - 1])[0])
            last.append(ratio(mine[:, -1] - mine[:, -1 - quarter], best[:, -1] - best[:, -1 - quarter])[0])
    early, late = _to(first, _percent), _to(last, _percent)
    return f"{early} of the oracle's in the first quarter of the tasks, {late} in the last"


def gaps(outcomes: Outcomes, variant: str) -> str:
    """Whether the others' multi-task regret is there at the end, and how it grows."""
    lines = []
    for name in ("individual-ts", "meta-ts", "linear-ts", "glb-ts", "osfa"):
        curves = _multitask(outcomes, variant, name)
        behind = sum(_apart(curve[:, -1], np.zeros(len(curve))) == 1 for curve in curves)
        lines.append(f"{name} in {behind} of {len(curves)}, growth {_grown(curves)}")
    return "; ".join(lines)


def in_time(outcomes: Outcomes, variant: str) -> str:
    """Regret after all interactions over that after half of them, concurrent."""
    lines = []
    for name in ("mtts", "individual-ts", "meta-ts", "linear-ts", "glb-ts", "osfa"):
        curves = [
            group[name].curves(REGRET) for study in (GAUSSIAN, BERNOULLI)
            for group in parts_of(outcomes[study, variant], "concurrent") if name in group
        ]  # fmt: skip
        lines.append(f"{name} {_grown(curves)}")
    return ", ".join(lines)


def useful(outcomes: Outcomes, variant: str) -> str:
    """How the comparison moves from the most to the least informative metadata, concurrent."""
    lines = []
    for study, linear in ((GAUSSIAN, "linear-ts"), (BERNOULLI, "glb-ts")):
        found = parts_of(outcomes[study, variant], "concurrent")
        for name in ("individual-ts", "meta-ts", linear):
            moved = [_percent(ratio(g["mtts"].totals(), g[name].totals())[0]) for g in (found[0], found[-1])]
            lines.append(f"{name} {moved[0]} → {moved[1]}")
    return (
        "MTTS' regret as a share of others': " + ", ".join(lines[:3]) + "; Bernoulli: " + ", ".join(lines[3:])
    )


def approx(outcomes: Outcomes, variant: str) -> str:
    """The regret of MTTS-approx as a share of that of MTTS, sequential, over the first tasks and over all."""
    early, whole = [], []
    for study in (GAUSSIAN, BERNOULLI):
        for group in parts_of(outcomes[study, variant], "sequential"):
            if "mtts-approx" in group:
                mine, exact = (group[name].curves(REGRET) for name in ("mtts-approx", "mtts"))
                early.append(ratio(mine[:, :EARLY][:, -1], exact[:, :EARLY][:, -1])[0])
                whole.append(ratio(mine[:, -1], exact[:, -1])[0])
    return f"{_to(early, _percent)} of that of mtts over the first {EARLY} tasks, {_to(whole, _percent)} over all"


def robust(outcomes: Outcomes, variant: str) -> str:
    """The worst and the best of Figure 3."""
    found = []
    for group in parts_of(outcomes["figure-3-robustness", variant]):
        mine, other = group["mtts"].totals(), group["individual-ts"].totals()
        found.append((*ratio(mine, other), where(group["mtts"])))
    low, high = min(found), max(found)
    counts = beats(("individual-ts", "meta-ts"), "figure-3-robustness")(outcomes, variant)
    return f"{counts}; of individual-ts' regret from {percent(*low[:2])} ({low[2]}) to {percent(*high[:2])} ({high[2]})"


OTHERS = ("individual-ts", "meta-ts", "linear-ts", "glb-ts", "osfa")
CLAIMS: dict[str, Callable[[Outcomes, str], str]] = {
    "Gaussian, concurrent: the regret of MTTS is 53.3 % of that of individual-TS at sigma_1^2 = 0.25": number(
        "task_var=0.25"
    ),
    "... and 68.2 % at 0.5": number("task_var=0.5"),
    '"MTTS performs favorably compared with the other baselines" (Figure 2)': beats(OTHERS, GAUSSIAN, BERNOULLI),
    '"Sublinear multi-task regret in N" (sequential)': sublinear,
    '"The Bayes regret of MTTS approaches that of oracle-TS" (sequential)': approaches,
    '"A consistent and significant gap between oracle-TS and the other baselines"; growth 2 is linear in N': gaps,
    '"MTTS shows a sublinear Bayes regret in T", individual-TS and meta-TS too (concurrent: regret after 200 '
    "interactions over that after 100, 2 being linear)": in_time,
    '"When the metadata is less useful, meta-TS and individual-TS become closer to MTTS, while linear-TS (GLB-TS) '
    'suffers" (smallest → largest sigma_1^2 or psi)': useful,
    '"MTTS-approx yields similar performance, except when N is still small"': approx,
    '"MTTS demonstrates great robustness" (Figure 3)': robust,
    "MTTS \"consistently performs favorably\" with other K, d, N and noise (Figure 6)": beats(
        ("individual-ts", "meta-ts", "linear-ts", "osfa"), "figure-6-trends"
    ),
}  # fmt: skip


def summary(outcomes: Outcomes, variants: tuple[str, ...]) -> list[str]:
    """The section: a paragraph for every claim."""
    lines = [
        "## In short",
        "",
        "What the paper says in Section 6, and what came out. Lower and higher are by more than two standard errors of "
        "the difference on the same worlds, counted over settings; shares and growth are ranges over settings.",
        "",
    ]
    for claim, said in CLAIMS.items():
        answers = [f"- {variant}: {said(outcomes, variant)}." for variant in variants]
        lines += [f"**{claim}**", "", *answers, ""]
    return lines
