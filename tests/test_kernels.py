"""Every compiled loop of the linear mixed model against its slow twin, compiled and not."""

from __future__ import annotations

import copy
import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from metabandit import kernels
from metabandit.kernels import corrections, linear
from metabandit.models.features import TaskFeatures
from tests.twins import linear as twin

pytestmark = pytest.mark.interpreted
Array = np.ndarray[Any, Any]

D, K, N = 4, 3, 5


@pytest.fixture(params=["compiled", "python"])
def kernel(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """A kernel by name, as users run it and as it is written."""

    def pick(name: str) -> Any:
        function = getattr(linear if hasattr(linear, name) else corrections, name)
        return getattr(function, "py_func", function) if request.param == "python" else function

    return pick


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(31)


def random_factor(rng: np.random.Generator, d: int = D) -> Array:
    """A factor with rubbish left of the diagonal, where nobody may look."""
    factor = rng.normal(size=(d, d + 1))
    factor[np.arange(d), np.arange(d)] = 1.0 + rng.exponential(size=d)
    return factor


def random_root(rng: np.random.Generator, full: bool) -> Array:
    return rng.normal(size=(D, D)) if full else rng.exponential(size=(1, D))


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def upper(factor: Array) -> Array:
    """What a factor says: nothing left of the diagonal."""
    return np.column_stack([np.triu(factor[:, :-1]), factor[:, -1]])


def same_belief(got: Array, expected: Array) -> None:
    close(upper(got), upper(expected))


@pytest.mark.parametrize("zeros", [[], [0], [1, 3], [0, 1, 2, 3]])
def test_rotate(kernel: Any, rng: np.random.Generator, zeros: list[int]) -> None:
    factor, x = random_factor(rng), rng.normal(size=D + 1)
    x[zeros] = 0.0
    expected, left = twin.rotate(factor, x)
    close(kernel("rotate")(factor, x.copy()) ** 2, left)
    same_belief(factor, expected)


@pytest.mark.parametrize("zeros", [[], [0], [1, 3], [0, 1, 2, 3]])
def test_rotate_back(kernel: Any, rng: np.random.Generator, zeros: list[int]) -> None:
    """What rotate brought goes, whatever came in between; rho2 is less by the residual it would have had last."""
    factor, x, totals = random_factor(rng), rng.normal(size=D + 1), np.array([9.0, 0.3])
    x[zeros] = 0.0
    for row in (x.copy(), rng.normal(size=D + 1)):
        totals[0] += kernel("rotate")(factor, row) ** 2
    expected, rho2 = twin.rotate_back(factor, totals[0], x)
    before = twin.moments_of(factor)[0]
    size = float(factor[:, -1] @ factor[:, -1] + totals[0])
    left = 1.0 - float(x[:D] @ np.linalg.solve(before, x[:D])), 1.0 - x[D] ** 2 / size
    close(kernel("rotate_back")(factor, totals, x.copy(), np.empty(D)), min(left))
    same_belief(factor, expected)
    close(totals, [rho2, 0.3])


@pytest.mark.parametrize("size", [[1e3, 1.0], [1.0, 1e3]], ids=["its direction", "its size"])
def test_rotate_back_leaves_alone_what_rounding_would_spoil(
    kernel: Any, rng: np.random.Generator, size: list[float]
) -> None:
    factor, totals, x = random_factor(rng), np.array([9.0, 0.3]), rng.normal(size=D + 1)
    x[:D] *= size[0]
    x[D] *= size[1]
    totals[0] += kernel("rotate")(factor, x.copy()) ** 2
    before = factor.copy(), totals.copy()
    assert not kernel("rotate_back")(factor, totals, x, np.empty(D))
    assert (factor == before[0]).all()
    assert (totals == before[1]).all()


def test_solve_back(kernel: Any, rng: np.random.Generator) -> None:
    factor, z, out = random_factor(rng), rng.normal(size=D), np.full(D, np.nan)
    kernel("solve_back")(factor, z, 0.7, out)
    close(out, twin.solve_back(factor, z, 0.7))


@pytest.mark.parametrize("zeros", [[], [0, 2]])
def test_solve_forward(kernel: Any, rng: np.random.Generator, zeros: list[int]) -> None:
    factor, x = random_factor(rng), rng.normal(size=D)
    x[zeros] = 0.0
    expected = twin.solve_forward(factor, x)
    kernel("solve_forward")(factor, x)
    close(x, expected)


@pytest.mark.parametrize("full", [False, True])
def test_colour_and_whiten(kernel: Any, rng: np.random.Generator, full: bool) -> None:
    root, mean, xi, out = random_root(rng, full), rng.normal(size=D), rng.normal(size=D), np.full(D, np.nan)
    kernel("colour")(root, mean, xi, out)
    close(out, twin.colour(root, mean, xi))
    xi[1] = 0.0
    row = np.full(D + 1, np.nan)
    kernel("whiten")(root, xi, row)
    close(row[:D], twin.whiten(root, xi))
    assert np.isnan(row[D])  # the residual's place is not touched


@pytest.mark.parametrize("full", [False, True])
def test_draw_many(kernel: Any, rng: np.random.Generator, full: bool) -> None:
    factor, root, mean = random_factor(rng), random_root(rng, full), rng.normal(size=D)
    z, scale, out = rng.normal(size=(6, D)), rng.exponential(size=6), np.full((6, D), np.nan)
    kernel("draw_many")(factor, root, mean, z, scale, out)
    close(out, twin.draw_many(factor, root, mean, z, scale))


def features(rng: np.random.Generator, layout: str) -> tuple[TaskFeatures, tuple[Any, ...], Array]:
    """N tasks of K arms, how kernels read them, and the full Phi : (N, K, d)."""
    made = TaskFeatures(K, 4 if layout == "given" else 6, layout)
    made.append(rng.normal(size=(N, made.row_width)))
    place = (made.rows, made.step_row, made.step_column, made.width)
    if layout == "given":
        return made, place, made.rows[:N].reshape(N, K, 4)
    return made, place, np.array([np.kron(np.eye(K), row) for row in made.rows[:N]])


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_cell_row_and_cell_mean(kernel: Any, rng: np.random.Generator, layout: str) -> None:
    made, place, phi = features(rng, layout)
    theta = rng.normal(size=made.n_features)
    for i in range(N):
        for a in range(K):
            g = np.full(made.n_features, np.nan)
            kernel("cell_row")(*place, i, a, g)
            close(g, phi[i, a])
            close(kernel("cell_mean")(*place, i, a, theta), phi[i, a] @ theta)


class Cells:
    """The arrays of a belief with a diagonal covariance, for kernels; and the same as plain lists."""

    def __init__(self, rng: np.random.Generator, layout: str, full: bool, extra: bool) -> None:
        self.made, self.place, self.phi = features(rng, layout)
        d = self.made.n_features
        self.factor, self.totals = random_factor(rng, d), np.array([0.3, 0.2])
        self.root = rng.normal(size=(d, d)) if full else rng.exponential(size=(1, d))
        self.mean = rng.normal(size=d)
        self.counts, self.means, self.within = np.zeros((N, K)), np.zeros((N, K)), np.zeros(K)
        self.task_var, self.noise = np.array([0.0, 0.5, 2.0]), np.array([0.3, 1.0, 2.0])
        self.extra = rng.exponential(size=(N, K)) if extra else np.zeros((0, K))
        self.plain = twin.CellState(self.factor.copy(), self.totals.copy(), {})

    def tau2(self, i: int, a: int) -> float:
        return float(self.task_var[a] + (self.extra[i, a] if len(self.extra) else 0.0))

    @property
    def arrays(self) -> tuple[Any, ...]:
        return (
            self.factor, self.totals, self.root, self.mean, *self.place, self.counts, self.means, self.within,
            self.task_var, self.extra, self.noise,
        )  # fmt: skip

    def tell_twin(self, i: int, a: int, y: float) -> None:
        twin.learn_cell(
            self.plain, self.root, self.mean, self.phi[i, a], self.tau2(i, a), float(self.noise[a]), i, a, y
        )  # fmt: skip

    def check(self) -> None:
        same_belief(self.factor, self.plain.factor)
        close(self.totals, self.plain.totals)
        for (i, a), rewards in self.plain.rewards.items():
            close((self.counts[i, a], self.means[i, a]), (len(rewards), np.mean(rewards)))
        squares = np.zeros(K)
        for (_, a), rewards in self.plain.rewards.items():
            squares[a] += len(rewards) * np.var(rewards)
        close(self.within, squares)
        assert self.counts.sum() == sum(map(len, self.plain.rewards.values()))


@pytest.fixture(params=[("given", False, False), ("given", True, True), ("by_arm", True, False)], ids=str)
def cells(request: pytest.FixtureRequest, rng: np.random.Generator) -> Cells:
    return Cells(rng, *request.param)


def told(rng: np.random.Generator, n: int = 25) -> tuple[Array, Array, Array]:
    return rng.integers(0, N, n), rng.integers(0, K, n), rng.normal(size=n)


def test_learn_cell_and_learn_cells(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    tasks, arms, rewards = told(rng)
    d = cells.made.n_features
    kernel("learn_cell")(*cells.arrays, 1, 2, 0.7, np.empty(d), np.empty(d + 1))
    cells.tell_twin(1, 2, 0.7)
    cells.check()
    kernel("learn_cells")(*cells.arrays, tasks, arms, rewards)
    for i, a, y in zip(tasks, arms, rewards, strict=True):
        cells.tell_twin(int(i), int(a), float(y))
    cells.check()


def same_cells(got: Cells, expected: Cells) -> None:
    same_belief(got.factor, expected.factor)
    for name in ("totals", "counts", "means", "within"):
        close(getattr(got, name), getattr(expected, name))


def test_forget_cells(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    """As if what is taken back had never been told; also the last reward of a cell."""
    tasks, arms, rewards = told(rng, 40)
    kept, gone = rng.permutation(40)[:15], np.ones(40, bool)
    gone[kept] = False
    other = copy.deepcopy(cells)
    kernel("learn_cells")(*other.arrays, tasks[~gone], arms[~gone], rewards[~gone])
    kernel("learn_cells")(*cells.arrays, tasks, arms, rewards)
    assert kernel("forget_cells")(*cells.arrays, tasks[gone], arms[gone], rewards[gone], True)
    assert (cells.counts == 0.0).any()
    same_cells(cells, other)


def test_forget_cells_keeps_to_the_statistics_when_it_is_not_well(
    kernel: Any, rng: np.random.Generator, cells: Cells
) -> None:
    tasks, arms, rewards = told(rng)
    rewards[1] = 1e6
    kernel("learn_cells")(*cells.arrays, tasks, arms, rewards)
    before = cells.factor.copy(), cells.totals.copy()
    assert not kernel("forget_cells")(*cells.arrays, tasks[:0], arms[:0], rewards[:0], False)
    assert not kernel("forget_cells")(*cells.arrays, tasks[1:3], arms[1:3], rewards[1:3], True)
    assert (cells.factor == before[0]).all()
    assert cells.totals[0] == before[1][0]
    assert cells.counts.sum() == 23


def test_move_cells(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    """As if the task had had the other features from the start."""
    other, data = copy.deepcopy(cells), told(rng, 60)
    kernel("learn_cells")(*cells.arrays, *data)
    new = rng.normal(size=(1, cells.made.row_width))
    other.made.rows[2] = new
    kernel("learn_cells")(*other.arrays, *data)
    arrays = (*cells.arrays[:8], cells.counts, cells.means, cells.task_var, cells.extra, cells.noise)
    assert kernel("move_cells")(*arrays, 2, new)
    assert (cells.made.rows == other.made.rows).all()
    same_cells(cells, other)


def test_left_without_reward(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    tasks, arms, rewards = told(rng)
    kernel("learn_cells")(*cells.arrays, tasks, arms, rewards)
    without = copy.deepcopy(cells)
    got = kernel("left_without_reward")(*cells.arrays, tasks[0], arms[0], rewards[0])
    close(kernel("forget_cells")(*without.arrays, tasks[:1], arms[:1], rewards[:1], True), got)
    (p, h), (less_p, less_h) = twin.moments_of(cells.factor), twin.moments_of(without.factor)
    size = h @ np.linalg.solve(p, h) + cells.totals[0]
    left = less_h @ np.linalg.solve(less_p, less_h) + without.totals[0]
    close(got, min(1.0 - np.trace(np.linalg.solve(p, p - less_p)), left / size))
    cells.counts[0, 0] = 0.0
    assert kernel("left_without_reward")(*cells.arrays, 0, 0, 1.0) == 0.0


def test_left_without_task(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    """Arm by arm, of what the ones before left; and no more than is left where other features come first."""
    kernel("learn_cells")(*cells.arrays, *told(rng, 200))
    few = (*cells.arrays[:8], cells.counts, cells.means, cells.task_var, cells.extra, cells.noise)
    got = kernel("left_without_task")(*few, 1)
    p, h = twin.moments_of(cells.factor)
    left, size = 1.0, h @ np.linalg.solve(p, h) + cells.totals[0]
    for a in range(K):
        n, phi = cells.counts[1, a], cells.phi[1, a]
        weight = n / (cells.noise[a] + n * cells.tau2(1, a))
        row, end = (
            np.sqrt(weight) * twin.whiten(cells.root, phi),
            weight * (cells.means[1, a] - phi @ cells.mean) ** 2,
        )
        left *= min(1.0 - float(row @ np.linalg.solve(p, row)), 1.0 - end / size)
        p, size = p - np.outer(row, row), size - end
    close(got, left)
    assert (cells.counts[1] > 0.0).sum() > 1
    assert 0.0 < got <= kernel("move_cells")(*few, 1, rng.normal(size=(1, cells.made.row_width))) <= 1.0


def test_cell_gram(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    data = told(rng)
    linear.learn_cells(*cells.arrays, *data)
    own: dict[tuple[int, int], list[float]] = {}
    for i, a, y in zip(*data, strict=True):
        own.setdefault((int(i), int(a)), []).append(float(y))
    tau2 = np.array([[cells.tau2(i, a) for a in range(K)] for i in range(N)])
    expected, log_s = twin.cell_gram(cells.root, cells.mean, cells.phi, own, tau2, cells.noise)
    gram = np.zeros_like(expected)
    arrays = (cells.counts, cells.means, cells.task_var, cells.extra, cells.noise)
    close(kernel("cell_gram")(cells.root, cells.mean, *cells.place, N, *arrays, gram), log_s)
    close(gram, expected)
    cells.factor[:], cells.totals[:] = np.eye(*cells.factor.shape), 0.0
    kernel("rotate_cells")(cells.factor, cells.totals, cells.root, cells.mean, *cells.place, N, *arrays)
    p, h = twin.moments_of(cells.factor)
    close(p, np.eye(len(p)) + expected[:-1, :-1])
    close(h, expected[:-1, -1])
    close(cells.totals, [expected[-1, -1] - h @ np.linalg.solve(p, h), log_s])


def test_cell_laws_and_moments(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    linear.learn_cells(*cells.arrays, *told(rng))
    own = {(i, a): self_rewards(cells, i, a) for i in range(N) for a in range(K)}
    shared = (cells.counts, cells.means, cells.task_var, cells.extra, cells.noise)
    tasks, d = np.array([3, 0, 3]), cells.made.n_features
    for thetas, scale in (
        (rng.normal(size=(1, d)), np.ones(1)),
        (rng.normal(size=(3, d)), rng.exponential(size=3)),
    ):
        out = np.full((2, 3, K), np.nan)
        kernel("cell_laws")(*cells.place, *shared, tasks, thetas, scale, out[0], out[1])
        for j, i in enumerate(tasks):
            theta, s = thetas[j % len(thetas)], scale[j % len(scale)]
            for a in range(K):
                prior = float(cells.phi[i, a] @ theta)
                mean, var = twin.cell_law(prior, own[i, a], cells.tau2(i, a), cells.noise[a])
                close((out[0, j, a], out[1, j, a]), (mean, s * np.sqrt(var)))

    out, m = np.full((2, 3, K), np.nan), rng.normal(size=d)
    kernel("cell_moments")(cells.factor, cells.root, m, *cells.place, *shared, tasks, out[0], out[1])
    p, _ = twin.moments_of(cells.factor)
    root = twin.root_matrix(cells.root)
    cov = root @ np.linalg.inv(p) @ root.T
    for j, i in enumerate(tasks):
        for a in range(K):
            phi = cells.phi[i, a]
            mean, var = twin.cell_law(float(phi @ m), own[i, a], cells.tau2(i, a), cells.noise[a])
            kept = cells.noise[a] / (cells.noise[a] + cells.counts[i, a] * cells.tau2(i, a))
            close((out[0, j, a], out[1, j, a]), (mean, var + kept**2 * phi @ cov @ phi))


def self_rewards(cells: Cells, i: int, a: int) -> list[float]:
    """Rewards with the count and the mean of the cell: all that its law may depend on."""
    return [float(cells.means[i, a])] * int(cells.counts[i, a])


def test_thompson_loop(kernel: Any, rng: np.random.Generator, cells: Cells) -> None:
    """Interaction by interaction, with the same random numbers; its law is tested in test_linear_laws.py."""
    order, truth, errors = rng.integers(0, N, 30), rng.normal(size=(N, K)), rng.normal(size=30)
    chosen, d = np.full(30, -1), cells.made.n_features
    kernel("thompson_loop")(*cells.arrays, order, truth, errors, np.random.default_rng(7), chosen)
    source = np.random.default_rng(7)
    for j, i in enumerate(order):
        theta = twin.colour(
            cells.root, cells.mean, twin.solve_back(cells.plain.factor, source.standard_normal(d), 1.0)
        )
        values = []
        for a in range(K):
            seen = cells.plain.rewards.get((int(i), a), [])
            mean, var = twin.cell_law(float(cells.phi[i, a] @ theta), seen, cells.tau2(i, a), cells.noise[a])
            values.append(mean + np.sqrt(var) * source.standard_normal())
        assert chosen[j] == np.argmax(values)
        cells.tell_twin(int(i), int(chosen[j]), float(truth[i, chosen[j]] + errors[j]))
    cells.check()


def test_decay(kernel: Any, rng: np.random.Generator) -> None:
    b, v, big_v, gamma = (
        rng.normal(size=(3, 3)),
        rng.normal(size=3),
        rng.normal(size=(3, 3)),
        rng.normal(size=(3, 3)),
    )
    expected = twin.decay(b, v, big_v, gamma, 0.6)
    kernel("decay")(b, v, big_v, gamma, 0.6)
    for got, want in zip((b, v, big_v), expected, strict=True):
        close(got, want)


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_learn_effects(kernel: Any, rng: np.random.Generator, layout: str) -> None:
    made, place, phi = features(rng, layout)
    d, root = made.n_features, rng.normal(size=(made.n_features,) * 2)
    factor, totals, mean, noise = (
        random_factor(rng, d),
        np.array([0.3, 0.2]),
        rng.normal(size=d),
        np.array([0.4, 2.0]),
    )
    half = rng.normal(size=(N, K, K))
    bs, vs, big_vs = rng.normal(size=(N, K, K)), rng.normal(size=(N, K)), half @ np.swapaxes(half, 1, 2)
    tasks, z, arms, rewards = (
        rng.integers(0, N, 12),
        rng.normal(size=(12, K)),
        rng.integers(0, 2, 12),
        rng.normal(size=12),
    )
    z[3, 1:] = 0.0
    plain = (factor.copy(), totals.copy())
    states = {i: (bs[i].copy(), vs[i].copy(), big_vs[i].copy()) for i in range(N)}
    kernel("learn_effects")(
        factor, totals, root, mean, *place, bs, vs, big_vs, noise, tasks, z, arms, rewards
    )
    for i, one, a, y in zip(tasks, z, arms, rewards, strict=True):
        *plain, b, v, big_v = twin.learn_effect(*plain, root, mean, phi[i], *states[i], noise[a], one, y)
        states[i] = (b, v, big_v)
    same_belief(factor, plain[0])
    close(totals, plain[1])
    for i, (b, v, big_v) in states.items():
        for got, want in zip((bs[i], vs[i], big_vs[i]), (b, v, big_v), strict=True):
            close(got, want)


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="this is the run without compilation")
def test_all_of_this_with_compilation_off() -> None:
    """The library works, slowly, where nothing can be compiled."""
    tests = Path(__file__).resolve().parent
    files = ("test_kernels.py", "test_lab_kernels.py", "test_streams.py", "test_contracts.py")
    chosen = [str(tests / name) for name in files]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "interpreted and not slow",
        "-p",
        "no:xdist",
        *chosen,
    ]
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run(command, env=env, cwd=tests.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:]


def test_every_operation_of_a_kernel_is_as_it_is_written() -> None:
    """A compiler that may reorder sums makes other last digits in another process: no decision could be made again."""
    found = 0
    for module in pkgutil.iter_modules(kernels.__path__):
        if module.name == "_jit":
            continue
        for function in vars(importlib.import_module(f"metabandit.kernels.{module.name}")).values():
            if isinstance(function, Dispatcher):
                assert not function.targetoptions.get("fastmath"), function
                found += 1
    assert found > 50 or os.environ.get("NUMBA_DISABLE_JIT") == "1"
