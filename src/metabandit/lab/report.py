"""What came out of a study, in words, with the numbers of the run."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.lab import studies
from metabandit.lab.agents import ORACLE
from metabandit.lab.result import REGRET, Part, Result, mean_and_error

if TYPE_CHECKING:
    from metabandit.lab.study import Outcome

Array = np.ndarray[Any, Any]

VAGUE = 0.25  # standard error of a ratio that says nothing
DOUBT = 1e-3  # level of the paired t tests by which one policy is said to beat another


def report(outcome: Outcome) -> str:
    """report.md."""
    study = outcome.study
    seeds = max(len(part.runs) for part in outcome.result.parts)
    head = [
        f"# {study.title}",
        "",
        study.about,
        "",
        f"Variant `{outcome.variant}`, {seeds} seed{'s' * (seeds != 1)}; totals over all tasks at the horizon, mean ± "
        "standard error over seeds.",
        "",
        *_command(outcome, seeds),
        "![figure](figure.png)",
        "",
        "## What came out",
        "",
    ]
    said = [f"- {line}" for line in _sentences(outcome)]
    fitted = ["", "## Growth", "", *_slopes(outcome)] if study.slopes else []
    beaten = [line for name in study.challenged for line in _beaten(groups(outcome.result), name)]
    shares = ["", "## Shares, setting by setting", "", *_shares(outcome)] if study.compare else []
    notes = ["", "## Notes", "", *(f"- {note}" for note in study.notes)] if study.notes else []
    totals = ["", "## Totals", "", *_table(outcome)]
    return "\n".join([*head, *said, *beaten, *fitted, *shares, *totals, *notes]) + "\n"


def _command(outcome: Outcome, seeds: int) -> list[str]:
    """What makes the study again; one of the reader's own is not among those that the command knows."""
    study = outcome.study
    if study.name not in studies.NAMES:
        return []
    return [f"`metabandit study run {study.name} --variant {outcome.variant} --seeds {seeds}`", ""]


def _sentences(outcome: Outcome) -> list[str]:
    found = groups(outcome.result)
    said = [_winners(found)]
    said += [line for pair in outcome.study.compare if (line := _range(found, *pair))]
    if outcome.study.slopes:
        said.append(_fitted(outcome))
    if outcome.study.cost:
        said += _costs(found)
    if outcome.study.shape == "curves":
        said += [line for name in ("mtts", "mtts-approx") if (line := _growths(found, name, outcome.result))]
    return said


def _winners(found: list[list[Part]]) -> str:
    """Who comes first how often, the oracle aside."""
    wins: dict[str, int] = {}
    for group in found:
        others = [part for part in group if part.name != ORACLE]
        means = [float(part.totals().mean()) for part in others]
        best = " and ".join(
            part.name for part, mean in zip(others, means, strict=True) if mean == min(means)
        )  # policies that are the same in a setting come first together
        wins[best] = wins.get(best, 0) + 1
    shown = ", ".join(f"{name} in {n}" for name, n in sorted(wins.items(), key=lambda item: -item[1]))
    return f"The lowest mean regret, the oracle's aside, in {len(found)} settings: {shown}."


def _range(found: list[list[Part]], first: str, second: str) -> str:
    """The regret of one policy as a share of another's, from the lowest to the highest setting."""
    shares = []
    for group in found:
        pair = {part.name: part for part in group}
        if first in pair and second in pair:
            shares.append((*ratio(pair[first].totals(), pair[second].totals()), where(group[0])))
    if not shares:
        return ""
    shares.sort()
    low, high = shares[0], shares[-1]
    return f"The regret of {first} is {_share(*low[:2])} of that of {second} ({low[2]})" + (
        f" to {_share(*high[:2])} ({high[2]})." if len(shares) > 1 else "."
    )


def _share(share: float, error: float) -> str:
    return f"{share:.1%}" if math.isnan(error) else f"{share:.1%} ± {error:.1%}"


def _beaten(found: list[list[Part]], name: str) -> list[str]:
    """A section: who beats a policy, setting by setting, and by how much."""
    lines, wins, seeds = [], [], 0
    for group in found:
        parts = {part.name: part for part in group}
        if name not in parts:
            continue
        seeds = len(parts[name].seeds)
        ahead = better(group, parts[name])
        wins += [ahead[0][0].name] if ahead else []
        regret = float(parts[name].totals().mean())
        shown = [f"{part.name} by {by:,.0f} ± {error:,.0f} ({by / regret:.0%})" for part, by, error in ahead]
        beaten_by = ", ".join(shown) or "nobody that the test sees"
        lines.append(f"- {where(group[0])}: {name} ({regret:,.0f}) is beaten by {beaten_by}.")
    first = ", ".join(f"{winner} in {n}" for winner, n in Counter(wins).most_common())
    ahead_of_all = f"; furthest ahead of it: {first}" if wins else ""
    said = f"{name} is beaten in {len(wins)} of {len(lines)} settings{ahead_of_all}."
    rule = (
        "Differences of regret on the same seeds, mean ± standard error, where a paired t test of level "
        f"{DOUBT:.1%} sees one (with {seeds} seeds: above {_least(seeds):.1f} standard errors); the oracle aside."
    )
    return ["", f"## Where {name} is beaten", "", f"{said} {rule}", "", *lines]


def _least(seeds: int) -> float:
    """How many standard errors a difference must be above 0 for the test to see it; NaN with one seed."""
    from scipy.special import stdtrit

    return float(stdtrit(seeds - 1, 1.0 - DOUBT)) if seeds > 1 else math.nan


def better(group: list[Part], part: Part) -> list[tuple[Part, float, float]]:
    """Who has a lower regret than a policy on the same seeds, by how much, and its standard error; most first."""
    least, found = _least(len(part.seeds)), []
    for other in group:
        if other is part or other.name == ORACLE or other.seeds != part.seeds:
            continue
        by, error = mean_and_error(part.totals() - other.totals())
        if by > least * error:  # never with one seed, whose error is not a number
            found.append((other, by, error))
    return sorted(found, key=lambda item: -item[1])


def _costs(found: list[list[Part]]) -> list[str]:
    """How long the policies of every setting took."""
    lines = []
    for group in found:
        order = sorted((part for part in group if part.name != ORACLE), key=lambda part: part.seconds)
        taken = ", ".join(f"{part.name} {part.seconds:.2g}" for part in order)
        lines.append(f"Seconds a world, {where(group[0])}: {taken}.")
    return lines


def _fitted(outcome: Outcome) -> str:
    """The fitted exponents in a sentence."""
    lines: dict[str, list[str]] = {}
    for row, _, name, (slope, error) in slopes(outcome):
        lines.setdefault(row, []).append(f"{name} {slope:.2f} ± {error:.2f}")
    shown = "; ".join(f"in {row}: {', '.join(made)}" for row, made in lines.items())
    return f"Fitted exponents of the {outcome.study.metric.replace('multitask_', 'multi-task ')} {shown}."


def _growths(found: list[list[Part]], name: str, result: Result) -> str:
    """How the multi-task regret grew over the second half of the tasks, in every sequential setting."""
    mine = [part for group in found for part in group if part.name == name]
    known = [(part, made) for part in mine if (made := growth(part, result)) is not None]
    told = [(part, made) for part, made in known if not made[1] > VAGUE]
    grown = [f"{share:.2f} ± {error:.2f} ({part.label or part.order})" for part, (share, error) in told]
    if not grown:
        return ""
    return (
        f"Sequential: the multi-task regret of {name} after all tasks, as a multiple of that after half of them (2 "
        f"would be linear in the number of tasks): {', '.join(grown)}."
        + f" In {len(known) - len(told)} other settings it is too near to 0 to tell."
        * (len(told) < len(known))
    )


def groups(result: Result) -> list[list[Part]]:
    """The policies of every setting."""
    found: dict[int, list[Part]] = {}
    for part in result.parts:
        found.setdefault(id(part.setting), []).append(part)
    return list(found.values())


def where(part: Part) -> str:
    """A setting in words."""
    return f"{part.order}, {part.label}" if part.label else part.order


def ratio(top: Array, bottom: Array) -> tuple[float, float]:
    """The ratio of the means of paired samples, and its standard error by the delta method."""
    share = float(top.mean() / bottom.mean())
    if len(top) < 2:
        return share, math.nan
    left = (top - share * bottom) / float(bottom.mean())
    return share, float(left.std(ddof=1)) / math.sqrt(len(top))


def growth(part: Part, result: Result) -> tuple[float, float] | None:
    """The multi-task regret after all tasks over that after half of them, where tasks follow one another."""
    curves = result.multitask(part, REGRET)
    if curves is None or part.order != "sequential" or curves.shape[1] < 4:
        return None
    half = curves.shape[1] // 2
    return ratio(curves[:, 2 * half - 1], curves[:, half - 1])


# -- sweeps --------------------------------------------------------------------------------------------------------


def _slopes(outcome: Outcome) -> list[str]:
    lines = ["| along | order | policy | fitted exponent | exponent of its bound |", "|---|---|---|---|---|"]
    for row, order, name, (slope, error) in slopes(outcome):
        bound = outcome.study.bounds.get((row, name), "")
        lines.append(f"| {row} | {order} | {name} | {slope:.2f} ± {error:.2f} | {bound} |")
    return lines


def slopes(outcome: Outcome) -> list[tuple[str, str, str, tuple[float, float]]]:
    """For every row of cases, order and policy: the fitted exponent of the metric in `Case.at`, and its error."""
    found = []
    for (row, order, name), points in sweep(outcome).items():
        at, means, errors = (np.array(x) for x in zip(*points, strict=True))
        if len(at) > 1 and (means > 0.0).all() and name != ORACLE:
            found.append((row, order, name, log_slope(at, means, errors)))
    return found


def sweep(outcome: Outcome) -> dict[tuple[str, str, str], list[tuple[float, float, float]]]:
    """(row, order, policy) -> points (at, mean, standard error) of the study's metric at the horizon."""
    out: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for part in outcome.result.parts:
        case = outcome.study.case(part.label)
        values = part.totals()
        if outcome.study.metric == "multitask_regret":
            against = outcome.result.multitask(part)
            if against is None:
                continue
            values = against[:, -1]
        out.setdefault((case.row, part.order, part.name), []).append((case.at, *mean_and_error(values)))
    return {key: sorted(points) for key, points in out.items()}


def log_slope(at: Array, means: Array, errors: Array) -> tuple[float, float]:
    """The weighted least-squares slope of log means in log at, and its standard error."""
    x, y = np.log(at), np.log(means)
    spread = np.where(np.isnan(errors) | (errors <= 0.0), 1.0, errors / means)
    weight = spread**-2.0
    middle = float(weight @ x / weight.sum())
    size = float(weight @ (x - middle) ** 2)
    return float(weight @ ((x - middle) * y)) / size, size**-0.5


def _shares(outcome: Outcome) -> list[str]:
    pairs = outcome.study.compare
    lines = [f"| setting | {' | '.join(f'{a} / {b}' for a, b in pairs)} |", "|---" * (len(pairs) + 1) + "|"]
    for group in groups(outcome.result):
        parts = {part.name: part for part in group}
        cells = [
            _share(*ratio(parts[a].totals(), parts[b].totals())) if a in parts and b in parts else "-"
            for a, b in pairs
        ]
        lines.append(f"| {where(group[0])} | {' | '.join(cells)} |")
    return lines


def _table(outcome: Outcome) -> list[str]:
    lines = [
        "| order | setting | policy | regret | multi-task regret | realised regret | best arm | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in outcome.rows():
        cells = [_pm(row, name) for name in ("regret", "multitask_regret", "realised_regret")]
        lines.append(
            f"| {row['order']} | {row['setting'] or '-'} | {row['policy']} | {' | '.join(cells)} "
            f"| {row['best_arm_share']:.1%} | {row['seconds']:.2f} |"
        )
    return lines


def _pm(row: dict[str, Any], name: str) -> str:
    value, error = row[name], row[f"{name}_se"]
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if math.isnan(error) else f"{value:,.0f} ± {error:,.0f}"
