"""Features: what becomes of metadata, of what is missing, and of what must be refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from metabandit import features
from metabandit.errors import InvalidInput

KINDS = {"age": "number", "country": "category", "plan": ["free", "paid"]}


def test_columns_by_hand() -> None:
    made = features.Columns(KINDS)
    rows = made.rows([{"age": 30, "country": "NO", "plan": "paid"}, {"age": 50.0, "country": "SE", "plan": None}, None])
    assert made.columns == ["intercept", "age", "plan[free]", "plan[paid]", "country[NO]", "country[SE]"]
    assert made.groups == ["intercept", "age", "plan", "plan", "country", "country"]
    assert rows.tolist() == [[1, 30, 0, 1, 1, 0], [1, 50, 0, 0, 0, 1], [1, 40, 0, 0, 0, 0]]


def test_coefficients_are_named_arm_by_arm() -> None:
    made = features.Columns(["age"])
    assert made.n_features(2) == 4
    assert made.coefficient_names(["a", "b"]) == ["intercept:a", "age:a", "intercept:b", "age:b"]
    assert made.coefficient_groups(["a", "b"]) == ["intercept", "age", "intercept", "age"]


@pytest.mark.parametrize("missing", [{}, {"age": None}, {"age": float("nan")}, None])
def test_a_missing_number_is_the_mean_so_far(missing: Any) -> None:
    made = features.Columns(["age"])
    assert made.rows([missing]).tolist() == [[1, 0]]
    assert made.rows([{"age": 10}, missing, {"age": 30}, missing])[:, 1].tolist() == [10, 10, 30, 20]
    assert made.rows([missing])[0, 1] == 20


def test_per_arm_by_hand_and_with_a_new_arm() -> None:
    made = features.PerArm(["price"]).bind(["a", "b"])
    assert made.rows([np.array([[2.0], [4.0]])]).tolist() == [[[1, 0, 2], [0, 1, 4]]]
    assert made.rows([{"b": [6.0]}]).tolist() == [[[1, 0, 3], [0, 1, 6]]]
    assert made.add_arms(["c"]) == 1
    assert made.columns == ["a", "b", "price", "c"]
    assert made.rows_of_arms(["c"], [{"c": [9.0]}, None]).tolist() == [[[0, 0, 9, 1]], [[0, 0, 5.25, 1]]]
    assert made.rows([np.ones((3, 1))])[0].tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    "made",
    [
        features.Intercepts(),
        features.Columns(KINDS),
        features.Arrays(2),
        features.Arrays(["a", "b"], intercept=False),
        features.PerArm(2).bind(["a", "b"]),
    ],
    ids=lambda made: type(made).__name__,
)
def test_a_spec_is_plain_data(made: features.Features) -> None:
    again = features.from_spec(json.loads(json.dumps(made.spec())))
    assert again.spec() == made.spec()
    assert again.columns == made.columns


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"age": "old"}, "age"),
        ({"age": float("inf")}, "age"),
        ({"age": 1e200}, "age"),
        ({"country": [1]}, "country"),
        ({"agee": 3, "plan": "free"}, "'age'"),
        ({"colour": "red"}, "columns 'age'"),
        ([1.0, 2.0], "3 values"),
        ("text", "mapping"),
    ],
)
def test_refused_records_change_nothing(record: Any, word: str) -> None:
    made = features.Columns(KINDS)
    made.rows([{"age": 30, "country": "NO", "plan": "paid"}])
    before = made.spec()
    for records in ([record], [{"age": 3, "country": "DK"}, record]):
        with pytest.raises(InvalidInput, match=word):
            made.rows(records)
        assert made.spec() == before
