"""The contract of features, as one suite to run over every kind, including one's own."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.base import Features, from_spec

Array = np.ndarray[Any, Any]


def check_features(
    features: Features, metadata_examples: Sequence[Any], arms: Sequence[str] = ("a", "b", "c")
) -> None:
    """Raise AssertionError where the features break the contract; the object given is left as it was.

    features : a fresh object; metadata_examples : a few records that it accepts, with missing values and, if
    it takes them, categories among them.

    >>> from metabandit import features
    >>> from metabandit.checks.features import check_features
    >>> made = features.Columns({"age": "number", "country": "category"})
    >>> check_features(made, [{"age": 3}, {"country": "NO"}, None])
    """
    fresh, records = copy.deepcopy(features).bind(list(arms)), list(metadata_examples)
    check_shapes(copy.deepcopy(fresh), records, list(arms))
    check_batches(copy.deepcopy(fresh), records)
    check_missing(copy.deepcopy(fresh), records)
    check_refusals(copy.deepcopy(fresh), records)
    check_specs(fresh, records)
    check_extra_variance(copy.deepcopy(fresh), records)


def check_shapes(features: Features, records: list[Any], arms: list[str]) -> None:
    """Rows are as wide as there are columns; every column has a group, every coefficient its own name."""
    for given in (records, []):
        rows = features.rows(given)
        p, d = len(features.columns), features.n_features(len(arms))
        expected = (len(given), p) if features.layout == "by_arm" else (len(given), len(arms), p)
        assert rows.shape == expected, f"rows of shape {rows.shape}, not {expected}"
        assert rows.dtype == np.float64, f"rows of type {rows.dtype}"
        assert np.isfinite(rows).all(), "rows that are not finite"
    assert d == (p * len(arms) if features.layout == "by_arm" else p), f"d = {d} with {p} columns"
    assert len(features.groups) == p, f"{len(features.groups)} groups for {p} columns"
    assert len(set(features.columns)) == p, "two columns of one name"
    names = features.coefficient_names(arms)
    assert len(set(names)) == d, f"{len(set(names))} different names for {d} coefficients"
    assert len(features.coefficient_groups(arms)) == d, "a group for every coefficient"


def check_batches(features: Features, records: list[Any]) -> None:
    """Many at once = one at a time; new columns come at the end and change none before them."""
    single = copy.deepcopy(features)
    batch = features.rows(records)
    for row, record in zip(batch, records, strict=True):
        before = list(single.columns)
        alone = single.rows([record])[0]
        assert single.columns[: len(before)] == before, "columns that moved"
        width = alone.shape[-1]
        message = "a record alone does not give what it gives in a batch"  # up to the rounding of a product
        np.testing.assert_allclose(row[..., :width], alone, rtol=1e-9, atol=1e-12, err_msg=message)
        assert not row[..., width:].any(), "columns that came later are zero for earlier records"
    assert single.columns == features.columns, (
        f"{single.columns} one at a time, {features.columns} in a batch"
    )
    assert single.groups == features.groups


def check_missing(features: Features, records: list[Any]) -> None:
    """No metadata is not an error, neither at first nor later, and teaches nothing."""
    assert np.isfinite(features.rows([None])).all()
    features.rows(records)
    before = _memory(features)
    features.rows([None, None])
    assert _memory(features) == before, "no metadata has changed what is known"


def check_refusals(features: Features, records: list[Any]) -> None:
    """A batch with one bad record changes nothing, and goes through without it."""
    features.rows(records[:1])
    before, columns = _memory(features), list(features.columns)
    if features.names:
        for bad in (object(), "text", {object(): 1}):
            for read in (features.rows, features.check):
                try:
                    read([*records, bad])
                except InvalidInput:
                    pass
                else:
                    raise AssertionError(f"{bad!r} was accepted as metadata")
                assert _memory(features) == before, "a refused batch has left a trace"
                assert features.columns == columns, "a refused batch has left columns"
    for given in (records, records[:1]):
        features.check(given)
    assert (_memory(features), features.columns) == (before, columns), "a check has left a trace"
    features.rows(records)


def check_specs(features: Features, records: list[Any]) -> None:
    """What comes back from plain data goes on bit for bit."""
    used = copy.deepcopy(features)
    used.rows(records)
    spec = json.loads(json.dumps(used.spec(), allow_nan=False))
    try:
        again = from_spec(spec)
    except InvalidInput as error:  # holds what plain data cannot: it must say so, and go on when it is given
        if "metadata" not in str(error):
            raise
        again = from_spec(spec, copy.deepcopy(features))
    assert again.spec() == used.spec()
    assert (again.columns, again.groups, again.layout) == (used.columns, used.groups, used.layout)
    np.testing.assert_array_equal(again.rows([*records, None]), used.rows([*records, None]))
    assert again.columns == used.columns


def check_extra_variance(features: Features, records: list[Any]) -> None:
    """What is left out is a variance for each record; asking teaches nothing."""
    features.rows(records)
    before = _memory(features)
    left = features.extra_variance(records)
    assert left.shape == (len(records),), f"shape {left.shape}"
    assert (left >= 0).all(), "a negative variance"
    assert _memory(features) == before, "asking for the extra variance has changed what is known"


def _memory(features: Features) -> str:
    return json.dumps(features.spec())
