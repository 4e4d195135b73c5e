"""Every compiled loop of the laboratory against its slow twin, compiled and not; and the laws of its rewards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from metabandit.kernels import play
from metabandit.streams import keys
from tests.statistics import P_LEAST, frequencies
from tests.test_kernels import Cells, close
from tests.twins import play as twin

pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),  # 64-bit words wrap around
]
Array = np.ndarray[Any, Any]

N, K = 5, 3
KEY = 0x9D39247E33776D41
NONE, NOWHERE = np.zeros(0), np.zeros(0, np.int64)  # no rewards to resample


@pytest.fixture(params=["compiled", "python"])
def kernel(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """A kernel by name, as users run it and as it is written."""

    def pick(name: str) -> Any:
        function = getattr(play, name)
        return getattr(function, "py_func", function) if request.param == "python" else function

    return pick


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(17)


class Truth:
    """The truth of some tasks, for kernels and for their twins."""

    def __init__(self, kind: int, rng: np.random.Generator, n_tasks: int = N) -> None:
        self.kind, self.spread = kind, rng.exponential(size=K)
        draws = {twin.NORMAL: rng.normal, twin.BERNOULLI: rng.random, twin.POISSON: rng.exponential}
        self.means = draws.get(kind, rng.normal)(size=(n_tasks, K))
        self.means[0] = self.means[0, 0]  # a task whose arms are all the best
        self.values, self.starts, cells = NONE, NOWHERE, {}
        if kind == twin.RESAMPLED:
            cells = {
                (i, a): rng.normal(size=rng.integers(1, 6)).tolist() for i in range(n_tasks) for a in range(K)
            }
            self.values = np.concatenate([np.sort(own) for own in cells.values()])
            self.starts = np.cumsum([0, *map(len, cells.values())])
        self.law = twin.Law(kind, self.spread, cells)

    @property
    def rest(self) -> tuple[Any, ...]:
        """The last arguments of those who play."""
        return self.kind, np.uint64(KEY), self.means, self.spread, self.values, self.starts


@pytest.fixture(params=[twin.NORMAL, twin.BERNOULLI, twin.POISSON, twin.RESAMPLED], ids=str)
def truth(request: pytest.FixtureRequest, rng: np.random.Generator) -> Truth:
    return Truth(request.param, rng)


# -- places --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("i", "t", "a"), [(0, 0, 0), (3, 7, 2), (10**6, 2**32 - 1, 0), (2**31, 5, 1)])
def test_place(kernel: Any, i: int, t: int, a: int) -> None:
    for key in (0, KEY, twin.MASK):
        assert kernel("place")(np.uint64(key), i, t, a, K) == twin.place(key, i, t, a, K)


def places(key: int, n_tasks: int = 20, visits: int = 40, n_arms: int = 5) -> Array:
    """(tasks, visits, arms)."""
    shape = (n_tasks, visits, n_arms)
    return np.array([play.place(np.uint64(key), *where, n_arms) for where in np.ndindex(shape)]).reshape(
        shape
    )


def dependence(u: Array, v: Array) -> float:
    """p-value that pairs of uniforms are independent: chi-square on a grid of 8 x 8."""
    counts, _, _ = np.histogram2d(u.ravel(), v.ravel(), bins=8, range=[[0, 1], [0, 1]])
    return frequencies(counts.ravel(), np.full(64, 1.0 / 64.0))


def test_places_are_uniform_and_independent_of_their_neighbours() -> None:
    u = places(KEY)
    assert len(np.unique(u)) == u.size
    assert stats.kstest(u.ravel(), "uniform").pvalue > P_LEAST
    for axis in range(3):
        before, after = np.delete(u, -1, axis), np.delete(u, 0, axis)
        assert dependence(before, after) > P_LEAST
    other_seed, other_number_of_arms = places(int(keys(1, [3])[0])), places(KEY, n_arms=6)[:, :, :5]
    assert dependence(u, other_seed) > P_LEAST
    assert dependence(u, other_number_of_arms) > P_LEAST


def test_places_that_arms_share_would_be_noticed() -> None:
    """A planted bug: the arm is left out of the place, and all arms of a visit rise and fall together."""
    u = places(KEY)[:, :, :1].repeat(5, axis=2)
    assert dependence(u[:, :, 1:], u[:, :, :-1]) < P_LEAST


# -- the laws of rewards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 1e-12, 0.1, 1.0, 30.0, 690.0, 710.0, 5000.0])
def test_poisson_quantile(kernel: Any, mean: float) -> None:
    u = np.concatenate(
        [np.linspace(0.0, 1.0, 103)[1:-1], 10.0 ** -np.arange(3, 17), 1 - 10.0 ** -np.arange(3, 9)]
    )
    got = np.array([kernel("poisson_quantile")(x, mean) for x in u])
    expected = stats.poisson.ppf(u, mean)
    off = got != expected
    at_an_edge = (
        np.abs(stats.poisson.cdf(np.minimum(got, expected), mean) / u - 1.0) < 1e-10
    )  # both are right
    assert at_an_edge[off].all()
    assert off.mean() < 0.05


@pytest.mark.parametrize("mean", [1e-12, 0.1, 3.0, 30.0, 690.0, 710.0])
def test_poisson_quantile_of_the_largest_uniform(kernel: Any, mean: float) -> None:
    """Where the sum of all probabilities, as rounded, stays below u: the walk ends all the same."""
    largest = 1.0 - 2.0**-53
    got = kernel("poisson_quantile")(largest, mean)
    assert 1e-20 < stats.poisson.sf(got - 1.0, mean) < 2e-12


def test_reward_at(kernel: Any, truth: Truth, rng: np.random.Generator) -> None:
    for i, a in np.ndindex(N, K):
        first, last = truth.starts[i * K + a : i * K + a + 2] if len(truth.starts) else (0, 0)
        for u in (2.0**-53, *rng.random(8), 1.0 - 2.0**-53):
            mean, sd = truth.means[i, a], truth.spread[a]
            if truth.kind == twin.POISSON and u > 0.999999:
                continue  # library and kernel round the last probability apart: see the test above
            got = kernel("reward_at")(truth.kind, u, mean, sd, truth.values, first, last)
            close(got, truth.law.reward(u, i, a, mean))


def test_potential_and_potentials(kernel: Any, truth: Truth, rng: np.random.Generator) -> None:
    tasks, visits, arms = rng.integers(0, N, 40), rng.integers(0, 100, 40), rng.integers(0, K, 40)
    rest, out = (truth.spread, truth.values, truth.starts), np.full(40, np.nan)
    kernel("potentials")(truth.kind, np.uint64(KEY), tasks, visits, arms, truth.means[tasks], *rest, out)
    for j, (i, t, a) in enumerate(zip(tasks.tolist(), visits.tolist(), arms.tolist(), strict=True)):
        expected = twin.potential(truth.law, KEY, i, t, a, truth.means[i])
        one = kernel("potential")(truth.kind, np.uint64(KEY), i, t, a, truth.means[i], *rest)
        close((out[j], one), (expected, expected))


SAMPLE = np.random.default_rng(5).gamma(2.0, size=25)
LAWS = {
    "normal": (twin.NORMAL, 0.7, stats.norm(0.7, 1.3)),
    "bernoulli": (twin.BERNOULLI, 0.3, stats.bernoulli(0.3)),
    "poisson": (twin.POISSON, 2.5, stats.poisson(2.5)),
    "resampled": (twin.RESAMPLED, math.nan, stats.rv_discrete(values=(np.arange(25), np.full(25, 0.04)))),
}


def rewards_of(kind: int, mean: float, n: int = 20_000) -> Array:
    """The potential rewards of the n first visits of one arm."""
    tasks, arms, means = np.zeros(n, np.int64), np.ones(n, np.int64), np.full((n, 2), mean)
    values, starts = (np.sort(SAMPLE), np.array([0, 0, 25])) if kind == twin.RESAMPLED else (NONE, NOWHERE)
    out = np.empty(n)
    play.potentials(
        kind, np.uint64(KEY), tasks, np.arange(n), arms, means, np.full(2, 1.3), values, starts, out
    )
    return np.searchsorted(np.sort(SAMPLE), out).astype(float) if kind == twin.RESAMPLED else out


def misfit(rewards: Array, law: Any) -> float:
    """The smallest p-value of mean, variance and the whole law."""
    mean, var, kurtosis = (float(x) for x in law.stats(moments="mvk"))
    n = len(rewards)
    z_mean = (rewards.mean() - mean) / math.sqrt(var / n)
    z_var = (((rewards - mean) ** 2).mean() - var) / (var * math.sqrt((kurtosis + 2.0) / n))
    if hasattr(law, "pdf"):
        whole = float(stats.kstest(rewards, law.cdf).pvalue)
    else:
        counts = np.bincount(rewards.astype(int), minlength=40)
        whole = frequencies(counts, law.pmf(np.arange(len(counts))))
    return min(2.0 * stats.norm.sf(abs(z_mean)), 2.0 * stats.norm.sf(abs(z_var)), whole)


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_rewards(name: str) -> None:
    kind, mean, law = LAWS[name]
    assert misfit(rewards_of(kind, mean), law) > P_LEAST


@pytest.mark.parametrize("name", ["normal", "bernoulli", "poisson"])
def test_laws_a_little_off_would_be_noticed(name: str) -> None:
    kind, mean, law = LAWS[name]
    assert misfit(rewards_of(kind, mean * 1.1), law) < P_LEAST


# -- orders and the judge ------------------------------------------------------------------------------------


def test_count_visits_and_round_starts(kernel: Any, rng: np.random.Generator) -> None:
    for tasks in (
        rng.integers(0, N, 60),
        np.tile(np.arange(N), 4),
        np.repeat(np.arange(N), 4),
        np.array([2]),
    ):
        visits, starts = np.full(len(tasks), -1), np.full(len(tasks), -1)
        kernel("count_visits")(tasks, N, visits)
        assert visits.tolist() == twin.count_visits(tasks.tolist())
        n = kernel("round_starts")(tasks, N, starts)
        assert starts[:n].tolist() == twin.round_starts(tasks.tolist())


@pytest.mark.parametrize("per_point", [1, 7, 40, 1000])
def test_judge(kernel: Any, truth: Truth, rng: np.random.Generator, per_point: int) -> None:
    tasks, arms = rng.integers(0, N, 40), rng.integers(0, K, 40)
    visits = np.array(twin.count_visits(tasks.tolist()))
    out = np.zeros((3, -(-40 // per_point)))
    kind, key, *rest = truth.rest
    kernel("judge")(kind, key, tasks, visits, arms, *rest, per_point, out)
    asked = (tasks.tolist(), visits.tolist(), arms.tolist())
    close(out, twin.judge(truth.law, KEY, *asked, truth.means, per_point))


# -- players -------------------------------------------------------------------------------------------------


class Course:
    """Whom the decisions are for: n of them, numbers 11, 12 ... of seed 9."""

    SEED, FIRST = 9, 11

    def __init__(self, rng: np.random.Generator, n: int, pooled: bool) -> None:
        self.n, self.tasks = n, rng.integers(0, N, n)
        self.visits = np.array(twin.count_visits(self.tasks.tolist()))
        self.inside = np.zeros_like(self.tasks) if pooled else self.tasks
        self.chosen, self.rewards = np.full(n, -1), np.full(n, np.nan)

    @property
    def where(self) -> tuple[Any, ...]:
        return self.tasks, self.visits, self.inside

    @property
    def plain(self) -> twin.Decisions:
        return twin.Decisions(self.SEED, self.FIRST, *(x.tolist() for x in self.where))

    def check(self, arms: list[int], rewards: list[float]) -> None:
        """What was played is this, and nothing was touched beyond."""
        assert self.chosen[: len(arms)].tolist() == arms
        close(self.rewards[: len(arms)], rewards)
        assert (self.chosen[len(arms) :] == -1).all()


@pytest.mark.parametrize("pooled", [False, True], ids=["own", "pooled"])
@pytest.mark.parametrize("draws", [0, 1, N], ids=["always", "shared", "by task"])
@pytest.mark.parametrize(("layout", "extra"), [("given", True), ("by_arm", False)])
def test_play_cells(
    kernel: Any, truth: Truth, rng: np.random.Generator, layout: str, extra: bool, draws: int, pooled: bool
) -> None:
    course = Course(rng, 30, pooled)
    for stop in (False, True):  # to the end, and until the draw is stale
        cells = Cells(np.random.default_rng(3), layout, full=extra, extra=extra)
        thetas = np.random.default_rng(4).normal(size=(draws, cells.made.n_features))
        tau2 = np.array([[cells.tau2(i, a) for a in range(K)] for i in range(N)])
        ceiling = twin.information(cells.factor) + 0.5 if stop else math.inf
        course.chosen[:] = -1
        played = kernel("play_cells")(
            *cells.arrays, thetas, ceiling, 0.8, np.uint64(Course.SEED), Course.FIRST, *course.where,
            *truth.rest, course.chosen, course.rewards,
        )  # fmt: skip
        arms, rewards = twin.play_cells(
            cells.plain, cells.root, cells.mean, cells.phi, tau2, cells.noise, thetas, ceiling, 0.8,
            course.plain, truth.law, KEY, truth.means,
        )  # fmt: skip
        assert played == len(arms)
        assert (played < course.n) == stop
        course.check(arms, rewards)
        cells.check()


@pytest.mark.parametrize("block", [1, 3, 10**6])
def test_play_cells_in_blocks_of_any_length(
    truth: Truth, rng: np.random.Generator, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the draw becomes stale with the last interaction of a block."""
    course, written = Course(rng, 30, pooled=False), play.play_cells
    found = []
    for length in (play.BLOCK, block):
        monkeypatch.setattr(play, "BLOCK", length)
        cells = Cells(np.random.default_rng(3), "given", full=False, extra=False)
        ceiling = twin.information(cells.factor) + 0.5
        played = getattr(written, "py_func", written)(
            *cells.arrays, np.zeros((0, cells.made.n_features)), ceiling, 0.8, np.uint64(Course.SEED),
            Course.FIRST, *course.where, *truth.rest, course.chosen, course.rewards,
        )  # fmt: skip
        found.append((played, course.chosen[:played].tolist(), cells.factor.tolist()))
    assert found[0] == found[1]
    assert 0 < found[0][0] < course.n


def test_information(kernel: Any, rng: np.random.Generator) -> None:
    factor = Cells(rng, "given", full=True, extra=False).factor
    close(kernel("information")(factor), twin.information(factor))


@pytest.mark.parametrize("pooled", [False, True], ids=["own", "pooled"])
@pytest.mark.parametrize("shapes", ["beta", "gamma"])
def test_play_shapes(kernel: Any, rng: np.random.Generator, shapes: str, pooled: bool) -> None:
    beta = shapes == "beta"
    truth, course = Truth(twin.BERNOULLI if beta else twin.POISSON, rng), Course(rng, 40, pooled)
    laws = rng.exponential(size=(2, N, K))
    laws[0, 1, 2] = 1e-3  # far below shape 1, where gamma variates are mostly zero
    plain = laws.copy()
    kernel("play_shapes")(
        0 if beta else 1, *laws, 0.8, np.uint64(Course.SEED), Course.FIRST, *course.where, *truth.rest,
        course.chosen, course.rewards,
    )  # fmt: skip
    course.check(*twin.play_shapes(beta, *plain, 0.8, course.plain, truth.law, KEY, truth.means))
    close(laws, plain)


@pytest.mark.parametrize("pooled", [False, True], ids=["own", "pooled"])
def test_play_points(kernel: Any, truth: Truth, rng: np.random.Generator, pooled: bool) -> None:
    means, course = rng.normal(size=(N, K)), Course(rng, 40, pooled)
    means[2] = means[2, 0]  # ties go to the lowest arm
    kernel("play_points")(means, *course.where, *truth.rest, course.chosen, course.rewards)
    course.check(*twin.play_points(means, course.plain, truth.law, KEY, truth.means))
