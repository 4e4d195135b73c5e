"""Features from a fitted transformer: scikit-learn's, or anything with transform()."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.features.base import INTERCEPT, Features
from metabandit.features.reading import LIMIT, Array, Means, distinct, groups_of, is_missing, numbers_of
from metabandit.features.tables import Encoded, Table, Values


class Transformed(Features):
    """The columns that a fitted transformer gives, after an intercept.

    inputs : the metadata columns in the order in which it takes them; known already if it was fitted on a
    data frame. Missing values go to the transformer, for it may have its own way with them. Where it gives
    NaN, and for rows with missing values if it refuses those, the column is its running mean. A transformer
    is not saved with a bandit: loading takes it as metadata= again.

    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from metabandit import features
    >>> scaler = StandardScaler().fit(np.array([[20.0, 1.0], [40.0, 3.0]]))
    >>> made = features.Transformed(scaler, inputs=["age", "visits"])
    >>> made.rows([{"age": 40, "visits": 1}, {"age": 20}])
    array([[ 1.,  1., -1.],
           [ 1., -1., -1.]])
    """

    def __init__(
        self,
        transformer: Any,
        inputs: list[str] | None = None,
        intercept: bool = True,
        groups: list[str] | None = None,
    ) -> None:
        if isinstance(transformer, type) or not callable(getattr(transformer, "transform", None)):
            raise InvalidInput("transformer", transformer, "a fitted object with transform()")
        self.transformer, self.intercept = transformer, bool(intercept)
        named = getattr(transformer, "feature_names_in_", None)
        self._as_frame = named is not None
        self.names = self._inputs(named, inputs)
        self._by_position = named is None and inputs is None
        outputs = self._outputs()
        own = groups_of(groups, [_group(name, self.names) for name in outputs])
        self.columns = distinct("columns", [INTERCEPT] * self.intercept + outputs)
        self.groups = [INTERCEPT] * self.intercept + own
        self._means = Means(len(outputs))

    def _inputs(self, named: Any, inputs: list[str] | None) -> list[str]:
        if named is not None:
            names = [str(name) for name in named]
            if inputs is not None and list(inputs) != names:
                raise InvalidInput("inputs", inputs, f"the columns it was fitted on: {names}")
            return names
        if inputs is not None:
            return distinct("inputs", inputs)
        width = getattr(self.transformer, "n_features_in_", None)
        if width is None:
            raise InvalidInput(
                "transformer",
                _kind_of(self.transformer),
                "a fitted transformer; or inputs=, the columns it takes",
            )
        return [f"x{j}" for j in range(int(width))]

    def _outputs(self) -> list[str]:
        ask = getattr(self.transformer, "get_feature_names_out", None)
        if callable(ask):
            try:
                return distinct("columns", [str(name) for name in ask()])
            except InvalidInput:
                raise
            except Exception as error:  # it is not ours: whatever it raises, the user must hear of it
                raise InvalidInput(
                    "transformer", _kind_of(self.transformer), f"a fitted transformer ({_line(error)})"
                ) from error
        probe = self._probe()
        return [f"t{j}" for j in range(probe.shape[1])]

    def _probe(self) -> Array:
        """What it makes of zeros, to count the columns."""
        try:
            probe = np.asarray(_dense(self.transformer.transform(np.zeros((1, len(self.names))))))
        except Exception as error:  # see _outputs
            raise InvalidInput(
                "transformer", _kind_of(self.transformer), f"a fitted transformer ({_line(error)})"
            ) from error
        if probe.ndim != 2:
            raise InvalidInput("transformer", f"<it gave an array of shape {probe.shape}>", "shape (n, m)")
        return probe

    # -- rows ------------------------------------------------------------------------------------------------

    def _rows(self, table: Table) -> Array:
        columns = {name: _listed(table.column(name)) for name in self.names}
        values = (
            self._means.fill(self._transform(table, columns))
            if table.n
            else np.zeros((0, len(self._means.now)))
        )
        return np.hstack([np.ones((table.n, 1)), values]) if self.intercept else values

    def _transform(self, table: Table, columns: dict[str, list[Any]]) -> Array:
        """(n, m), NaN where the running mean is to stand."""
        n, m = table.n, len(self._means.now)
        missing: Array = np.array(
            [[is_missing(value) for value in column] for column in columns.values()], bool
        ).reshape(-1, n)
        out = np.full((n, m), np.nan)
        counts = missing.sum(axis=0)
        known = counts < max(len(self.names), 1)
        try:
            out[known] = self._call(columns, known)
        except InvalidInput:
            complete = counts == 0
            out[complete] = self._call(columns, complete)
            for row in np.flatnonzero(known & ~complete):  # one at a time: it may take some of them
                with contextlib.suppress(InvalidInput):
                    out[row] = self._call(columns, np.arange(n) == row)[0]
        return out

    def _call(self, columns: dict[str, list[Any]], rows: Array) -> Array:
        """The transformer on some of the rows."""
        picked = {name: [column[i] for i in np.flatnonzero(rows)] for name, column in columns.items()}
        n, m = int(rows.sum()), len(self._means.now)
        if not n:
            return np.zeros((0, m))
        try:
            out = np.asarray(_dense(self.transformer.transform(self._given(picked))), float)
        except InvalidInput:
            raise
        except Exception as error:  # see _outputs
            raise InvalidInput("metadata", picked, f"what the transformer takes ({_line(error)})") from error
        if out.shape != (n, m):
            raise InvalidInput("transformer", f"<it gave an array of shape {out.shape}>", f"shape {(n, m)}")
        if (np.abs(out) > LIMIT).any():
            raise InvalidInput("metadata", picked, "what the transformer turns into finite numbers")
        return out

    def _given(self, columns: dict[str, list[Any]]) -> Any:
        if not self._as_frame:
            return np.column_stack(
                [numbers_of(f"metadata[{name!r}]", column) for name, column in columns.items()]
            )
        try:
            import pandas
        except ImportError:
            raise MissingExtra("transformers of data frames", "metadata", "pandas") from None
        return pandas.DataFrame({name: _series(column) for name, column in columns.items()})

    def _mark(self) -> Any:
        return self._means.mark()

    def _rollback(self, mark: Any) -> None:
        self._means.rollback(mark)

    # -- saving ----------------------------------------------------------------------------------------------

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "Transformed",
            "names": list(self.names),
            "columns": list(self.columns),
            "groups": list(self.groups),
            "means": self._means.spec(),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Transformed:
        given = "<features of a transformer, which is not saved>"
        raise InvalidInput("metadata", given, "metadata= with the same fitted transformer, when loading")

    def _check_settings(self, spec: dict[str, Any]) -> None:
        super()._check_settings(spec)
        if spec["columns"] != self.columns or spec["names"] != self.names:
            raise InvalidInput(
                "metadata", f"<a transformer to {self.columns}>", f"the one to {spec['columns']}"
            )

    def resume(self, spec: dict[str, Any]) -> None:
        self.groups = list(spec["groups"])
        self._means.restore(spec["means"])


def _kind_of(transformer: Any) -> str:
    """Its kind: the text of one may run over many lines."""
    return f"<{type(transformer).__name__}>"


def _line(error: Exception) -> str:
    """The message of someone else's error, on one line."""
    return " ".join(str(error).split())


def _dense(given: Any) -> Any:
    return given.toarray() if hasattr(given, "toarray") else given


def _listed(values: Values) -> list[Any]:
    if isinstance(values, Encoded):
        return [values.texts[code] if code >= 0 else None for code in values.codes]
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _series(column: list[Any]) -> Array:
    """Numbers as floats with NaN, anything else as objects with None: what transformers expect."""
    present = [value for value in column if not is_missing(value)]
    if present and all(
        isinstance(value, (int, float, np.number)) and not isinstance(value, bool) for value in present
    ):
        return np.array([math.nan if is_missing(value) else float(value) for value in column])
    return np.array([None if is_missing(value) else value for value in column], object)


def _group(output: str, inputs: list[str]) -> str:
    """The input it is named after ("cat__country_NO": country), else without digits ("pca0": pca)."""
    name = output.split("__", 1)[-1]
    named = [one for one in inputs if name == one or name.startswith(one + "_")]
    return max(named, key=len) if named else name.rstrip("0123456789") or name
