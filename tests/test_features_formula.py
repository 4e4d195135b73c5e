"""Formulas: against formulaic's own model matrix, and as a language that refuses code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from formulaic import ModelSpec

import metabandit as mb
from metabandit import features
from metabandit.errors import InvalidInput

RNG = np.random.default_rng(5)
SAMPLE = pd.DataFrame(
    {
        "age": RNG.normal(40, 10, 60).round(1),
        "visits": RNG.integers(1, 20, 60).astype(float),
        "my col": RNG.uniform(1, 2, 60),
        "country": RNG.choice(["NO", "SE", "DK"], 60),
        "plan": RNG.choice(["free", "paid"], 60),
    }
)
STATELESS = [
    "age",
    "age + visits",
    "0 + age",
    "age - 1",
    "age*visits",
    "(age + visits)**2",
    "np.log(visits) + I(age**2) + {age*2}",
    "log(visits):age + np.sqrt(age/visits) + exp(-age/10)",
    "`my col` + np.log(`my col`):age",
    "C(country)",
    "age*C(country) + visits:C(plan)",
    "C(country):C(plan) + {1/visits}",
    "country + plan + age:country:plan",
]
STATEFUL = [
    "center(age) + scale(visits)",
    "bs(age, df=5)",
    "bs(age, df=4, degree=2):C(country)",
    "poly(age, 3):poly(visits, 2)",
    "cr(age, df=4) + cc(visits, df=3)",
    "scale(np.log(visits))*C(plan) + standardize(age)",
]


def same_columns(made: features.Formula, rows: Any, matrix: pd.DataFrame) -> None:
    """Every column of formulaic's is one of ours, and there are no others."""
    ours = {name: rows[:, j] for j, name in enumerate(made.columns)}
    assert len(ours) == matrix.shape[1]
    for name in matrix.columns:
        same = (
            "intercept"
            if name == "Intercept"
            else name.replace("C(country)", "country").replace("C(plan)", "plan")
        )
        np.testing.assert_allclose(ours[same], matrix[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("formula", STATELESS + STATEFUL)
def test_with_a_sample_it_is_formulaic(formula: str) -> None:
    spec = ModelSpec.from_spec(formula, ensure_full_rank=False).get_model_matrix(SAMPLE).model_spec
    made = features.Formula(formula, sample=SAMPLE)
    same_columns(made, made.rows_from_frame(SAMPLE), spec.get_model_matrix(SAMPLE))
    few = SAMPLE.iloc[[7, 3, 11]]
    same_columns(made, made.rows_from_frame(few), spec.get_model_matrix(few))
    np.testing.assert_array_equal(made.rows(few.to_dict("records")), made.rows_from_frame(few))


@pytest.mark.parametrize("formula", STATELESS)
def test_without_a_sample_it_ends_where_formulaic_is(formula: str) -> None:
    made = features.Formula(formula)
    made.rows([None])
    rows = made.rows(SAMPLE.to_dict("records"))
    same_columns(made, rows, ModelSpec.from_spec(formula, ensure_full_rank=False).get_model_matrix(SAMPLE))


@pytest.mark.parametrize("formula", STATELESS + STATEFUL)
def test_saved_with_a_sample(formula: str) -> None:
    made = features.Formula(formula, sample=SAMPLE)
    again = features.from_spec(json.loads(json.dumps(made.spec(), allow_nan=False)))
    records = [{"age": 33, "country": "NO", "plan": "paid", "visits": 3, "my col": 1.5}, None]
    np.testing.assert_array_equal(again.rows(records), made.rows(records))
    assert again.columns == made.columns


def test_from_the_first_decision() -> None:
    made = features.Formula("age + C(country)")
    assert made.rows([{"age": 31, "country": "NO"}]).tolist() == [[1, 31, 1]]
    assert made.columns == ["intercept", "age", "country[NO]"]
    assert made.groups == ["intercept", "age", "country"]


def test_no_metadata_at_first() -> None:
    made = features.Formula("np.log(visits) + age + country")
    assert made.rows([None, {}]).tolist() == [[1, 0], [1, 0]]
    assert made.columns == ["intercept", "np.log(visits)"]  # what age and country are, nobody can know yet
    assert made.rows([{"age": 3, "country": "NO", "visits": 1}]).tolist() == [[1, 0, 3, 1]]


def test_a_missing_value_of_an_expression_is_its_own_mean() -> None:
    made = features.Formula("np.log(visits) + I(visits > 1)")
    rows = made.rows([{"visits": 1}, {"visits": np.e}, None])
    np.testing.assert_allclose(rows[2], [1, 0.5, 0.5])


def test_interactions_grow_as_they_come() -> None:
    made = features.Formula("age:country:plan + country")
    made.rows(
        [
            {"age": 2, "country": "NO", "plan": "a"},
            {"age": 3, "country": "SE"},
            {"age": 5, "country": "SE", "plan": "a"},
        ]
    )
    assert made.columns == [
        "intercept",
        "country[NO]",
        "age:country[NO]:plan[a]",
        "country[SE]",
        "age:country[SE]:plan[a]",
    ]


def test_a_column_that_is_a_number_and_a_category() -> None:
    made = features.Formula("age + C(age)")
    made.rows([{"age": 3}, {"age": 4}])
    assert made.columns == ["intercept", "age", "C(age)[3]", "C(age)[4]"]


def test_text_makes_a_category_for_good() -> None:
    made = features.Formula("size")
    made.rows([{"size": "L"}, {"size": True}])
    with pytest.raises(InvalidInput, match="text or a bool"):
        made.rows([{"size": 3}])
    with pytest.raises(InvalidInput, match="text or a bool"):
        made.rows_from_frame(pl.DataFrame({"size": [3.0]}))
    numeric = features.Formula("size")
    numeric.rows([{"size": 3}])
    with pytest.raises(InvalidInput, match="a number"):
        numeric.rows([{"size": "L"}])


def test_levels_of_a_sample_and_listed_levels_are_all_there_are() -> None:
    made = features.Formula("C(country)", sample=SAMPLE)
    assert made.columns == ["intercept", "country[DK]", "country[NO]", "country[SE]"]
    assert made.rows([{"country": "XX"}, {"country": None}]).tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    listed = features.Formula("C(plan, levels=['paid', 'free'])")
    assert listed.columns == ["intercept", "plan[paid]", "plan[free]"]
    assert listed.rows([{"plan": "free"}, {"plan": "x"}]).tolist() == [[1, 0, 1], [1, 0, 0]]


def test_outside_of_the_sample_is_not_an_error() -> None:
    for formula in STATEFUL:
        assert np.isfinite(features.Formula(formula, sample=SAMPLE).rows([{"age": 500, "visits": 90}])).all()


def test_missing_with_a_sample_is_the_mean_of_the_sample() -> None:
    made = features.Formula("center(age) + age", sample=SAMPLE)
    np.testing.assert_allclose(made.rows([None])[0], [1, 0, SAMPLE["age"].mean()], atol=1e-12)


@pytest.mark.parametrize("sample", [SAMPLE, pl.DataFrame(SAMPLE.to_dict("list")), SAMPLE.to_dict("records")])
def test_samples_of_many_kinds(sample: Any) -> None:
    made = features.Formula("scale(age)*country", sample=sample)
    expected = features.Formula("scale(age)*country", sample=SAMPLE).rows([{"age": 31, "country": "NO"}])
    np.testing.assert_array_equal(made.rows([{"age": 31, "country": "NO"}]), expected)


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"visits": 0.0}, "np.log"),
        ({"visits": -1.0}, "np.log"),
        ({"visits": "x"}, "visits"),
        ({"visitss": 1}, "visits"),
    ],
)
def test_values_that_an_expression_cannot_take(record: Any, word: str) -> None:
    made = features.Formula("np.log(visits)*country")
    made.rows([{"visits": 2.0, "country": "NO"}])
    before = made.spec()
    with pytest.raises(InvalidInput, match=word):
        made.rows([{"visits": 3.0, "country": "SE"}, record])
    assert made.spec() == before


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ age",
        "age +",
        ".",
        "'text'",
        "2:age",
        "0",
        "C(age, contr.sum)",
        "C(age, levels=[])",
        "C(age, levels=f())",
        "lag(age)",
        "a:b:c:d:e:f:g",
        3,
        # code, however it is dressed
        "__import__('os').system('true')",
        "I(__import__('os'))",
        "np.load(age)",
        "np.linalg.norm(age)",
        "np.log.__class__(age)",
        "I(age.__class__)",
        "{age[0]}",
        "{(lambda: 1)()}",
        "{[x for x in age]}",
        "I('text')",
        "np.where(age, x=open)",
        "bs(age, df=open('f'))",
        "{age if age else 1}",
        "eval(age)",
    ],
)
def test_refused_formulas(formula: Any) -> None:
    for sample in (None, SAMPLE.assign(y=1.0)):
        with pytest.raises(InvalidInput):
            features.Formula(formula, sample=sample)


def test_what_needs_a_sample_says_so() -> None:
    with pytest.raises(InvalidInput, match="sample="):
        features.Formula("center(age)")
    with pytest.raises(InvalidInput, match="country"):
        features.Formula("age + country", sample=pd.DataFrame({"age": [1.0], "country": [None]}))
    with pytest.raises(InvalidInput, match="at least one"):
        features.Formula("center(age)", sample=pd.DataFrame({"age": [np.nan]}))


# -- no column before the first record -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        mb.LinearMixedModel(),
        mb.LinearMixedModel(0.5, 2.0, 0.3, 1.0),
        mb.LinearMixedModel(0.0, 1.0, np.array([[1.0, 0.3], [0.3, 1.0]]), 1.0),
        mb.LinearMixedModel(learning="full"),
        mb.BetaLogisticModel(0.5, 2.0, 0.1),
        mb.BetaLogisticModel(sampler="filter"),
        mb.GammaLogModel(),
        mb.GaussianProcessModel(mb.SquaredExponential(1.0), 0.5, 1.0),
    ],
    ids=["learned", "known", "correlated", "particles", "beta", "filter", "gamma", "process"],
)
@pytest.mark.parametrize("formula", ["0 + age", "age - 1", "C(country) - 1"])
def test_without_an_intercept_a_bandit_works_before_its_first_record(
    formula: str, model: Any, tmp_path: Path
) -> None:
    bandit = mb.MultiTaskBandit(["a", "b"], metadata=formula, model=model, seed=1)
    assert bandit.decide("nobody").arm in ("a", "b")
    bandit.learn(0, 1.0)
    bandit.add_arm("c")
    assert "nobody" in str(bandit.explain("nobody"))
    bandit.save(tmp_path / "bandit.mb")
    loaded = mb.load(tmp_path / "bandit.mb")
    assert loaded.belief.n_features == 0
    for one in (bandit, loaded):
        for j in range(20):
            decision = one.decide(f"t{j}", {"age": float(j), "country": "NO" if j % 3 else "SE"})
            one.learn(decision, float(j % 2))
    assert bandit.belief.n_features > 0
    assert bandit.decide("t3") == loaded.decide("t3")


@pytest.mark.parametrize(
    "model",
    [
        mb.LinearMixedModel(0.5, 2.0, 0.3, 1.0),
        mb.BetaLogisticModel(0.5, 2.0, 0.1),
        mb.GammaLogModel(0.5, 2.0, 0.1),
    ],
)
def test_a_first_column_has_the_prior_that_the_model_says(model: Any) -> None:
    """As if it had been there from the start."""
    late = mb.MultiTaskBandit(["a", "b"], metadata="age - 1", model=model, seed=1)
    known = mb.MultiTaskBandit(
        ["a", "b"], metadata=features.Columns(["age"], intercept=False), model=model, seed=1
    )
    for bandit in (late, known):
        bandit.learn_many({"task": ["nobody"], "arm": ["a"], "reward": [1.0]})
        bandit.learn_many({"task": ["u", "v"], "arm": ["a", "b"], "reward": [1.0, 0.0], "age": [0.5, 2.0]})
    mean = [b.belief.coef.mean if hasattr(b.belief, "coefficients") else b.belief.mode for b in (late, known)]
    np.testing.assert_allclose(*mean, atol=1e-8)


def test_a_first_column_that_comes_late_starts_on_the_scale_of_the_rewards() -> None:
    bandit = mb.MultiTaskBandit(["a", "b"], metadata="age - 1", seed=1)
    rewards = np.random.default_rng(1).normal(0.0, 1000.0, 8)
    bandit.learn_many({"task": [f"t{j}" for j in range(8)], "arm": ["a", "b"] * 4, "reward": rewards})
    bandit.add_task("u", {"age": 1.0})
    assert bandit.belief.variances.coef == pytest.approx(0.5 * rewards.var(ddof=1))
