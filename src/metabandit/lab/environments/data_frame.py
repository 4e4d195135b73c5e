"""Tasks out of recorded rewards: the mean of a cell is the truth, and its rewards are played again."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.lab.environment import OTHER, RESAMPLED, Environment, Problem, Rewards, World, generator
from metabandit.lab.environments.cells import Cells, canonical, cells_of, estimated
from metabandit.learning.variances import SHAPES


class CellTasks(Environment):
    """What environments of recorded rewards have in common: `cells`, and how they become worlds.

    Every world has all the tasks, in an order of its seed, which is where "sequential" starts. The prior mean is
    nobody's to know, so that there is no oracle.
    """

    task_cov: str = "scalar"
    """ "scalar", "per_arm", "compound" or "full": the shape of the covariance of task effects that is estimated"""

    @property
    @abstractmethod
    def cells(self) -> Cells:
        """The recorded rewards."""

    @property
    def reward(self) -> str:  # type: ignore[override]
        """ "binary" if every recorded reward is 0 or 1, else "real"."""
        return self.cells.reward

    @property
    def model(self) -> Any:
        return estimated(self.cells, self.task_cov)

    def world(self, seed: int) -> World:
        order = generator(seed, OTHER).permutation(len(self.cells.tasks))
        cells = canonical(self.cells)
        law = Rewards(RESAMPLED, np.zeros(len(cells.arms)), *cells.in_order(order))
        metadata = cells.rows[order, 1:]
        problem = Problem(cells.phi[order], cells.reward, self.model, cells.phi, metadata)
        return World(problem, cells.truth[order], None, law, seed)

    def spec(self) -> dict[str, Any]:
        given = {name: value for name, value in super().spec().items() if not name.startswith("_")}
        return given | {"task_cov": self.task_cov, "cells": self.cells.spec()}


@dataclass(frozen=True)
class DataFrameTasks(CellTasks):
    """Tasks of any data frame with a row for every recorded reward: who (task), what was done (arm), what came of it.

    The mean of a cell, all rows of one task and arm, is the truth; a reward is one of the cell's own, at random. Tasks
    with fewer than least_rows rows in a cell are left out: `cells.dropped` says how many.

    frame : a data frame that narwhals knows (pandas, polars, pyarrow ...). It is not kept.
    metadata : columns that describe the task, with one value in all rows of a task. Numbers are scaled to mean 0 and
        variance 1, all else are categories; features are an intercept and these, for every arm.
    task_cov : "scalar", "per_arm", "compound" or "full": the shape of the covariance of task effects.
    The variances of the model are those that all rows together suggest: of a LinearMixedModel by empirical Bayes, of
    a BetaLogisticModel, when all rewards are 0 or 1, its dispersion and scales likewise.

    >>> import pandas
    >>> from metabandit import lab
    >>> frame = pandas.DataFrame({
    ...     "task": ["ann", "ann", "ann", "bob", "bob", "eve"], "arm": ["x", "x", "y", "x", "y", "x"],
    ...     "reward": [1.0, 2.0, 4.0, 3.0, 2.0, 9.0],
    ... })
    >>> env = lab.DataFrameTasks(frame)
    >>> env.cells.tasks, env.cells.dropped, sorted(env.world(seed=0).truth.tolist())
    (('ann', 'bob'), 1, [[1.5, 4.0], [3.0, 2.0]])
    """

    frame: InitVar[Any]
    task_column: str = "task"
    arm_column: str = "arm"
    reward_column: str = "reward"
    metadata: tuple[str, ...] = ()
    least_rows: int = 1
    task_cov: str = "scalar"
    _cells: Cells = field(init=False, repr=False)

    def __post_init__(self, frame: Any) -> None:
        if isinstance(self.metadata, str):
            raise InvalidInput("metadata", self.metadata, "a list of names of columns")
        object.__setattr__(self, "metadata", tuple(self.metadata))
        check_task_cov(self.task_cov)
        columns = (self.task_column, self.arm_column, self.reward_column)
        cells = cells_of(frame, *columns, self.metadata, self.least_rows)
        if cells.reward == "binary" and self.task_cov != "scalar":
            raise InvalidInput("task_cov", self.task_cov, '"scalar" where all rewards are 0 or 1')
        object.__setattr__(self, "_cells", cells)

    @property
    def cells(self) -> Cells:
        return self._cells


def check_task_cov(shape: str) -> None:
    """Refuse what is no shape of a covariance."""
    if shape not in SHAPES:
        raise InvalidInput("task_cov", shape, f"one of {SHAPES}")
