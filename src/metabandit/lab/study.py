"""A study: a named experiment, as data. Its settings and policies are simulated, and what came out is written down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.lab.agents import check_ready
from metabandit.lab.environment import Environment
from metabandit.lab.result import Result
from metabandit.lab.simulation import Setting, checked_policies, checked_seeds, run

VARIANTS = ("stated", "published")
SHAPES = ("curves", "sweep", "bars")


@dataclass(frozen=True, eq=False)
class Case:
    """One setting of a study.

    label : what results call it, such as "task_var=0.25"; title : what its panel is called.
    policies, orders, horizon : instead of the study's.
    row : cases of one row of panels share it. at : where the case stands on the axis of a sweep, within `row`.
    """

    label: str
    environment: Environment
    title: str = ""
    policies: tuple[Any, ...] = ()
    orders: tuple[str, ...] = ()
    horizon: int = 0
    row: str = ""
    at: float = 0.0


@dataclass(frozen=True, eq=False)
class Study:
    """What is simulated, what is drawn, and what the report looks at.

    about : what is asked, in a paragraph. notes : what a reader has to know of the choices made.
    metric : "regret" or "multitask_regret". shape : "curves", a panel for each case and order; "sweep", totals against
        `Case.at`; or "bars", totals of the policies in every case.
    compare : pairs of policies whose regrets the report sets in relation. challenged : policies of which it says who
        beats them, setting by setting.
    published : policies by name as the authors' code had them, for the variant "published"; empty: there is none.
    hidden : policies that may leave a panel at the top, so that the others can be told apart.
    cost : whether the figure, with bars, and the report say how long policies take.
    axis : what a sweep without rows is along. slopes : whether the report fits exponents to sweeps; bounds : what
        theory says of them, by row and policy.
    """

    name: str
    title: str
    about: str
    cases: tuple[Case, ...]
    policies: tuple[Any, ...] = ()
    orders: tuple[str, ...] = ("concurrent", "sequential")
    horizon: int = 200
    seeds: int = 100
    metric: str = "regret"
    shape: str = "curves"
    compare: tuple[tuple[str, str], ...] = ()
    challenged: tuple[str, ...] = ()
    published: Mapping[str, Any] = field(default_factory=dict)
    hidden: tuple[str, ...] = ("osfa",)
    cost: bool = False
    axis: str = ""
    slopes: bool = False
    bounds: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise InvalidInput("shape", self.shape, f"one of {SHAPES}")
        if self.shape == "sweep" and (low := [case.at for case in self.cases if not case.at > 0.0]):
            raise InvalidInput(
                "at", low[0], 'numbers > 0 with shape "sweep", whose axes are logarithmic; or "bars"'
            )

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants there are."""
        return VARIANTS if self.published else VARIANTS[:1]

    def settings(self, variant: str = "stated") -> list[Setting]:
        """What is simulated, in the order of the cases."""
        if variant not in self.variants:
            raise InvalidInput("variant", variant, f"{' or '.join(self.variants)} for study {self.name!r}")
        return [
            Setting(
                case.environment,
                self._policies(case, variant),
                order,
                case.horizon or self.horizon,
                case.label,
            )
            for order in dict.fromkeys(o for c in self.cases for o in (c.orders or self.orders))
            for case in self.cases
            if order in (case.orders or self.orders)
        ]

    def check(self, variant: str = "stated") -> None:
        """Refuse, before anything runs, a variant that there is not, and policies whose libraries are missing."""
        for setting in self.settings(variant):
            check_ready(setting.policies)

    def _policies(self, case: Case, variant: str) -> tuple[Any, ...]:
        given = case.policies or self.policies
        if variant == "published":
            given = tuple(self.published[p] for p in given if not isinstance(p, str) or p in self.published)
        return checked_policies(given)

    def case(self, label: str) -> Case:
        """The case of this label."""
        return next(case for case in self.cases if case.label == label)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A study that was run."""

    study: Study
    variant: str
    result: Result
    folder: Path

    def rows(self) -> list[dict[str, Any]]:
        """The rows of summary.csv."""
        keys = ("reward", "order", "setting", "policy", "seeds", *NUMBERS)
        fixed = {"study": self.study.name, "variant": self.variant}
        return [fixed | {key: row[key] for key in keys} for row in self.result.rows()]


NUMBERS = (
    "regret", "regret_se", "multitask_regret", "multitask_regret_se", "realised_regret", "realised_regret_se",
    "seconds", "best_arm_share",
)  # fmt: skip


def run_study(
    study: Study, out: str | os.PathLike[str], seeds: Any = None, jobs: int = 1, variant: str = "stated",
    progress: bool | None = None,
) -> Outcome:  # fmt: skip
    """Run a study and write out/NAME/{curves.parquet, summary.csv, figure.png, figure.pdf, report.md}.

    Finished worlds are kept in out/runs.sqlite as they come: what is stopped goes on from there, and studies that share
    worlds (Figures 2 and 4) simulate them once.
    """
    from metabandit.lab.writing import opened, write

    numbers, jobs = checked_seeds(study.seeds if seeds is None else seeds), count("jobs", jobs)
    study.check(variant)
    settings = study.settings(variant)
    folder = Path(out) / study.name
    with opened(out, folder) as store:
        result = Result(run(settings, numbers, jobs, store, progress))
    outcome = Outcome(study, variant, result, folder)
    write(outcome)
    return outcome
