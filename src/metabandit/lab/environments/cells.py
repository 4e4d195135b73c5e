"""Rewards that somebody recorded, by task and arm, as arrays; and the variances that they suggest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.features.base import INTERCEPT
from metabandit.features.columns import Columns
from metabandit.features.reading import LIMIT, is_missing
from metabandit.lab.environments.bernoulli import REFIT
from metabandit.models.beta_logistic import BetaLogisticModel
from metabandit.models.features import TaskFeatures
from metabandit.models.linear import LinearMixedModel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Cells:
    """The rewards of N tasks and K arms, every cell of them with some, and the rows of the tasks' features."""

    tasks: tuple[Any, ...]
    """N names, sorted"""
    arms: tuple[Any, ...]
    """K names, sorted"""
    columns: tuple[str, ...]
    """p names, the intercept first"""
    groups: tuple[int, ...]
    """(p,) columns of one group are levels of one category"""
    rows: Array
    """(N, p): an intercept, numbers with mean 0 and variance 1, a column for every level of a category"""
    values: Array
    """every reward, by cell i K + a, sorted there"""
    starts: Array
    """(N K + 1,): values[starts[c] : starts[c + 1]] are those of cell c"""
    dropped: int
    """how many tasks are left out because a cell has too few rows"""

    @property
    def reward(self) -> str:
        """ "binary" if every reward is 0 or 1, else "real"."""
        return "binary" if np.isin(self.values, (0.0, 1.0)).all() else "real"

    @cached_property
    def truth(self) -> Array:
        """(N, K) the means of the cells."""
        sums = np.add.reduceat(self.values, self.starts[:-1])
        means: Array = (sums / np.diff(self.starts)).reshape(len(self.tasks), len(self.arms))
        return means

    @cached_property
    def phi(self) -> Array:
        """(N, K, K p): every arm has its own coefficients."""
        held = TaskFeatures(len(self.arms), len(self.arms) * len(self.columns), "by_arm")
        held.append(self.rows)
        phi = held.phis(np.arange(len(self.tasks)))
        phi.flags.writeable = False  # worlds share it
        return phi

    def in_order(self, order: Array) -> tuple[Array, Array]:
        """values and starts when the tasks come in another order : (N,)."""
        k = len(self.arms)
        cells = (order[:, None] * k + np.arange(k)).ravel()
        sizes = np.diff(self.starts)[cells]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(self.starts[:-1][cells] - starts[:-1], sizes) + np.arange(starts[-1])
        return self.values[places], starts

    @cached_property
    def digest(self) -> str:
        """Of everything."""
        names = repr((self.tasks, self.arms, self.columns, self.groups, self.dropped))
        numbers = (np.ascontiguousarray(array).tobytes() for array in (self.rows, self.values, self.starts))
        return blake2b(names.encode() + b"".join(numbers), digest_size=16).hexdigest()

    def spec(self) -> dict[str, Any]:
        """What tells these data from others, in short."""
        return {
            "digest": self.digest,
            "tasks": len(self.tasks),
            "arms": len(self.arms),
            "dropped": self.dropped,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cells) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=16)
def canonical(cells: Cells) -> Cells:
    """The first of equal cells: copies out of other processes' pickles then share what was computed from it."""
    return cells


@lru_cache(maxsize=64)
def estimated(cells: Cells, task_cov: str) -> Any:
    """The hierarchical model with the variances that all rewards together suggest, by empirical Bayes."""
    k, p = len(cells.arms), len(cells.columns)
    binary = cells.reward == "binary"
    learner: Any = BetaLogisticModel() if binary else LinearMixedModel(task_cov=task_cov)
    belief = learner.belief(k, k * p, layout="by_arm", groups=np.tile(cells.groups, k))
    belief.add_tasks(cells.rows)
    where = np.repeat(np.arange(len(cells.starts) - 1), np.diff(cells.starts))
    belief.next_fit = len(where) + 1  # not on the way: once, when every reward is there
    belief.observe(where // k, where % k, cells.values)
    if binary:
        coef_cov = belief.prior.scale[belief.prior.groups]
        return BetaLogisticModel(0.0, coef_cov, belief.dispersion, refit=REFIT)
    belief.learn_variances()
    found = belief.variances
    task = float(found.task[0]) if task_cov == "scalar" else found.task
    return LinearMixedModel(0.0, belief.prior.scaled(), task, float(found.noise[0]))


# -- out of a data frame -------------------------------------------------------------------------------------------


def cells_of(frame: Any, task: str, arm: str, reward: str, metadata: Sequence[str], least_rows: int) -> Cells:
    """The cells of a data frame with a row for every reward; the names are those of its columns."""
    table = opened(frame)
    check_columns(table, (task, arm, reward, *metadata))
    rewards = numbers(table, reward)
    task_names, tasks = numbered(table, task)
    arm_names, arms = numbered(table, arm)
    if len(arm_names) < 2:
        raise InvalidInput(f"frame[{arm!r}]", f"<one arm, {arm_names[0]!r}>", "two arms or more")
    n, k = len(task_names), len(arm_names)
    sizes = np.bincount(tasks * k + arms, minlength=n * k).reshape(n, k)
    kept = np.flatnonzero(sizes.min(axis=1) >= count("least_rows", least_rows))
    if not len(kept):
        given = f"<no task with {least_rows} rows or more of every arm>"
        raise InvalidInput("frame", given, "at least one such task; or fewer arms, or a smaller least_rows")
    rows, columns, groups = encoded(one_a_task(table, task, task_names, metadata)[kept], metadata)
    inside = np.isin(tasks, kept)
    order = np.lexsort((rewards[inside], (tasks * k + arms)[inside]))
    starts = np.concatenate([[0], np.cumsum(sizes[kept].ravel())])
    names = tuple(task_names[i] for i in kept)
    return Cells(names, arm_names, columns, groups, rows, rewards[inside][order], starts, n - len(kept))


def opened(frame: Any) -> Any:
    """The frame as narwhals has it, with all its rows."""
    import narwhals as nw

    try:
        table: Any = nw.from_native(frame)
    except TypeError:
        raise InvalidInput("frame", f"<{type(frame).__name__}>", "a data frame") from None
    except nw.exceptions.DuplicateError:
        raise InvalidInput(
            "frame", "<two columns of one name>", "a name of its own for every column"
        ) from None
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    if not len(table):
        raise InvalidInput("frame", "<no rows>", "a row for every reward")
    return table


def check_columns(table: Any, names: Sequence[str]) -> None:
    """Refuse columns that are not there, or are to be two things at once."""
    for place, name in enumerate(names):
        if name not in table.columns:
            raise InvalidInput(
                "frame", f"<no column {name!r}>", f"columns named {', '.join(map(repr, names))}"
            )
        if name in names[:place]:
            raise InvalidInput("frame", f"<column {name!r} named twice>", "a column for each of them")


def numbers(table: Any, name: str) -> Array:
    """A column of numbers : (n,), none missing."""
    import narwhals as nw

    series = table[name]
    if not (series.dtype.is_numeric() or isinstance(series.dtype, nw.Boolean)):
        raise InvalidInput(f"frame[{name!r}]", f"<{series.dtype} values>", "numbers")
    values: Array = series.cast(nw.Float64).to_numpy()
    bad = np.flatnonzero(~(np.abs(values) <= LIMIT))
    if len(bad):
        given = f"<{len(bad)} missing or not finite, the first in row {bad[0]}>"
        raise InvalidInput(f"frame[{name!r}]", given, "finite numbers in every row")
    return values


def numbered(table: Any, name: str) -> tuple[tuple[Any, ...], Array]:
    """The different values of a column, sorted, and which one every row has : (n,)."""
    values = table[name].to_list()
    try:
        different = {*values}
        if any(map(is_missing, different)):
            raise InvalidInput(f"frame[{name!r}]", "<a missing name>", "a name in every row")
        names = sorted(different, key=lambda value: (isinstance(value, str), value))  # numbers before text
    except TypeError:
        raise InvalidInput(
            f"frame[{name!r}]", "<values without an order>", "names: text or numbers"
        ) from None
    index = {value: number for number, value in enumerate(names)}
    return tuple(names), np.array([index[value] for value in values], np.int64)


def one_a_task(table: Any, task: str, names: Sequence[Any], metadata: Sequence[str]) -> Any:
    """The metadata of every task, in the order of names; refused where a task has two values of something."""
    rows = table.select(task, *metadata).unique()
    if len(rows) > len(names):
        for name in metadata:
            if len(table.select(task, name).unique()) > len(names):
                given = "<several values in one task>"
                raise InvalidInput(
                    f"frame[{name!r}]", given, "metadata: one value for a task, in all its rows"
                )
    index = {value: number for number, value in enumerate(names)}
    return rows[np.argsort([index[value] for value in rows[task].to_list()])]


def encoded(table: Any, metadata: Sequence[str]) -> tuple[Array, tuple[str, ...], tuple[int, ...]]:
    """Rows (N, p) of features, the names of the columns, and the groups of those."""
    if not metadata:
        return np.ones((len(table), 1)), (INTERCEPT,), (0,)
    kinds = {name: "number" if table[name].dtype.is_numeric() else "category" for name in metadata}
    made = Columns(kinds)
    rows = made.rows_from_frame(table.select(*metadata).to_native())
    for j, name in enumerate(made.columns):
        if kinds.get(name) == "number":
            gap = rows[:, j] - rows[:, j].mean()
            rows[:, j] = gap / (gap.std() or 1.0)
    numbers: dict[str, int] = {}
    groups = tuple(numbers.setdefault(group, len(numbers)) for group in made.groups)
    return rows, tuple(made.columns), groups
