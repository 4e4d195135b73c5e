"""What a simulation found: curves of every policy and seed, a summary with standard errors, a plot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.lab.agents import ORACLE
from metabandit.lab.runs import Run

if TYPE_CHECKING:
    from metabandit.lab.simulation import Setting

Array = np.ndarray[Any, Any]

REGRET, REALISED, BEST, INTERACTIONS = 0, 1, 2, 3  # rows of a run's curves


@dataclass(eq=False)
class Part:
    """One policy in one setting, and its runs by seed."""

    label: str
    order: str
    name: str
    reward: str
    policy: Any
    setting: Setting
    runs: dict[int, Run] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """The seeds that were played, sorted."""
        return sorted(self.runs)

    @property
    def seconds(self) -> float:
        """What a seed took, on the average; the policy alone."""
        return float(np.mean([self.runs[seed].seconds for seed in self.seeds]))

    def curves(self, row: int) -> Array:
        """(seeds, points), summed up along the curve."""
        return np.cumsum([self.runs[seed].curves[row] for seed in self.seeds], axis=1)

    def totals(self, row: int = REGRET) -> Array:
        """(seeds,) at the horizon."""
        return np.array([self.runs[seed].curves[row].sum() for seed in self.seeds])


class Result:
    """The curves of policies in settings.

    >>> from metabandit import lab
    >>> env = lab.GaussianTasks(n_tasks=20, n_arms=3, n_features=5)
    >>> result = lab.simulate(env, ["mtts", "oracle-ts"], horizon=20, seeds=4)
    >>> sorted(result.rows()[0])[:4]
    ['best_arm_share', 'multitask_regret', 'multitask_regret_se', 'order']
    """

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts

    @property
    def policies(self) -> list[str]:
        """Names, in the order they were given."""
        return list(dict.fromkeys(part.name for part in self.parts))

    def part(self, name: str, label: str | None = None, order: str | None = None) -> Part:
        """One policy in one setting."""
        for part in self.parts:
            if part.name == name and label in (None, part.label) and order in (None, part.order):
                return part
        raise InvalidInput("policy", name, f"one of {self.policies}, in a setting and an order there is")

    def oracle(self, part: Part) -> Part | None:
        """The oracle in the same setting, if it played."""
        for other in self.parts:
            if other.name == ORACLE and other.setting is part.setting:
                return other
        return None

    def multitask(self, part: Part, row: int = REGRET) -> Array | None:
        """Regret less the oracle's on the same seed : (seeds, points); None without an oracle."""
        oracle = self.oracle(part)
        if oracle is None or oracle.seeds != part.seeds:
            return None
        difference: Array = part.curves(row) - oracle.curves(row)
        return difference

    def rows(self) -> list[dict[str, Any]]:
        """The summary as plain records: means over seeds at the horizon, with standard errors."""
        return [self._row(part) for part in self.parts]

    def _row(self, part: Part) -> dict[str, Any]:
        regret, regret_se = mean_and_error(part.totals())
        realised, realised_se = mean_and_error(part.totals(REALISED))
        against = self.multitask(part)
        multitask, multitask_se = (math.nan, math.nan) if against is None else mean_and_error(against[:, -1])
        return {
            "reward": part.reward, "order": part.order, "setting": part.label, "policy": part.name,
            "seeds": len(part.runs), "regret": regret, "regret_se": regret_se, "multitask_regret": multitask,
            "multitask_regret_se": multitask_se, "realised_regret": realised, "realised_regret_se": realised_se,
            "best_arm_share": float(part.totals(BEST).mean() / part.totals(INTERACTIONS).mean()),
            "seconds": part.seconds,
        }  # fmt: skip

    @property
    def summary(self) -> Any:
        """rows() as a pandas data frame."""
        return _pandas("summaries as data frames").DataFrame(self.rows())

    @property
    def frame(self) -> Any:
        """A pandas data frame with a row for every setting, policy, seed and point of the curve, summed up to there.

        `point` counts rounds, or tasks where tasks follow one another; `interactions` are all so far.
        """
        pandas = _pandas("tidy frames")
        return pandas.concat([pandas.DataFrame(columns(part)) for part in self.parts], ignore_index=True)

    def plot(self, metric: str = "regret") -> Any:
        """A matplotlib figure: a panel for every setting and order; metric "regret" or "multitask_regret"."""
        from metabandit.lab.figures import curves_figure

        return curves_figure(self, metric)

    def _repr_html_(self) -> str:
        html: str = self.summary._repr_html_()
        return html

    def __repr__(self) -> str:
        return table(self.rows())


def columns(part: Part) -> dict[str, Any]:
    """The rows of a part in the tidy frame, by column; a text stands for a column of it."""
    seeds, curves = part.seeds, [part.curves(row) for row in range(4)]
    points = curves[0].shape[1]
    fixed = {"reward": part.reward, "order": part.order, "setting": part.label, "policy": part.name}
    return fixed | {
        "seed": np.repeat(seeds, points),
        "point": np.tile(np.arange(1, points + 1), len(seeds)),
        "interactions": curves[INTERACTIONS].ravel().astype(np.int64),
        "regret": curves[REGRET].ravel(),
        "realised_regret": curves[REALISED].ravel(),
        "best_arm": curves[BEST].ravel().astype(np.int64),
    }


def mean_and_error(values: Array) -> tuple[float, float]:
    """The mean over seeds and its standard error; NaN with one seed."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), error


def table(rows: list[dict[str, Any]]) -> str:
    """A summary for reading: regrets with their standard errors."""
    lines = [("order", "setting", "policy", "regret", "multi-task regret", "best arm", "seconds")]
    for row in rows:
        shown = (
            _pm(row["regret"], row["regret_se"]),
            _pm(row["multitask_regret"], row["multitask_regret_se"]),
        )
        best, seconds = f"{row['best_arm_share']:.1%}", f"{row['seconds']:.2f}"
        lines.append((row["order"], row["setting"] or "-", row["policy"], *shown, best, seconds))
    widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if j < 3 else cell.rjust(w)
            for j, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _pm(value: float, error: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if math.isnan(error) else f"{value:,.0f} ± {error:,.0f}"


def _pandas(what: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtra(what, "lab", "pandas") from None
    return pandas
