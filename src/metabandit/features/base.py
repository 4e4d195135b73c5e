"""What every kind of features can do, and what a covariance must offer to be used here."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.reading import Array
from metabandit.features.tables import Keys, Table, frame_table, record_table

INTERCEPT = "intercept"


class Covariance(Protocol):
    """A covariance function over R^p, by what it can do."""

    @property
    def variance(self) -> float:
        """k(x, x)"""

    @property
    def length_scale(self) -> Any:
        """a number, or one for every dimension : (p,)"""

    def __call__(self, X: Any, Y: Any) -> Array:
        """k(x, y) for every row of X : (n, p) and of Y : (m, p), shape (n, m)."""

    def spectral_density(self, omega: Any) -> Array:
        """The spectral density at omega : (m, p), shape (m,)."""

    def sample_frequencies(self, n: int, p: int, rng: Any) -> Array:
        """n frequencies from the normalised spectral density : (n, p)."""


class Features(ABC):
    """Metadata in, features out. It learns categories and running means from the records, no more.

    New columns only ever come at the end, and a record that is refused leaves no trace.
    """

    layout: str = "by_arm"
    """"by_arm": every arm has its own coefficients on a row x : (p,). "given": the rows are Phi : (K, d)."""
    columns: list[str]
    """the names of the columns: p of x ("by_arm"), d of Phi ("given")"""
    groups: list[str]
    """for every column the group whose coefficient scale is learned together"""
    names: list[str]
    """the metadata columns that are read, in the order in which a plain array gives them"""

    kinds: ClassVar[dict[str, type[Features]]] = {}
    settings: ClassVar[tuple[str, ...]] = ()
    """the entries of spec() that say what was asked for; all others are learned from records"""
    _by_position = False  # whether a frame with other column names is read by position
    _born: list[int] = []  # for each column the last rows brought, the row that did

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Features.kinds[cls.__name__] = cls

    # -- shape -----------------------------------------------------------------------------------------------

    def n_features(self, n_arms: int) -> int:
        """d, the number of coefficients for n_arms arms."""
        return len(self.columns) * (n_arms if self.layout == "by_arm" else 1)

    def coefficient_names(self, arms: list[str]) -> list[str]:
        """The d coefficients in the order of theta: "age:urgent", arm by arm; or the columns when "given"."""
        if self.layout == "given":
            return list(self.columns)
        return [f"{column}:{arm}" for arm in arms for column in self.columns]

    def coefficient_groups(self, arms: list[str]) -> list[str]:
        """The group of each of the d coefficients, in the order of theta."""
        return list(self.groups) * (len(arms) if self.layout == "by_arm" else 1)

    # -- rows ------------------------------------------------------------------------------------------------

    def rows(self, records: Any) -> Array:
        """Rows of n records : (n, p) or (n, K, d). A record: a mapping, None, or values as in `names`."""
        return self._learn(record_table(records, self._keys))

    def rows_from_frame(self, frame: Any) -> Array:
        """The same from a data frame of any kind, or from a plain array with a row for each task."""
        return self._learn(frame_table(frame, self._keys, self._by_position))

    def extra_variance(self, records: Any) -> Array:
        """What the columns leave out, for the variance of the task effect : (n,). Learns nothing."""
        table = record_table(records, self._keys)
        mark = self._mark()
        try:
            return self._extra_variance(table)
        finally:
            self._rollback(mark)

    def check(self, records: Any) -> None:
        """Refuse what rows() refuses. Learns nothing."""
        mark = self._mark()
        try:
            self.rows(records)
        finally:
            self._rollback(mark)

    def new_level(self, column: str, value: Any) -> str | None:
        """The category that this value of a metadata column would be the first of; None where it is not new."""
        return None

    def bind(self, arms: list[str]) -> Self:
        """Learn the names of the arms; only features given per arm need them."""
        return self

    def add_arms(self, arms: list[str]) -> int:
        """New arms, after the ones there are. Returns the number of new columns (at the end)."""
        return 0

    @cached_property
    def _keys(self) -> Keys:
        return Keys(self.names)

    def _learn(self, table: Table) -> Array:
        mark = self._mark()
        try:
            return self._rows(table)
        except BaseException:
            self._rollback(mark)
            raise

    def _extra_variance(self, table: Table) -> Array:
        return np.zeros(table.n)

    @abstractmethod
    def _rows(self, table: Table) -> Array:
        """The rows of a table; may grow columns and learn, and need not clean up if it raises."""

    @abstractmethod
    def _mark(self) -> Any:
        """What _rollback needs to undo whatever _rows learns."""

    @abstractmethod
    def _rollback(self, mark: Any) -> None: ...

    # -- saving ----------------------------------------------------------------------------------------------

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Everything, including what was learned, as plain data (JSON)."""

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: dict[str, Any]) -> Features:
        """The features that `spec` was taken from."""

    def resume(self, spec: dict[str, Any]) -> None:
        """Take over what the features saved as `spec`, which were made like these, had learned."""
        self.__dict__.update(type(self).from_spec(spec).__dict__)

    def _check_settings(self, spec: dict[str, Any]) -> None:
        """Refuse what these features were not made like."""
        kind, mine = type(self).__name__, self.spec()
        if spec["kind"] != kind:
            raise InvalidInput("metadata", f"<{kind}>", f"the {spec['kind']} features that were saved")
        for name in self.settings:
            own = json.loads(json.dumps(mine[name], default=lambda value: value.tolist()))
            if own != spec[name]:
                accepted = f"the {kind} features that were saved, {name} = {spec[name]}"
                raise InvalidInput("metadata", f"<{kind} features, {name} = {own}>", accepted)


def from_spec(spec: dict[str, Any], metadata: Features | None = None) -> Features:
    """Features from what `spec()` gave; `metadata` is for those that hold what plain data cannot.

    >>> from metabandit import features
    >>> made = features.Columns({"age": "number", "country": "category"})
    >>> _ = made.rows([{"age": 31, "country": "NO"}])
    >>> features.from_spec(made.spec()).columns
    ['intercept', 'age', 'country[NO]']
    """
    kind = Features.kinds.get(str(spec.get("kind"))) if isinstance(spec, dict) else None
    if kind is None:
        raise InvalidInput(
            "spec", spec, f"what spec() gave, its kind one of {', '.join(sorted(Features.kinds))}"
        )
    if metadata is None:
        try:
            return kind.from_spec(spec)
        except (KeyError, TypeError, IndexError) as error:
            raise InvalidInput("spec", spec, f"what spec() gave ({error!r})") from error
    metadata._check_settings(spec)
    metadata.resume(spec)
    return metadata


_loaders: list[Callable[[dict[str, Any]], Any]] = []


def load_covariances_with(loader: Callable[[dict[str, Any]], Any]) -> None:
    """Say how to make a covariance from its spec(): this room does not know the covariances there are.

    >>> from metabandit import features
    >>> from metabandit.models.covariances import Covariance
    >>> features.load_covariances_with(Covariance.from_spec)
    """
    _loaders.insert(0, loader)


def loaded_covariance(spec: dict[str, Any] | None) -> Covariance:
    """The covariance that `spec` was taken from."""
    if spec is None or not _loaders:
        raise InvalidInput(
            "spec", "<features with a covariance that was not saved>", "metadata= with the same features"
        )
    made: Covariance = _loaders[0](spec)
    return made


def spec_of_covariance(covariance: Any) -> dict[str, Any] | None:
    """A covariance as plain data, None if it cannot say what it is."""
    spec = getattr(covariance, "spec", None)
    given: dict[str, Any] | None = spec() if callable(spec) else None
    return given
