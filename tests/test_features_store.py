"""Where a belief keeps features: two layouts that say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metabandit.errors import DamagedFile, InvalidInput
from metabandit.models.features import TaskFeatures, grown

Array = np.ndarray[Any, Any]
K, P, N = 3, 2, 4


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(41)


def filled(layout: str, rng: np.random.Generator) -> tuple[TaskFeatures, Array]:
    """N tasks, and their full Phi : (N, K, d)."""
    store = TaskFeatures(K, K * P, layout)
    given = rng.normal(size=(N, *store.shape))
    for value in given[:2]:
        store.append(store.check(value, many=False))
    store.append(store.check(given[2:], many=True))
    full = given if layout == "given" else np.array([np.kron(np.eye(K), x) for x in given])
    return store, full


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_every_way_of_reading_says_the_same(layout: str, rng: np.random.Generator) -> None:
    store, full = filled(layout, rng)
    tasks = np.array([3, 0, 3])
    np.testing.assert_array_equal(store.phis(tasks), full[tasks])
    np.testing.assert_array_equal(store.phi(2), full[2])
    np.testing.assert_array_equal(store.cells(tasks, np.array([2, 0, 1])), full[tasks, [2, 0, 1]])
    one, each = rng.normal(size=K * P), rng.normal(size=(3, K * P))
    np.testing.assert_allclose(store.means(tasks, one), full[tasks] @ one)
    np.testing.assert_allclose(store.means(tasks, each), np.einsum("nkd,nd->nk", full[tasks], each))


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_what_is_read_is_a_copy(layout: str, rng: np.random.Generator) -> None:
    store, full = filled(layout, rng)
    for read in (store.phi(0), store.phis(np.arange(N)), store.cells(np.arange(N), np.zeros(N, int))):
        read[:] = np.nan
    given = np.ones((1, *store.shape))
    store.append(store.check(given, many=True))
    given[:] = np.nan
    np.testing.assert_array_equal(store.phis(np.arange(N)), full)
    assert np.isfinite(store.phi(N)).all()


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_new_arms_and_columns(layout: str, rng: np.random.Generator) -> None:
    """theta_new, zero at the new places and else theta, gives the old arms the old means."""
    store, full = filled(layout, rng)
    theta, tasks = rng.normal(size=K * P), np.arange(N)
    before = full @ theta
    for grow in (lambda: store.add_columns(2), lambda: store.add_arms(1), lambda: store.add_columns(1)):
        places = grow()
        wide = np.zeros(store.n_features)
        wide[np.setdiff1d(np.arange(store.n_features), places)] = theta
        theta = wide
        np.testing.assert_allclose(store.means(tasks, theta)[:, :K], before)
        np.testing.assert_allclose(store.phis(tasks) @ theta, store.means(tasks, theta))
        theta[places] = rng.normal(size=len(places))
        if layout == "given":  # columns of old tasks and rows of new arms are zero
            np.testing.assert_allclose(store.means(tasks, theta)[:, :K], before)
        theta[places] = 0.0
    assert store.phis(tasks).shape == (N, K + 1, store.n_features)


def test_rows_of_new_arms_are_those_given(rng: np.random.Generator) -> None:
    store, full = filled("given", rng)
    phi = rng.normal(size=(N, 2, K * P))
    assert len(store.add_arms(2, phi)) == 0
    np.testing.assert_array_equal(store.phis(np.arange(N)), np.concatenate([full, phi], axis=1))
    with pytest.raises(InvalidInput, match="phi"):
        store.add_arms(1, phi)
    assert store.n_arms == K + 2


@pytest.mark.parametrize("layout", ["given", "by_arm"])
@pytest.mark.parametrize("bad", [np.ones(7), np.ones((2, 3)), np.nan, "text", [[np.inf] * 6] * 3, None])
def test_wrong_features_are_refused(layout: str, bad: Any) -> None:
    store = TaskFeatures(K, K * P, layout)
    for many in (False, True):
        with pytest.raises(InvalidInput, match="phi"):
            store.check(bad, many)


@pytest.mark.parametrize(("layout", "d"), [("by_arm", 7), ("rows", 6)])
def test_impossible_layouts_are_refused(layout: str, d: int) -> None:
    with pytest.raises(InvalidInput):
        TaskFeatures(K, d, layout)


def test_room_grows_ahead_but_a_first_batch_is_not_padded() -> None:
    assert grown(np.zeros((0, 2)), 1_000_000).shape == (1_000_000, 2)
    rows, times = np.zeros((0, 1)), 0
    for needed in range(1, 10_000):
        again = grown(rows, needed)
        times += again is not rows
        rows = again
    assert times < 30  # appending one by one copies O(log n) times
    assert len(rows) < 15_100


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_what_is_restored_is_what_was_there(layout: str, rng: np.random.Generator) -> None:
    store, full = filled(layout, rng)
    state, other = store.state(), TaskFeatures(2, 2, layout)
    store.rows[:] = np.nan  # the state is a copy
    other.restore(state)
    np.testing.assert_array_equal(other.phis(np.arange(N)), full)
    assert (other.n_tasks, other.n_arms, other.n_features) == (N, K, K * P)
    other.append(other.check(full if layout == "given" else full[:, 0, :P], many=True))
    np.testing.assert_array_equal(other.phis(np.arange(N)), full)
    assert state["rows"].shape == (N, other.row_width)


DAMAGE: list[dict[str, Any]] = [
    {"rows": np.zeros((2, 3))},
    {"rows": np.zeros(6)},
    {"rows": np.full((1, P), np.nan)},
    {"rows": "rows"},
    {"n_arms": 0},
    {"n_arms": "three"},
    {"n_features": -1},
    {"n_features": 5},
    {"n_features": None},
]


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_damaged_states_are_refused(layout: str, damage: dict[str, Any], rng: np.random.Generator) -> None:
    store, full = filled(layout, rng)
    with pytest.raises(DamagedFile):
        store.restore({**store.state(), **damage})
    for name in store.state():
        with pytest.raises(DamagedFile, match=name):
            store.restore({key: value for key, value in store.state().items() if key != name})
    np.testing.assert_array_equal(store.phis(np.arange(N)), full)
