"""The contract of environments, as one suite to run over every environment, including one's own."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy

_play: Any = Lazy("play")
Array = np.ndarray[Any, Any]

SEED, OTHER_SEED = 3, 4
VISITS = 2000  # of a cell, whose mean is then known to a 45th of a standard deviation
CELLS = 5  # tasks, with all their arms, whose rewards are looked at
FAR = 5.0  # standard errors


def check_environment(make: Callable[[], Any], others: Sequence[Any] = ()) -> None:
    """Raise AssertionError where the environments that make() returns break the contract.

    others : environments of the same class, each of which differs from make() in one setting.

    >>> from metabandit import lab
    >>> from metabandit.checks.environments import check_environment
    >>> small = {"n_arms": 3, "n_features": 5}
    >>> check_environment(lambda: lab.GaussianTasks(20, **small), [lab.GaussianTasks(21, **small)])
    """
    world = make().world(SEED)
    check_truth(world)
    check_seeds(make)
    check_secrecy(world)
    check_contexts(world)
    check_purity(world)
    check_rewards(world)
    check_judge(world)
    check_spec(make, others)


def check_seeds(make: Callable[[], Any]) -> None:
    """A world is a function of the environment's settings and the seed, also in another process."""
    world = content(make().world(SEED))
    environment = make()
    environment.world(OTHER_SEED)
    assert content(environment.world(SEED)) == world, "the same seed gave another world"
    if importable(environment):  # what was typed in cannot go to other processes
        assert content(pickle.loads(pickle.dumps(environment)).world(SEED)) == world, "a pickled copy differs"
    assert content(make().world(OTHER_SEED)) != world, "two seeds gave one world"
    assert rewards_of(make().world(OTHER_SEED)) != rewards_of(make().world(SEED)), "two seeds, same rewards"
    for seed in (-1, 0.5, "x", None):
        try:
            make().world(seed)
        except InvalidInput:
            continue
        raise AssertionError(f"{seed!r} was accepted as a seed")


def check_truth(world: Any) -> None:
    """The shapes of what is hidden and of what is known."""
    problem = world.problem
    n, k, d = problem.n_tasks, problem.n_arms, problem.n_features
    assert problem.reward in ("real", "binary", "count"), f"rewards of kind {problem.reward!r}"
    assert problem.model.reward == problem.reward, f"a model for {problem.model.reward} rewards"
    for name, hidden in (("truth", world.truth), ("prior_mean", world.prior_mean)):
        if hidden is not None:
            assert hidden.shape == (n, k), f"{name} of shape {hidden.shape}, not {(n, k)}"
            assert np.isfinite(hidden).all(), f"{name} is not finite"
    for name, array in arrays(problem):
        assert np.isfinite(array).all(), f"{name} is not finite"
    assert len(problem.metadata) == n, f"metadata of {len(problem.metadata)} tasks, not {n}"
    rows = problem.contexts or k
    assert problem.sample.shape[1:] == (rows, d), f"a sample of shape {problem.sample.shape}"
    first = np.zeros(n)
    means = world.means(np.arange(n), np.zeros(n, np.int64), first)
    assert means.shape == (n, k), f"means of shape {means.shape}"
    if world.static:
        np.testing.assert_array_equal(means, world.truth, "means of a static world are its truth")


def check_secrecy(world: Any) -> None:
    """Nothing that a policy is given is, or has as a column, what only the judge knows."""
    secrets = {
        name: array
        for name, array in (*arrays(world), ("law.values", world.law.values))
        if array.size and np.ptp(array) > 0.0
    }
    assert "truth" in secrets, "all arms of all tasks are alike"
    for name, given in arrays(world.problem):
        for secret_name, secret in secrets.items() if given.size else ():
            assert not np.shares_memory(given, secret), f"problem.{name} shares memory with {secret_name}"
            assert not exposes(given, secret), f"problem.{name} has {secret_name} in it"


def exposes(given: Array, secret: Array) -> bool:
    """Whether an array is another one, or has it or one of its columns as a column."""
    if given.size == secret.size and np.array_equal(given.ravel(), secret.ravel()):
        return True
    columns = given.reshape(-1, given.shape[-1]).T
    whole = [secret.ravel(), *(secret.T if secret.ndim == 2 else ())]
    telling = [part for part in whole if len(part) == columns.shape[1] and np.ptp(part) > 0.0]
    return any(np.array_equal(column, part) for column in columns for part in telling)


def check_contexts(world: Any) -> None:
    """Contextual problems, and no others, have vectors; they belong to the task and its visit."""
    problem = world.problem
    assert bool(problem.contexts) == (problem.slopes is not None), "contexts and slopes come together"
    if not problem.contexts:
        assert world.context(0, 0) is None, "a context in a problem without"
        return
    q = problem.contexts
    expected = (problem.n_tasks, q, problem.n_features)
    assert problem.slopes.shape == expected, f"slopes of shape {problem.slopes.shape}, not {expected}"
    assert not world.static, "with contexts the means change from visit to visit"
    seen: dict[tuple[int, int], bytes] = {}
    for place in ((0, 0), (0, 1), (problem.n_tasks - 1, 0), (0, 0)):
        z = world.context(*place)
        assert z.shape == (problem.n_arms, q), f"vectors of shape {z.shape}"
        assert seen.setdefault(place, z.tobytes()) == z.tobytes(), "a context that is not what it was"


def check_purity(world: Any) -> None:
    """A potential reward is a function of task, visit and arm (and of the time, where means change with it)."""
    tasks, visits, arms = places(world, 3)
    together = world.rewards(tasks, visits, arms, visits)
    turned = slice(None, None, -1)
    backwards = world.rewards(tasks[turned], visits[turned], arms[turned], visits[turned])
    np.testing.assert_array_equal(backwards[turned], together, "rewards depend on the order")
    for j in range(0, len(tasks), 7):
        alone = float(world.rewards(int(tasks[j]), int(visits[j]), int(arms[j]), float(visits[j]))[0])
        assert alone == together[j], "a reward alone is not what it is in a batch"


def check_rewards(world: Any) -> None:
    """Rewards are of their kind, have the means that the judge takes, and resampled ones occur in their cell."""
    n = world.problem.n_tasks
    for task in np.unique(np.linspace(0, n - 1, CELLS).astype(np.int64)):
        visits = np.arange(VISITS)
        tasks = np.full(VISITS, task)
        means = world.means(tasks, visits, visits.astype(float))
        for arm in range(world.problem.n_arms):
            got = world.rewards(tasks, visits, np.full(VISITS, arm), visits)
            check_kind(world, int(task), arm, got)
            gap = got - means[:, arm]
            spread = np.sqrt(variances(world, int(task), arm, means[:, arm]).sum())
            # Rare large rewards are further out than normal ones: a few of them are allowed beside.
            allowed = FAR * (spread + np.abs(gap).max()) + 1e-9 * np.abs(got).sum()
            where = (
                f"task {task}, arm {arm}: rewards average {got.mean():.4g}, truth {means[:, arm].mean():.4g}"
            )
            assert abs(gap.sum()) <= allowed, where
            same = world.law.kind == _play.NORMAL and np.ptp(got) == 0.0
            assert not same, f"task {task}, arm {arm}: every reward is the same"


def check_kind(world: Any, task: int, arm: int, got: Array) -> None:
    """Rewards that the model of the problem accepts; resampled ones are rewards of the cell."""
    kind = world.problem.reward
    assert np.isfinite(got).all(), "rewards that are not finite"
    if kind == "binary":
        assert np.isin(got, (0.0, 1.0)).all(), "binary rewards other than 0 and 1"
    if kind == "count":
        assert ((got >= 0.0) & (got == np.floor(got))).all(), "counts that are none"
    if world.law.kind == _play.RESAMPLED:
        own = cell(world, task, arm)
        assert np.isin(got, own).all(), f"task {task}, arm {arm}: rewards that are not in its cell"
        assert np.isclose(own.mean(), world.truth[task, arm]), f"task {task}, arm {arm}: not the cell's mean"


def check_judge(world: Any) -> None:
    """judge() counts what an obvious loop counts."""
    rng, n = np.random.default_rng(0), world.problem.n_tasks
    tasks = rng.integers(n, size=3 * n + 1)
    visits = np.array([int((tasks[:j] == i).sum()) for j, i in enumerate(tasks)])
    arms = rng.integers(world.problem.n_arms, size=len(tasks))
    times = world.times(len(tasks))
    expected = np.zeros((4, 4))
    means = world.means(tasks, visits, times)
    for j, (i, t, arm) in enumerate(zip(tasks, visits, arms, strict=True)):
        best, point = int(means[j].argmax()), j // n
        regret = means[j, best] - means[j, arm]
        good, bad = (world.rewards(i, t, a, times[j])[0] for a in (best, arm))
        expected[:, point] += regret, good - bad, regret == 0.0, 1.0
    judged = world.judge(tasks, visits, arms, n)
    np.testing.assert_allclose(judged, expected, rtol=1e-9, atol=1e-9, err_msg="the judge counts otherwise")


def check_spec(make: Callable[[], Any], others: Sequence[Any]) -> None:
    """Plain data that tells environments apart, because results are kept under it."""
    spec = make().spec()
    plain = json.dumps(spec, allow_nan=False, sort_keys=True)
    assert json.loads(plain) == spec, "a spec that JSON changes"
    assert make().spec() == spec, "two specs of one environment"
    assert make().reward == make().world(SEED).problem.reward, "the class says another kind of reward"
    for other in others:
        assert json.dumps(other.spec(), sort_keys=True) != plain, f"{other!r} has the same spec"


# -- what is looked at ---------------------------------------------------------------------------------------------


def importable(thing: Any) -> bool:
    """Whether its class is where its name says."""
    kind = type(thing)
    return getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def arrays(holder: Any) -> Iterator[tuple[str, Array]]:
    """The arrays that a problem or a world holds itself, by name."""
    return ((name, value) for name, value in vars(holder).items() if isinstance(value, np.ndarray))


def content(world: Any) -> bytes:
    """A world as bytes: all its arrays, and some of its rewards."""
    held = (*arrays(world), *arrays(world.problem), *arrays(world.law))
    return b"".join(name.encode() + np.ascontiguousarray(array).tobytes() for name, array in held) + (
        rewards_of(world)
    )


def rewards_of(world: Any) -> bytes:
    """Some rewards, as bytes."""
    tasks, visits, arms = places(world, 5)
    got: Array = world.rewards(tasks, visits, arms, visits)
    return got.tobytes()


def places(world: Any, visits: int) -> tuple[Array, Array, Array]:
    """Every arm at the first few visits of every task: tasks, visits, arms : (n,)."""
    n, k = world.problem.n_tasks, world.problem.n_arms
    grid = np.indices((n, visits, k)).reshape(3, -1)
    return grid[0], grid[1], grid[2]


def cell(world: Any, task: int, arm: int) -> Array:
    """The rewards that those of a cell are resampled from."""
    law, number = world.law, task * world.problem.n_arms + arm
    own: Array = law.values[law.starts[number] : law.starts[number + 1]]
    return own


def variances(world: Any, task: int, arm: int, means: Array) -> Array:
    """The variances of rewards with these means : (n,)."""
    kind = world.law.kind
    if kind == _play.NORMAL:
        return np.full(len(means), float(world.law.spread[arm]) ** 2)
    if kind == _play.BERNOULLI:
        return means * (1.0 - means)
    if kind == _play.POISSON:
        return means
    return np.full(len(means), float(cell(world, task, arm).var()))
