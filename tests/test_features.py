"""Features: what becomes of metadata, of what is missing, and of what must be refused."""

from __future__ import annotations

import copy
import json
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from metabandit import features
from metabandit.checks.features import check_features
from metabandit.errors import InvalidInput, MissingExtra
from metabandit.features.reading import is_missing

KINDS = {"age": "number", "country": "category", "plan": ["free", "paid"]}
NAN = float("nan")
FRAME = pd.DataFrame(
    {"age": [20.0, 30.0, 45.0, 60.0, 61.0], "country": list("ABAAC"), "visits": [1, 2, 3, 4, 9.0]}
)


def mixed() -> ColumnTransformer:
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    parts = [("num", StandardScaler(), ["age", "visits"]), ("cat", encoder, ["country"])]
    return ColumnTransformer(parts).fit(FRAME)


MAKERS: dict[str, Callable[[], features.Features]] = {
    "intercepts": features.Intercepts,
    "columns": lambda: features.Columns(KINDS),
    "columns without intercept": lambda: features.Columns(KINDS, intercept=False),
    "formula": lambda: features.Formula("age + C(country)"),
    "interactions": lambda: features.Formula("age*country + C(plan):country + np.log1p(age**2):C(plan)"),
    "formula with sample": lambda: features.Formula("scale(age)*country + bs(age, df=4)", sample=FRAME),
    "transformed": lambda: features.Transformed(mixed()),
    "stacked": lambda: features.Stacked(
        [KINDS, features.Formula("plan:C(city)"), features.Columns(["visits"])]
    ),
}
NUMBER = st.one_of(st.none(), st.just(NAN), st.floats(-1e6, 1e6), st.integers(-100, 100))
RECORD = st.fixed_dictionaries(
    {},
    optional={
        "age": NUMBER,
        "country": st.sampled_from(["A", "B", "C", "D", None]),
        "plan": st.sampled_from(["free", "paid", "trial", None]),
        "city": st.sampled_from([1, 2, 3, None]),
        "visits": NUMBER,
    },
)
ANY_ORDER = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(params=MAKERS, scope="module")
def made(request: pytest.FixtureRequest) -> features.Features:
    return MAKERS[request.param]()


def usable(made: features.Features, records: list[Any]) -> list[Any]:
    """The records without those that have keys but none that is known: these are refused on purpose."""
    return [r for r in records if not r or not made.names or set(r) & set(made.names)]


# -- the contract, on anything -----------------------------------------------------------------------------


@ANY_ORDER
@given(records=st.lists(st.one_of(st.none(), RECORD), min_size=1, max_size=8))
def test_contract(made: features.Features, records: list[Any]) -> None:
    check_features(made, usable(made, records))


@ANY_ORDER
@given(records=st.lists(RECORD, min_size=1, max_size=8))
def test_frames_give_the_numbers_of_records(made: features.Features, records: list[Any]) -> None:
    names = ["age", "country", "plan", "city", "visits"]
    table = {name: [record.get(name) for record in records] for name in names}
    alike = [{name: record.get(name) for name in names} for record in records]
    by_record = copy.deepcopy(made)
    expected = by_record.rows(alike)
    for frame in (pd.DataFrame(table), pl.DataFrame(table, strict=False)):
        by_frame = copy.deepcopy(made)
        np.testing.assert_array_equal(by_frame.rows_from_frame(frame), expected)
        assert by_frame.columns == by_record.columns
        assert by_frame.spec() == by_record.spec()


@ANY_ORDER
@given(rows=st.lists(st.lists(NUMBER, min_size=2, max_size=2), min_size=1, max_size=8))
def test_contract_of_arrays(rows: list[Any]) -> None:
    records = [np.array([NAN if x is None else x for x in row], float) for row in rows]
    check_features(features.Arrays(2), [*records, None, rows[0]])
    check_features(features.Arrays(["u", "v"], intercept=False), [*records, {"u": 1.0}])
    by_record, by_array = features.Arrays(2), features.Arrays(2)
    expected = by_record.rows(records)
    np.testing.assert_array_equal(by_array.rows_from_frame(np.array(records)), expected)
    assert by_array.spec() == by_record.spec()
    named = pl.DataFrame({"first": [r[0] for r in records], "second": [r[1] for r in records]})
    np.testing.assert_array_equal(features.Arrays(2).rows_from_frame(named), expected)


@ANY_ORDER
@given(rows=st.lists(st.lists(NUMBER, min_size=6, max_size=6), min_size=1, max_size=6))
def test_contract_of_given_per_arm(rows: list[Any]) -> None:
    blocks = [np.array([NAN if x is None else x for x in row], float).reshape(3, 2) for row in rows]
    by_arm = {"a": rows[0][:2], "c": {"v": 2.0}}
    for intercepts in (True, False):
        check_features(features.PerArm(["u", "v"], intercepts=intercepts), [*blocks, None, by_arm])
    arms = ["a", "b", "c"]
    by_record, by_array = features.PerArm(["u", "v"]).bind(arms), features.PerArm(["u", "v"]).bind(arms)
    expected = by_record.rows(blocks)
    np.testing.assert_array_equal(by_array.rows_from_frame(np.array(blocks)), expected)
    frame = pd.DataFrame(np.array(blocks).reshape(-1, 6), columns=[f"{n}:{a}" for a in arms for n in "uv"])
    np.testing.assert_array_equal(features.PerArm(["u", "v"]).bind(arms).rows_from_frame(frame), expected)
    assert by_array.spec() == by_record.spec()


def test_a_planted_bug_is_found() -> None:
    class Reordering(features.Columns):
        def _rows(self, table: Any) -> Any:
            out = super()._rows(table)
            self.columns.sort()
            return out

    with pytest.raises(AssertionError):
        check_features(Reordering(KINDS), [{"age": 1, "country": "A"}, {"country": "B"}])
    features.Features.kinds.pop("Reordering")


# -- plain columns -----------------------------------------------------------------------------------------


def test_columns_by_hand() -> None:
    made = features.Columns(KINDS)
    rows = made.rows([{"age": 30, "country": "NO", "plan": "paid"}, {"age": 50.0, "country": "SE"}, None])
    assert made.columns == ["intercept", "age", "plan[free]", "plan[paid]", "country[NO]", "country[SE]"]
    assert made.groups == ["intercept", "age", "plan", "plan", "country", "country"]
    assert rows.tolist() == [[1, 30, 0, 1, 1, 0], [1, 50, 0, 0, 0, 1], [1, 40, 0, 0, 0, 0]]


def test_coefficients_are_named_arm_by_arm() -> None:
    made = features.Columns(["age"])
    assert made.n_features(2) == 4
    assert made.coefficient_names(["a", "b"]) == ["intercept:a", "age:a", "intercept:b", "age:b"]
    assert made.coefficient_groups(["a", "b"]) == ["intercept", "age", "intercept", "age"]


@pytest.mark.parametrize("missing", [{}, {"age": None}, {"age": NAN}, {"age": pd.NA}, {"age": np.nan}, None])
def test_a_missing_number_is_the_mean_so_far(missing: Any) -> None:
    made = features.Columns(["age"])
    assert made.rows([missing]).tolist() == [[1, 0]]
    assert made.rows([{"age": 10}, missing, {"age": 30}, missing])[:, 1].tolist() == [10, 10, 30, 20]
    assert made.rows([missing])[0, 1] == 20


@pytest.mark.parametrize("missing", [{}, {"country": None}, {"country": NAN}, {"country": pd.NA}, None])
def test_a_missing_category_is_the_average_level(missing: Any) -> None:
    made = features.Columns({"country": "category"})
    assert made.rows([{"country": "NO"}, missing, {"country": "SE"}]).tolist() == [
        [1, 1, 0],
        [1, 0, 0],
        [1, 0, 1],
    ]


def test_an_unlisted_level_is_the_average_level() -> None:
    made = features.Columns({"plan": ["free", "paid"]})
    assert made.rows([{"plan": "trial"}, {"plan": "paid"}]).tolist() == [[1, 0, 0], [1, 0, 1]]


def test_levels_are_known_by_their_text() -> None:
    made = features.Columns({"size": "category"})
    made.rows([{"size": s} for s in (3, 3.0, "3", np.int64(3), True, np.bool_(True), "True", 2.5)])
    assert made.columns == ["intercept", "size[3]", "size[True]", "size[2.5]"]


def test_more_levels_than_allowed_count_as_the_average() -> None:
    made = features.Columns({"user": "category"}, max_levels=2)
    with pytest.warns(UserWarning, match="max_levels = 2"):
        rows = made.rows([{"user": "a"}, {"user": "b"}, {"user": "c"}])
    assert rows.tolist() == [[1, 1, 0], [1, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    "value", [3, 3.0, True, np.float32(3), np.int8(3), np.array(3.0), pd.Series([3.0])[0]]
)
def test_anything_that_is_a_number_is_one(value: Any) -> None:
    assert features.Columns(["age"]).rows([{"age": value}])[0, 1] == float(value)


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"age": "old"}, "age"),
        ({"age": float("inf")}, "age"),
        ({"age": -float("inf")}, "age"),
        ({"age": 1e200}, "age"),
        ({"age": 10**400}, "age"),
        ({"age": 1j}, "age"),
        ({"age": [1]}, "age"),
        ({"country": [1]}, "country"),
        ({"country": float("inf")}, "country"),
        ({"agee": 3, "plan": "free"}, "'age'"),
        ({"Country": "NO", "plan": "free"}, "'country'"),
        ({"aeg": 3, "plan": "free"}, "'age'"),
        ({"user_age": 3, "plan": "free"}, "'age'"),
        ({"userCountry": "NO", "plan": "free"}, "'country'"),
        ({"colour": "red"}, "columns 'age'"),
        ([1.0, 2.0], "3 values"),
        (np.array([1.0, 2.0]), "3 values"),
        ("text", "mapping"),
        (3, "mapping"),
    ],
)
def test_refused_records_change_nothing(record: Any, word: str) -> None:
    for made in (features.Columns(KINDS), features.Formula("age + country + plan")):
        made.rows([{"age": 30, "country": "NO", "plan": "paid"}])
        before = made.spec()
        for records in ([record], [{"age": 3, "country": "DK"}, record]):
            with pytest.raises(InvalidInput, match=word):
                made.rows(records)
            assert made.spec() == before
        assert made.columns == before["learned"]["columns"]


def test_other_keys_are_ignored_when_nothing_is_amiss() -> None:
    made = features.Columns(["age", "visits"])
    made.rows([{"age": 3, "visits": 1, "agee": 4, "signup": "2020-01-01"}])
    made.rows([{"age": 3, "colour": "red"}])
    made.rows([{"age": None, "agee": 4}])
    made.rows([{"visits": 1, "language": "no", "percentage": 3, "ega": 1}])


@pytest.mark.parametrize(
    "frame", [pd.DataFrame({"agee": [1.0]}), pl.DataFrame({"x": [1]}), "text", np.zeros(3)]
)
def test_refused_frames(frame: Any) -> None:
    with pytest.raises(InvalidInput):
        features.Columns(["age"]).rows_from_frame(frame)


def test_frames_of_many_types() -> None:
    frame = {
        "a": pd.array([1, None, 3], "Int64"),
        "b": [True, False, True],
        "c": pd.Categorical(["u", None, "v"]),
    }
    made = features.Columns({"a": "number", "b": "number", "c": "category"})
    expected = [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 3, 1, 0, 1]]
    assert made.rows_from_frame(pd.DataFrame(frame)).tolist() == expected
    polars = pl.DataFrame(
        {"a": [1, None, 3], "b": [True, False, True], "c": pl.Series(["u", None, "v"], dtype=pl.Categorical)}
    )
    for frame in (polars, polars.lazy(), polars.with_columns(pl.col("c").cast(pl.String))):
        assert (
            features.Columns({"a": "number", "b": "number", "c": "category"}).rows_from_frame(frame).tolist()
            == expected
        )
    with pytest.raises(InvalidInput, match="'c'"):
        features.Columns(["a", "c"]).rows_from_frame(polars)


@pytest.mark.parametrize(
    "columns",
    [
        [],
        ["a", "a"],
        [""],
        [3],
        "age",
        None,
        {"a": "numeric"},
        {"a": []},
        {"a": float},
        {"a": 3},
        {"a": None},
        {"a": {"x", "y"}},
        {"a": {"x": 1}},
        {"a": b"xy"},
        {"a": np.array(1.0)},
        {"a": ["x", ["y", "z"]]},
        {"a": "number", "b": str},
        {"a": ["x", "x"]},
        ["intercept"],
        3,
    ],
)
def test_refused_columns(columns: Any) -> None:
    with pytest.raises(InvalidInput):
        features.Columns(columns)


def test_a_refused_kind_of_column_is_told_what_is_accepted() -> None:
    with pytest.raises(InvalidInput, match=r"'age'.*float.*\"number\", \"category\" or a list of levels"):
        features.make({"age": float}, ["a", "b"])


# -- arrays and arms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x", [np.zeros(3), np.zeros((1, 2)), np.array([1.0, np.inf]), np.array([1e200, -1e200]), ["a", 1], "ab"]
)
def test_refused_arrays(x: Any) -> None:
    made = features.Arrays(2)
    made.rows([np.ones(2)])
    before = made.spec()
    for records in ([x], [np.ones(2), x]):
        with pytest.raises(InvalidInput):
            made.rows(records)
        assert made.spec() == before


def test_per_arm_by_hand_and_with_a_new_arm() -> None:
    made = features.PerArm(["price"]).bind(["a", "b"])
    assert made.rows([np.array([[2.0], [4.0]])]).tolist() == [[[1, 0, 2], [0, 1, 4]]]
    assert made.rows([{"b": [6.0]}]).tolist() == [[[1, 0, 3], [0, 1, 6]]]
    assert made.groups == ["intercept", "intercept", "shared"]
    assert made.add_arms(["c"]) == 1
    assert made.columns == ["a", "b", "price", "c"]
    assert made.rows_of_arms(["c"], [{"c": [9.0]}, None]).tolist() == [[[0, 0, 9, 1]], [[0, 0, 5.25, 1]]]
    assert made.rows([np.ones((3, 1))])[0].tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    again = features.from_spec(json.loads(json.dumps(made.spec())))
    assert again.rows([None]).tolist() == made.rows([None]).tolist()


@pytest.mark.parametrize(
    "record",
    [
        np.zeros((2, 2)),
        np.array([[1.0], [np.inf]]),
        {"x": [1.0]},
        {"a": [1.0, 2.0]},
        {"a": "text"},
        {"a": {"prize": 1}},
        3,
    ],
)
def test_refused_records_per_arm(record: Any) -> None:
    made = features.PerArm(["price"]).bind(["a", "b"])
    made.rows([np.ones((2, 1))])
    before = made.spec()
    with pytest.raises(InvalidInput):
        made.rows([np.zeros((2, 1)), record])
    assert made.spec() == before


def test_per_arm_needs_its_arms() -> None:
    with pytest.raises(InvalidInput, match="bind"):
        features.PerArm(1).rows([None])
    made = features.PerArm(1).bind(["a", "b"])
    with pytest.raises(InvalidInput, match="in use"):
        made.bind(["c"])
    with pytest.raises(InvalidInput):
        features.PerArm(["a"]).bind(["a", "b"])


# -- make --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (None, features.Intercepts),
        ("age", features.Formula),
        (["age"], features.Columns),
        (KINDS, features.Columns),
        (mixed(), features.Transformed),
        (features.Arrays(2), features.Arrays),
    ],
)
def test_make(metadata: Any, kind: type) -> None:
    assert type(features.make(metadata, ["a", "b"])) is kind


@pytest.mark.parametrize("metadata", [3, object(), StandardScaler, 1.5])
def test_make_refuses(metadata: Any) -> None:
    with pytest.raises(InvalidInput, match="a formula such as"):
        features.make(metadata, ["a"])


def test_features_pass_through_and_learn_the_arms() -> None:
    made = features.PerArm(1)
    assert features.make(made, ["a", "b"]) is made
    assert made.columns == ["a", "b", "z0"]


def test_specs_that_are_not_ours() -> None:
    for spec in ({}, {"kind": "Nothing"}, None):
        with pytest.raises(InvalidInput):
            features.from_spec(spec)
    with pytest.raises(InvalidInput, match="that were saved"):
        features.from_spec(features.Columns(["a"]).spec(), features.Arrays(2))


def test_missing_values_of_data_frames() -> None:
    assert all(map(is_missing, [Decimal("NaN"), Decimal("sNaN"), Decimal("-sNaN12")]))
    assert all(map(is_missing, [None, NAN, np.float32("nan"), pd.NA, pd.NaT, math.nan]))
    assert not any(map(is_missing, [0, "", False, "nan", 1.5, [None]]))


# -- transformers ------------------------------------------------------------------------------------------


def test_a_transformer_gives_what_it_gives() -> None:
    fitted = mixed()
    made = features.Transformed(fitted)
    np.testing.assert_allclose(made.rows_from_frame(FRAME)[:, 1:], fitted.transform(FRAME))
    assert made.columns[:3] == ["intercept", "num__age", "num__visits"]
    assert made.groups == ["intercept", "age", "visits", "country", "country", "country"]
    with pytest.raises(InvalidInput, match="metadata="):
        features.from_spec(made.spec())
    other = features.Transformed(StandardScaler().fit(FRAME[["age"]]))
    with pytest.raises(InvalidInput, match="transformer to"):
        features.from_spec(made.spec(), other)


def test_a_transformer_that_takes_no_missing_values() -> None:
    fitted = PCA(2).fit(FRAME[["age", "visits"]].to_numpy())
    made = features.Transformed(fitted, inputs=["age", "visits"])
    rows = made.rows([{"age": 30, "visits": 2}, {"age": 50, "visits": 4}, {"age": 40}, None])
    np.testing.assert_allclose(rows[2:, 1:], np.tile(rows[:2, 1:].mean(axis=0), (2, 1)))
    assert made.groups == ["intercept", "pca", "pca"]


def test_a_transformer_with_its_own_way_with_missing_values() -> None:
    fitted = make_pipeline(
        SimpleImputer(strategy="constant", fill_value=7.0), StandardScaler(with_mean=False)
    )
    fitted.fit(np.array([[1.0], [3.0]]))
    made = features.Transformed(fitted, inputs=["age"])
    assert made.rows([{"age": 2.0}, {"age": None, "other": 1}])[:, 1].tolist() == [
        2.0,
        2.0,
    ]  # no metadata at all
    two = features.Transformed(
        SimpleImputer(strategy="constant", fill_value=7.0).fit(np.ones((2, 2))), ["a", "b"]
    )
    assert two.rows([{"a": 1.0, "b": None}]).tolist() == [[1, 1, 7]]


@pytest.mark.parametrize("record", [{"age": "x", "visits": 1}, {"age": float("inf"), "visits": 1}])
def test_what_a_transformer_refuses(record: Any) -> None:
    made = features.Transformed(StandardScaler().fit(FRAME[["age", "visits"]]))
    with pytest.raises(InvalidInput):
        made.rows([record])


class Unfitted:
    """A transformer that says so over two lines, and shows itself over two."""

    def transform(self, x: Any) -> Any:
        raise RuntimeError("not fitted:\ncall fit")

    def __repr__(self) -> str:
        return "Unfitted(\n)"


class Flat:
    """A transformer that gives a vector."""

    def transform(self, x: Any) -> Any:
        return np.zeros(len(x))


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        (StandardScaler(), None),
        (StandardScaler(), ["a"]),
        (make_pipeline(StandardScaler(), PCA(2)), None),
        (make_pipeline(StandardScaler(), PCA(2)), ["a", "b"]),
        (Unfitted(), None),
        (Unfitted(), ["a"]),
        (Flat(), ["a"]),
        (StandardScaler, None),
        (3, None),
    ],
)
def test_transformers_that_are_not_fitted(given: Any, inputs: Any) -> None:
    with pytest.raises(InvalidInput, match="transform") as refused:
        features.Transformed(given, inputs)
    assert "\n" not in str(refused.value)


def test_the_empty_text_is_a_level_and_not_a_missing_value() -> None:
    made = features.Columns({"country": "category"})
    made.rows([{"country": ""}, {"country": "NO"}])
    assert made.rows([{"country": NAN}]).tolist() == [[1, 0, 0]]
    assert made.rows([{"country": ""}]).tolist() == [[1, 1, 0]]


def test_the_way_of_one_record_refuses_what_the_way_of_many_refuses() -> None:
    made = features.Formula("size + age:size", sample=[{"size": "L", "age": 3}, {"size": "M", "age": 4}])
    for value in (3, 2.5, [1], np.zeros(2)):
        for records in ([{"size": value}], [{"size": "L"}, {"size": value}]):
            with pytest.raises(InvalidInput):
                made.rows(records)
    for age in ("x", [1], np.zeros(2), 1j):
        for records in ([{"age": age}], [{"size": "L"}, {"age": age}]):
            with pytest.raises(InvalidInput):
                made.rows(records)


ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=10**200, max_value=10**201),
        st.just(10**4000),
        st.floats(),
        st.complex_numbers(),
        st.text(max_size=5),
        st.binary(max_size=3),
        st.dates(),
        st.decimals(),
        st.fractions(),
        st.sampled_from(
            [
                Decimal("sNaN"),
                Fraction(10**400),
                pd.NA,
                pd.NaT,
                np.float32(2),
                np.datetime64("2020-01-01"),
                np.array(1.5),
                np.zeros(2),
                object(),
            ]
        ),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEY = st.sampled_from(["age", "country", "plan", "visits", "city", "a", "b"])
WILD: dict[str, Callable[[], features.Features]] = MAKERS | {
    "arrays": lambda: features.Arrays(2),
    "per arm": lambda: features.PerArm(["age", "visits"]).bind(["a", "b"]),
}


@pytest.mark.parametrize("name", WILD)
@settings(max_examples=150, deadline=None)
@given(records=st.lists(st.one_of(ANYTHING, st.dictionaries(KEY, ANYTHING, max_size=3)), max_size=3))
def test_whatever_comes_is_a_row_or_refused_without_a_trace(name: str, records: list[Any]) -> None:
    made = WILD[name]()
    made.rows([None])
    before = made.spec()
    try:
        rows = made.rows(records)
    except InvalidInput:
        assert made.spec() == before
    else:
        assert np.isfinite(rows).all()
        assert rows.shape[-1] == len(made.columns)
        json.dumps(made.spec(), allow_nan=False, ensure_ascii=False).encode()


def test_formulas_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "formulaic", None)
    with pytest.raises(MissingExtra, match=r"metabandit\[metadata\]"):
        features.Formula("age")


@pytest.mark.parametrize(
    "spec", [{"kind": "Columns"}, {"kind": "Arrays", "names": 3}, {"kind": "PerArm", "names": []}]
)
def test_damaged_specs(spec: Any) -> None:
    with pytest.raises(InvalidInput):
        features.from_spec(spec)
