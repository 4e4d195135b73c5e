"""Figures: one look for every policy, readable in print and for the colour-blind; no global state is touched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.lab import report
from metabandit.lab.agents import ORACLE
from metabandit.lab.result import INTERACTIONS, REGRET, Part, Result, mean_and_error

if TYPE_CHECKING:
    from metabandit.lab.study import Outcome

Array = np.ndarray[Any, Any]

# Okabe and Ito's colours, and a dash pattern each, so that black and white tells them apart too.
LOOKS = {
    "mtts": ("#D55E00", "-"), "mtts-approx": ("#E69F00", (0, (5, 1))), "oracle-ts": ("#000000", (0, (1, 1))),
    "linear-ts": ("#009E73", (0, (5, 2, 1, 2))), "glb-ts": ("#009E73", (0, (5, 2, 1, 2))),
    "meta-ts": ("#0072B2", (0, (7, 2))), "individual-ts": ("#56B4E9", (0, (3, 1, 1, 1, 1, 1))),
    "osfa": ("#999999", "-"),
}  # fmt: skip
OTHERS = ["#CC79A7", "#882255", "#44AA99", "#117733", "#AA4499", "#661100", "#6699CC", "#DDCC77"]
DASHES = ["-", (0, (5, 1)), (0, (1, 1)), (0, (5, 2, 1, 2)), (0, (7, 2)), (0, (3, 1, 1, 1))]
APART = 2.5  # times the next lower curve: then a curve may leave the panel at the top
METRICS = ("regret", "multitask_regret")
STYLE = {
    "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "legend.fontsize": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.6,
    "axes.axisbelow": True, "pdf.fonttype": 42,
}  # fmt: skip


def check_matplotlib() -> Any:
    """matplotlib, or what to install."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("figures", "plot", "matplotlib") from None
    return matplotlib


def look(name: str, others: list[str]) -> dict[str, Any]:
    """Colour and dashes of a policy; those the paper does not know are numbered among themselves."""
    if name in LOOKS:
        colour, dashes = LOOKS[name]
    else:
        place = [other for other in others if other not in LOOKS].index(name)
        colour, dashes = OTHERS[place % len(OTHERS)], DASHES[place % len(DASHES)]
    return {"color": colour, "linestyle": dashes, "linewidth": 1.8 if name == "mtts" else 1.3}


def study_figure(outcome: Outcome) -> Any:
    """The figure of a study."""
    study = outcome.study
    if study.shape == "sweep":
        return sweep_figure(outcome)
    if study.shape == "bars":
        return bars_figure(outcome)
    titles = {case.label: case.title or case.label for case in study.cases}
    rows = {case.label: case.row for case in study.cases}
    return curves_figure(outcome.result, study.metric, titles, rows, study.hidden)


def curves_figure(
    result: Result, metric: str = "regret", titles: dict[str, str] | None = None,
    rows: dict[str, str] | None = None, hidden: tuple[str, ...] = ("osfa",),
) -> Any:  # fmt: skip
    """A panel for every setting: the average regret so far, with standard errors, against rounds or tasks."""
    if metric not in METRICS:
        raise InvalidInput("metric", metric, f"one of {METRICS}")
    grid = _grid(result, rows or {})
    with check_matplotlib().rc_context(STYLE):
        figure, axes = _panels(len(grid), max(len(line) for line in grid))
        for line, panels in zip(grid, axes, strict=True):
            for panel, parts in zip(panels, [*line, *[None] * (len(panels) - len(line))], strict=True):
                if parts is None:
                    panel.set_axis_off()
                else:
                    _curves(panel, parts, result, metric, titles or {}, hidden)
            panels[0].set_ylabel(_ylabel(line[0][0], metric))
        shown = [name for name in result.policies if metric == "regret" or name != ORACLE]
        _legend(figure, shown)
    return figure


def _grid(result: Result, rows: dict[str, str]) -> list[list[list[Part]]]:
    """Panels by row: an order and, where cases are in rows, a row of them."""
    lines: dict[tuple[str, str], dict[int, list[Part]]] = {}
    for part in result.parts:
        line = lines.setdefault((part.order, rows.get(part.label, "")), {})
        line.setdefault(id(part.setting), []).append(part)
    return [list(line.values()) for line in lines.values()]


def _panels(rows: int, columns: int, tall: float = 2.05, wide: float = 2.5, legend: float = 0.4) -> Any:
    from matplotlib.figure import Figure

    width, height = max(wide * columns, 4.2) + 0.6, tall * rows + 0.2 + legend
    figure = Figure(figsize=(width, height))
    bottom = legend / height
    figure.set_layout_engine("constrained", rect=(0.0, bottom, 1.0, 1.0 - bottom))
    return figure, figure.subplots(rows, columns, squeeze=False)


def _curves(
    panel: Any,
    parts: list[Part],
    result: Result,
    metric: str,
    titles: dict[str, str],
    hidden: tuple[str, ...],
) -> None:
    tops, bottoms = [], []
    for part in parts:
        mean, error, x = average(part, result, metric)
        if mean is None or (metric == "multitask_regret" and part.name == ORACLE):
            continue
        shown = look(part.name, result.policies)
        panel.plot(x, mean, **shown)
        panel.fill_between(x, mean - error, mean + error, color=shown["color"], alpha=0.18, linewidth=0)
        settled = slice(len(x) // 10, None)  # early averages may leave the panel
        bottoms.append(
            float((mean - error)[settled].min())
        )  # nobody leaves at the bottom: the best are there
        if part.name not in hidden:
            tops.append(float((mean + error)[settled].max()))
    part = parts[0]
    panel.set_title(", ".join(text for text in (part.order, titles.get(part.label, part.label)) if text))
    panel.set_xlabel("tasks" if part.order == "sequential" else "interactions with each task")
    if tops:
        low, high = min(bottoms), _together(tops)
        room = 0.06 * (high - low)
        panel.set_ylim(min(0.0, low) if metric == "multitask_regret" else max(0.0, low - room), high + room)
    panel.set_xlim(0, None)


def _together(tops: list[float]) -> float:
    """The highest curve that has to be in the panel: all, or all but one far above that would leave them no room."""
    *others, high = sorted(tops)
    return others[-1] if others and high > APART * others[-1] else high


def average(part: Part, result: Result, metric: str) -> tuple[Any, Array, Array]:
    """mean, standard error and x of the average regret so far: per task where tasks follow one another, else per
    interaction. The mean is None where there is no oracle to compare with."""
    curves = part.curves(REGRET) if metric == "regret" else result.multitask(part)
    spent = part.curves(INTERACTIONS)[0]
    x = np.arange(1, len(spent) + 1)
    if curves is None:
        return None, x, x
    per = curves / (x if part.order == "sequential" else spent)
    error = per.std(axis=0, ddof=1) / math.sqrt(len(per)) if len(per) > 1 else np.zeros(len(x))
    return per.mean(axis=0), error, x


def _ylabel(part: Part, metric: str) -> str:
    what = "Bayes regret" if metric == "regret" else "multi-task regret"
    return f"average {what}\nper {'task' if part.order == 'sequential' else 'interaction'}"


def _legend(figure: Any, names: list[str], marker: str = "") -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=called(name), marker=marker, **look(name, names)) for name in names]
    rows = -(-len(names) // max(1, int(figure.get_figwidth() / 1.15)))
    figure.legend(
        handles=handles, loc="lower center", ncols=-(-len(names) // rows), frameon=False, handlelength=2.2,
        columnspacing=1.2, fontsize=8.5,
    )  # fmt: skip


NAMES = {
    "mtts": "MTTS", "mtts-approx": "MTTS-approx", "oracle-ts": "oracle-TS", "linear-ts": "linear-TS", "osfa": "OSFA",
    "glb-ts": "GLB-TS", "meta-ts": "meta-TS", "individual-ts": "individual-TS",
}  # fmt: skip


def called(name: str) -> str:
    """A policy's name as the paper writes it."""
    return NAMES.get(name, name.replace("mtts-", "MTTS-"))


def sweep_figure(outcome: Outcome) -> Any:
    """A panel for every row of cases and order: totals at the horizon against the case's place, both logarithmic."""
    points, study = report.sweep(outcome), outcome.study
    panels = list(dict.fromkeys((row, order) for row, order, _ in points))
    of_oracle = study.metric == "regret"
    names = [name for name in outcome.result.policies if of_oracle or name != ORACLE]
    columns = min(4, len(panels))
    with check_matplotlib().rc_context(STYLE):
        figure, axes = _panels(-(-len(panels) // columns), columns)
        for panel in axes.flat[len(panels) :]:
            panel.set_axis_off()
        for (row, order), panel in zip(panels, axes.flat, strict=False):
            for name in names:
                if (row, order, name) in points:
                    _sweep_line(panel, points[row, order, name], look(name, names))
            panel.set(xscale="log", yscale="log", xlabel=row or study.axis, title=order)
            _plain_ticks(
                panel, sorted({at for (r, _, _), line in points.items() if r == row for at, _, _ in line})
            )
        for line in axes:
            line[0].set_ylabel(study.metric.replace("_", " ").replace("multitask", "multi-task"))
        _legend(figure, names, "o")
    return figure


def _sweep_line(panel: Any, points: list[tuple[float, float, float]], shown: dict[str, Any]) -> None:
    at, means, errors = (np.array(x) for x in zip(*points, strict=True))
    known = means > 0.0
    panel.errorbar(
        at[known], means[known], np.nan_to_num(errors[known]), marker="o", markersize=3, capsize=2, **shown
    )


def _plain_ticks(panel: Any, places: list[float]) -> None:
    from matplotlib.ticker import NullFormatter

    panel.set_xticks(places, [f"{place:g}" for place in places])
    panel.xaxis.set_minor_formatter(NullFormatter())


def bars_figure(outcome: Outcome) -> Any:
    """A panel for every case and order: totals of the policies at the horizon."""
    result, study = outcome.result, outcome.study
    groups = report.groups(result)
    columns = 2 if len(groups) == 4 else min(3, len(groups))
    tall = max(2.05, 0.6 + 0.17 * max(len(parts) for parts in groups))  # names need room
    with check_matplotlib().rc_context(STYLE):
        figure, axes = _panels(-(-len(groups) // columns), columns, tall, 7.5 / columns, legend=0.0)
        for panel in axes.flat[len(groups) :]:
            panel.set_axis_off()
        for parts, panel in zip(groups, axes.flat, strict=False):
            _bars(panel, [part for part in parts if part.name not in study.hidden], result, study.cost)
            title = study.case(parts[0].label).title or parts[0].label
            panel.set_title(f"{parts[0].order}, {title}".rstrip(", "))
            panel.set_xlabel("regret at the horizon")
    return figure


def _bars(panel: Any, parts: list[Part], result: Result, cost: bool) -> None:
    means, errors = zip(*(mean_and_error(part.totals()) for part in parts), strict=True)
    colours = [look(part.name, result.policies)["color"] for part in parts]
    names = [called(part.name) for part in parts]
    ends = np.add(means, np.nan_to_num(errors))
    panel.barh(names, means, xerr=np.nan_to_num(errors), color=colours, height=0.7)
    if cost:
        panel.set_xlim(0.0, 1.3 * ends.max())  # room for what is written beside the bars
        for place, (part, end) in enumerate(zip(parts, ends, strict=True)):
            text = f" {part.seconds:.2g} s"
            panel.text(end, place, text, va="center", fontsize=7.5, color="#444444")
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)
