"""Features given arm by arm, with coefficients that the arms share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.features.base import Features
from metabandit.features.reading import (
    LIMIT,
    Array,
    Means,
    distinct,
    groups_of,
    numbers_of,
    refuse_large,
    shape_of,
)
from metabandit.features.tables import Table

SHARED = "shared"


class PerArm(Features):
    """Row a of Phi is [one-hot(a), z_a]: an intercept for every arm, and m numbers about task and arm.

    `names` are the names of the m numbers, or how many there are. A record is an array : (K, m), or a mapping
    from arm to its m numbers (or to a mapping from name to number). What is missing is the running mean, over
    tasks and arms. The arms' names come from the bandit, or from `bind`.

    >>> from metabandit import features
    >>> made = features.PerArm(["price", "rank"]).bind(["a", "b"])
    >>> made.rows([{"a": [9.5, 1], "b": [7.0, 2]}])
    array([[[1. , 0. , 9.5, 1. ],
            [0. , 1. , 7. , 2. ]]])
    >>> made.columns
    ['a', 'b', 'price', 'rank']
    """

    layout = "given"
    settings = ("names", "intercepts", "own_groups")

    def __init__(
        self, names: int | list[str], intercepts: bool = True, groups: list[str] | None = None
    ) -> None:
        if isinstance(names, (list, tuple)):
            self.names = distinct("names", names)
        else:
            self.names = [f"z{j}" for j in range(count("names", names))]
        self.intercepts = bool(intercepts)
        own = groups_of(groups, [SHARED] * len(self.names))
        self.arms: list[str] = []
        self.columns, self.groups = list(self.names), own
        self._own = own
        self._means = Means(len(self.names))
        self._set_places([], len(self.names))

    # -- arms ------------------------------------------------------------------------------------------------

    def bind(self, arms: list[str]) -> Self:
        """Give the arms' names; the columns of their intercepts come first."""
        if self.arms and self.arms != list(arms):
            raise InvalidInput("arms", arms, f"{self.arms}: these features are in use for them")
        if not self.arms:
            self.arms = distinct("arms", arms)
            shown = self.arms if self.intercepts else []
            self.columns = distinct("arms and names", shown + self.names)
            self.groups = ["intercept"] * len(shown) + self._own
            self._set_places(list(range(len(shown))), len(shown))
        return self

    def add_arms(self, arms: list[str]) -> int:
        """New arms; the columns of their intercepts come after all others."""
        self._bound()
        together = distinct("arms", [*self.arms, *arms])
        fresh = distinct("arms", arms) if self.intercepts and arms else []
        self.columns = distinct("arms and names", self.columns + fresh)
        self.groups = self.groups + ["intercept"] * len(fresh)
        self.arms = together
        self._set_places([*self._hot, *range(len(self.columns) - len(fresh), len(self.columns))], self._first)
        return len(fresh)

    def n_features(self, n_arms: int) -> int:
        return len(self.columns) if self.arms else len(self.names) + self.intercepts * n_arms

    def rows_of_arms(self, arms: list[str], records: Any) -> Array:
        """The rows of some of the arms : (n, len(arms), d), from records of these arms alone."""
        places = [self._arm(arm) for arm in arms]
        mark = self._mark()
        try:
            blocks = [self._block(record, arms) for record in records]
            filled = self._means.fill(np.array(blocks).reshape(-1, len(self.names)))
        except BaseException:
            self._rollback(mark)
            raise
        return self._phi(filled.reshape(-1, len(arms), len(self.names)), places)

    def _arm(self, arm: str) -> int:
        if arm not in self.arms:
            raise InvalidInput("arm", arm, f"one of {self.arms}")
        return self.arms.index(arm)

    def _bound(self) -> None:
        if not self.arms:
            raise InvalidInput(
                "features", "<PerArm without arms>", "PerArm(...).bind(arms), or give it to a bandit"
            )

    def _set_places(self, hot: list[int], first: int) -> None:
        self._hot, self._first = hot, first if self.arms else 0
        self._template = np.zeros((len(self.arms), len(self.columns)))
        self._sums = np.zeros((len(self.arms) + 1, len(self.names)))
        if self.intercepts:
            self._template[np.arange(len(hot)), hot] = 1.0

    # -- rows ------------------------------------------------------------------------------------------------

    def rows(self, records: Any) -> Array:
        if type(records) is list and len(records) == 1 and type(records[0]) is np.ndarray:
            phi = self._quick(records[0])
            if phi is not None:
                return phi
        if isinstance(records, (Mapping, str)) or not isinstance(records, (Sequence, np.ndarray)):
            raise InvalidInput("records", records, "a list of records")
        self._bound()
        return self._learn_blocks(np.array([self._block(record, self.arms) for record in records]))

    def _quick(self, z: Array) -> Array | None:
        """Phi of one ordinary array, or None; see Arrays."""
        if z.shape != (len(self.arms), len(self.names)) or z.dtype.char != "d" or not self.arms:
            return None
        if not np.vdot(z, z) <= LIMIT * LIMIT:
            return None
        sums, means = self._sums, self._means
        sums[0], sums[1:] = means.totals, z
        means.totals = np.add.reduce(sums)  # down the rows in order, as Means sums
        means.complete += len(z)
        phi = self._template.copy()
        phi[:, self._first : self._first + z.shape[1]] = z
        return phi[None]

    def rows_from_frame(self, frame: Any) -> Array:
        """From an array : (n, K, m) or (n, K m), arm by arm; or from a data frame with columns "name:arm"."""
        self._bound()
        width = (len(self.arms), len(self.names))
        if not isinstance(frame, np.ndarray):
            from metabandit.features.tables import Keys, frame_table

            keys = Keys([f"{name}:{arm}" for arm in self.arms for name in self.names])
            frame = frame_table(frame, keys).numbers(keys.names)
        if frame.ndim not in (2, 3) or frame.shape[1:] not in (width, (width[0] * width[1],)):
            raise InvalidInput(
                "frame", f"<array of shape {frame.shape}>", f"shape (n, {width[0]}, {width[1]})"
            )
        block = (
            numbers_of("metadata", frame.reshape(-1))
            if frame.dtype.kind not in "fiub"
            else frame.astype(float)
        )
        refuse_large("metadata", block)
        return self._learn_blocks(block)

    def _learn_blocks(self, blocks: Array) -> Array:
        filled = self._means.fill(blocks.reshape(-1, len(self.names)))
        return self._phi(filled.reshape(-1, len(self.arms), len(self.names)), list(range(len(self.arms))))

    def _phi(self, z: Array, arms: list[int]) -> Array:
        phi = np.repeat(self._template[arms][None], len(z), axis=0)
        phi[:, :, self._first : self._first + len(self.names)] = z
        return phi

    def _block(self, record: Any, arms: list[str]) -> Array:
        """z : (len(arms), m) of one record, NaN where it is missing."""
        shape = (len(arms), len(self.names))
        if record is None:
            return np.full(shape, np.nan)
        if not isinstance(record, Mapping):
            if shape_of(record) != shape:
                raise InvalidInput("metadata", f"<an array of shape {shape_of(record)}>", f"shape {shape}")
            return numbers_of("metadata", np.asarray(record).reshape(-1).tolist()).reshape(shape)
        unknown = [key for key in record if key not in arms]
        if unknown:
            raise InvalidInput("metadata", f"<the key {unknown[0]!r}>", f"the arms {arms}")
        return np.array([self._vector(arm, record.get(arm)) for arm in arms])

    def _vector(self, arm: str, given: Any) -> Array:
        argument, m = f"metadata[{arm!r}]", len(self.names)
        if given is None:
            return np.full(m, np.nan)
        if isinstance(given, Mapping):
            self._keys.check(given)
            return numbers_of(argument, [given.get(name) for name in self.names])
        if shape_of(given) != (m,):
            raise InvalidInput(argument, given, f"{m} numbers: {', '.join(self.names)}")
        return numbers_of(argument, list(given))

    def _rows(self, table: Table) -> Array:
        raise NotImplementedError  # rows() and rows_from_frame() read what is given arm by arm themselves

    def extra_variance(self, records: Any) -> Array:
        return np.zeros(len(records))

    def _mark(self) -> Any:
        return self._means.mark()

    def _rollback(self, mark: Any) -> None:
        self._means.rollback(mark)

    # -- saving ----------------------------------------------------------------------------------------------

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "PerArm",
            "names": list(self.names),
            "intercepts": self.intercepts,
            "own_groups": list(self._own),
            "arms": list(self.arms),
            "columns": list(self.columns),
            "groups": list(self.groups),
            "hot": list(self._hot),
            "first": self._first,
            "means": self._means.spec(),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> PerArm:
        made = cls(spec["names"], spec["intercepts"], spec["own_groups"])
        made.arms = list(spec["arms"])
        made.columns, made.groups = list(spec["columns"]), list(spec["groups"])
        made._means.restore(spec["means"])
        made._set_places(list(spec["hot"]), spec["first"])
        return made
