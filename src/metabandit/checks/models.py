"""The contract of a model and its belief, as checks that any implementation can run: ours and a user's own.

`check_model` runs all of them; a test suite runs MODEL_CHECKS one by one, so that each failure has a name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.streams import Stream, keys

Array = np.ndarray[Any, Any]

N_TASKS, N_REWARDS, N_DRAWS = 5, 24, 4000
FAR = 5.0  # standard errors: a correct sampler of fixed seed stays below, a wrong one is far above


@dataclass(frozen=True)
class Case:
    """A model under test.

    make_model : () -> a model, the same every time.
    make_reward : (rng, n) -> n rewards the model accepts, not all equal.
    shape : what one task comes with; by default what the belief's own store of features says.
    options : further arguments of model.belief.
    slack : what posterior moments may miss by, in posterior standard deviations, where they are approximate.
    tolerance : relative error of what is exact up to rounding.
    retracts : whether rewards can be taken back; if not, retract has to refuse.
    """

    make_model: Callable[[], Any]
    make_reward: Callable[[np.random.Generator, int], Any]
    n_arms: int = 3
    n_features: int = 4
    shape: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    slack: float = 0.0
    tolerance: float = 1e-7
    retracts: bool = True

    def empty(self) -> Any:
        """A belief without tasks."""
        return self.make_model().belief(self.n_arms, self.n_features, **self.options)

    def phi(self, belief: Any, n: int, seed: int = 1) -> Array:
        """Features of n tasks in the shape that the belief has now."""
        shape = belief.features.shape if self.shape is None else self.shape
        return np.random.default_rng(seed).normal(size=(n, *shape))

    def with_tasks(self) -> Any:
        """A belief of N_TASKS tasks without data."""
        belief = self.empty()
        belief.add_tasks(self.phi(belief, N_TASKS))
        return belief

    def data(self, n: int = N_REWARDS, seed: int = 2) -> tuple[Array, Array, Array]:
        """n tasks, arms and rewards; the last task has none."""
        rng = np.random.default_rng(seed)
        tasks, arms = rng.integers(0, N_TASKS - 1, n), rng.integers(0, self.n_arms, n)
        return tasks, arms, np.asarray(self.make_reward(rng, n), float)

    def filled(self) -> Any:
        """A belief of N_TASKS tasks with data."""
        belief = self.with_tasks()
        belief.observe(*self.data())
        return belief


def check_model(
    make_model: Callable[[], Any],
    make_reward: Callable[[np.random.Generator, int], Any],
    *,
    skip: Collection[str] = (),
    **options: Any,
) -> None:
    """Run every check of MODEL_CHECKS that is not skipped by name; options are those of Case.

    >>> import metabandit as mb
    >>> from metabandit.checks.models import check_model
    >>> check_model(lambda: mb.LinearMixedModel(0.0, 1.0, 0.5, 1.0), lambda rng, n: rng.normal(size=n))
    """
    case = Case(make_model, make_reward, **options)
    for check in MODEL_CHECKS:
        if check.__name__ not in skip:
            check(case)


# -- shapes and reading --------------------------------------------------------------------------------------


def shapes(case: Case) -> None:
    """Every verb returns what its docstring says, whatever the number of rows."""
    belief, k = case.empty(), case.n_arms
    assert belief.reward in ("real", "binary", "count"), belief.reward
    assert belief.n_tasks == 0
    assert belief.n_observations == 0
    phi = case.phi(belief, 3)
    first = belief.add_task(phi[0])
    assert isinstance(first, int), "add_task returns an int"
    assert first == 0
    np.testing.assert_array_equal(belief.add_tasks(phi[1:]), [1, 2])
    np.testing.assert_array_equal(belief.add_tasks(phi[:0]), [])
    assert (belief.n_tasks, belief.n_arms) == (3, k)
    belief.observe(0, 0, float(case.data(1)[2][0]))
    assert belief.n_observations == 1
    _gaussian(belief.posterior(1), k)
    _gaussian(belief.coef, len(belief.coef.mean))
    for part in belief.moments(np.array([2, 0])):
        assert part.shape == (2, k)
    rng = np.random.default_rng(3)
    draw, draws = belief.draw(rng), belief.draws(keys(3, np.arange(2)))
    assert draw.ndim == 1
    assert draws.shape == (2, len(draw))
    assert belief.draws(keys(3, np.arange(1))).shape == (1, len(draw))
    for i, theta, shape in (
        (1, draw, (k,)),
        (np.array([1]), draw, (1, k)),
        (np.array([2, 0]), draws, (2, k)),
    ):
        law = belief.law(i, theta)
        assert law.mean.shape == law.sd.shape == law.sample(rng).shape == shape
        assert law.sample(rng, 6).shape == (6, *shape)
    for sample in (belief.sample, lambda *a: belief.sample_given(a[0], draw, *a[1:])):
        assert sample(1, rng).shape == (k,)
        assert sample(1, rng, 1).shape == (1, k)
        assert sample(1, rng, 4).shape == (4, k)
    assert np.isfinite(belief.information)


def _gaussian(law: Any, size: int) -> None:
    assert law.mean.shape == (size,)
    assert law.cov.shape == (size, size)
    np.testing.assert_array_equal(law.cov, law.cov.T)
    assert np.isfinite(law.mean).all()
    assert np.linalg.eigvalsh(law.cov).min(initial=0.0) > -1e-9 * max(1.0, np.abs(law.cov).max(initial=0.0))


def reading_changes_nothing(case: Case) -> None:
    """Questions leave the belief as it is, and what they return is the caller's to overwrite."""
    belief = case.filled()
    before, version = belief.state(), belief.version
    rng = np.random.default_rng(4)
    draw = belief.draw(rng)
    answers = [*belief.posterior(0), *belief.coef, *belief.moments(np.arange(N_TASKS)), draw]
    law = belief.law(np.arange(N_TASKS), draw)
    answers += [law.mean, law.sd, belief.sample(0, rng, 3)]
    answers += [value for value in belief.state().values() if isinstance(value, np.ndarray)]
    expected = summary(belief)
    for answer in answers:
        if answer.flags.writeable and answer.dtype.kind == "f":
            answer[...] = np.nan
    same(before, belief.state())
    assert belief.version == version
    np.testing.assert_array_equal(summary(belief), expected)


def questions_leave_no_trace(case: Case) -> None:
    """Whatever is asked in between, not one bit of what follows depends on it."""
    lives = []
    for asked in (False, True):
        belief = case.empty()
        for step in _life(case, belief):
            with suppress(InvalidInput):  # what a belief cannot do, both cannot
                step()
            if asked:
                _ask_everything(belief)
        lives.append(belief)
    quiet, asked_often = lives
    for key in keys(14, np.arange(3)):
        np.testing.assert_array_equal(asked_often.draw(Stream(int(key))), quiet.draw(Stream(int(key))))
    np.testing.assert_array_equal(summary(asked_often), summary(quiet))
    same(quiet.state(), asked_often.state())


def _life(case: Case, belief: Any) -> list[Callable[[], Any]]:
    """What can happen to a belief, in an order in which little is left to be worked out twice."""
    tasks, arms, rewards = case.data(60)
    phi = case.phi(belief, N_TASKS)

    def told(part: slice) -> Callable[[], Any]:
        return lambda: belief.observe(tasks[part], arms[part], rewards[part])

    def taken_back(part: slice) -> Callable[[], Any]:
        return lambda: belief.retract(tasks[part], arms[part], rewards[part])

    return [
        lambda: belief.add_columns(1) if case.shape is None else None,
        lambda: belief.add_tasks(case.phi(belief, N_TASKS) if case.shape is None else phi),
        *(told(slice(j, j + 1)) for j in range(12)),
        taken_back(slice(2, 4)),
        taken_back(slice(5, 6)),
        *(told(slice(j, j + 1)) for j in range(12, 15)),
        told(slice(15, 33)),
        told(slice(33, 34)),
        lambda: belief.set_features(1, case.phi(belief, 1, seed=15)[0]),
        told(slice(34, 35)),
        lambda: belief.add_arms(1),
        told(slice(35, 36)),
        lambda: belief.add_columns(1),
        lambda: belief.add_task(case.phi(belief, 1, seed=16)[0]),
        taken_back(slice(20, 25)),
        *(told(slice(j, j + 8)) for j in range(36, 60, 8)),
    ]


def _ask_everything(belief: Any) -> None:
    rng, every = np.random.default_rng(17), np.arange(belief.n_tasks)
    _ = belief.state(), belief.coef, belief.information, getattr(belief, "log_evidence", None)
    belief.moments(every)
    belief.law(every, belief.draw(rng))
    belief.draws(keys(18, np.arange(2)))
    for i in every.tolist():
        _ = belief.posterior(i), belief.sample(i, rng)
        with suppress(InvalidInput):  # not every belief explains itself
            _ = belief.own_data(i), belief.prior_from_metadata(i)


def only_the_given_generator(case: Case) -> None:
    """The same generator gives the same bytes, and nothing touches numpy's global state."""
    state = np.random.get_state()[1].tobytes()  # type: ignore[index]  # noqa: NPY002
    made = []
    for _ in range(2):
        belief, rng = case.filled(), np.random.default_rng(5)
        made.append(np.concatenate([belief.draw(rng), belief.sample(1, rng, 3).ravel()]))
    np.testing.assert_array_equal(made[0], made[1])
    assert np.random.get_state()[1].tobytes() == state  # type: ignore[index]  # noqa: NPY002


def moments_are_those_of_the_posterior(case: Case) -> None:
    """moments(tasks) is the mean and the standard deviations of posterior(i)."""
    belief = case.filled()
    mean, sd = belief.moments(np.arange(N_TASKS))
    for i in range(N_TASKS):
        one = belief.posterior(i)
        near(mean[i], one.mean, case)
        near(sd[i] ** 2, np.diagonal(one.cov), case)


# -- data ----------------------------------------------------------------------------------------------------


def many_are_one_at_a_time(case: Case) -> None:
    """Arrays, scalars and any batches say the same, in the same order."""
    whole, single, parts = case.filled(), case.with_tasks(), case.with_tasks()
    data = case.data()
    for i, a, y in zip(*data, strict=True):
        single.observe(int(i), int(a), float(y))
    for part in np.array_split(np.arange(N_REWARDS), 5):
        parts.observe(*(column[part] for column in data))
    for other in (single, parts):
        near(summary(other), summary(whole), case)
        assert other.n_observations == N_REWARDS


def order_does_not_matter(case: Case) -> None:
    """Rewards in any order, and tasks added before or after other tasks' rewards."""
    whole, shuffled = case.filled(), case.with_tasks()
    order = np.random.default_rng(6).permutation(N_REWARDS)
    shuffled.observe(*(column[order] for column in case.data()))
    near(summary(shuffled), summary(whole), case)
    late = case.empty()
    phi = case.phi(late, N_TASKS)
    tasks, arms, rewards = case.data()
    for i in range(N_TASKS):
        assert late.add_task(phi[i]) == i
        mine = tasks == i
        late.observe(tasks[mine], arms[mine], rewards[mine])
    near(summary(late), summary(whole), case)


def retract_undoes_observe(case: Case) -> None:
    """What was taken back was never there, also between other rewards."""
    belief, other = case.with_tasks(), case.with_tasks()
    tasks, arms, rewards = case.data()
    if not case.retracts:
        belief.observe(tasks, arms, rewards)
        _refused("retract", lambda: belief.retract(tasks[0], arms[0], rewards[0]))
        return
    kept = np.arange(N_REWARDS) % 3 > 0
    other.observe(tasks[kept], arms[kept], rewards[kept])
    belief.observe(tasks, arms, rewards)
    belief.retract(tasks[~kept], arms[~kept], rewards[~kept])
    near(summary(belief), summary(other), case)
    assert belief.n_observations == kept.sum()
    belief.retract(tasks[kept], arms[kept], rewards[kept])
    near(summary(belief), summary(case.with_tasks()), case)


def nothing_told_changes_nothing(case: Case) -> None:
    """Empty arrays are no news."""
    belief = case.filled()
    before, none = summary(belief), np.zeros(0, np.int64)
    belief.observe(none, none, np.zeros(0))
    belief.retract(none, none, np.zeros(0))
    np.testing.assert_array_equal(summary(belief), before)
    assert belief.n_observations == N_REWARDS


def version_grows_with_every_change(case: Case) -> None:
    """Whoever remembers the version knows whether an answer is still good."""
    belief = case.empty()
    phi = case.phi(belief, 2)
    seen = [belief.version]
    reward = float(case.data(1)[2][0])
    changes: list[Callable[[], Any]] = [
        lambda: belief.add_task(phi[0]),
        lambda: belief.add_tasks(phi),
        lambda: belief.observe(0, 0, reward),
    ]
    if case.retracts:
        changes.append(lambda: belief.retract(0, 0, reward))
    for change in changes:
        change()
        seen.append(belief.version)
    assert sorted(set(seen)) == seen, f"versions {seen} do not grow"


def it_learns(case: Case) -> None:
    """An arm that always gave the best reward is believed better than one that always gave the worst."""
    belief = case.with_tasks()
    rewards = case.data(50)[2]
    for _ in range(30):
        belief.observe([0, 0], [0, 1], [rewards.max(), rewards.min()])
    mean = belief.posterior(0).mean
    assert mean[0] > mean[1]


# -- sampling ------------------------------------------------------------------------------------------------


def draws_belong_to_their_keys(case: Case) -> None:
    """Row j of draws(keys) is draw(Stream(keys[j])), bit for bit, whatever else is in the batch."""
    belief = case.filled()
    made = keys(7, np.arange(4))
    draws = belief.draws(made)
    for j, key in enumerate(made):
        one = belief.draw(Stream(int(key)))
        np.testing.assert_array_equal(draws[j], one)
        assert set(draws.others) == set(one.others)
        for name, value in one.others.items():
            np.testing.assert_array_equal(draws.others[name][j], value)
    np.testing.assert_array_equal(belief.draws(made[2:3])[0], draws[2])


def a_batch_of_laws_is_its_single_laws(case: Case) -> None:
    """law(tasks, draws) row by row is law(i, draw): for one shared draw, and for a draw a task."""
    belief = case.filled()
    tasks, made = np.array([3, 0, 4, 3]), keys(8, np.arange(4))
    draws = belief.draws(made)
    each = [belief.draw(Stream(int(key))) for key in made]
    for batch, thetas in ((belief.law(tasks, draws), each), (belief.law(tasks, each[0]), [each[0]] * 4)):
        for j, i in enumerate(tasks):
            one = belief.law(int(i), thetas[j])
            assert one.independent == batch.independent
            np.testing.assert_allclose(batch.mean[j], one.mean, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(batch.sd[j], one.sd, rtol=1e-12, atol=1e-12)


def samples_follow_the_law(case: Case) -> None:
    """sample_given has the mean, the spread and the independence that law says."""
    belief, rng = case.filled(), np.random.default_rng(9)
    draw = belief.draw(rng)
    law = belief.law(0, draw)
    draws = belief.sample_given(0, draw, rng, N_DRAWS)
    cov = getattr(law, "cov", np.diag(law.sd**2))
    _moments_match(draws, law.mean, cov, 0.0)


def samples_follow_the_posterior(case: Case) -> None:
    """sample has the mean and the covariance of posterior, for a task with data and for one without."""
    belief, rng = case.filled(), np.random.default_rng(10)
    for i in (0, N_TASKS - 1):
        mean, cov = belief.posterior(i)
        _moments_match(belief.sample(i, rng, N_DRAWS), mean, cov, case.slack)


def _moments_match(draws: Array, mean: Array, cov: Array, slack: float) -> None:
    """Sample means and covariances of (n, K) draws are within FAR of their own standard errors."""
    n, sd = len(draws), np.sqrt(np.diagonal(cov))
    gap = draws - mean
    error = draws.std(axis=0) / np.sqrt(n) + 1e-12
    z = (np.abs(gap.mean(axis=0)) - slack * sd) / error
    assert z.max() < FAR, f"means are {z.max():.1f} standard errors off"
    products = gap[:, :, None] * gap[:, None, :]
    error = products.std(axis=0) / np.sqrt(n) + 1e-12
    z = (np.abs(products.mean(axis=0) - cov) - 2.0 * slack * np.outer(sd, sd)) / error
    assert z.max() < FAR, f"covariances are {z.max():.1f} standard errors off"


# -- growth, saving, refusing --------------------------------------------------------------------------------


def new_arms_leave_the_old_beliefs(case: Case) -> None:
    """New arms change nothing that was believed of the others, and can be used like them."""
    belief = case.filled()
    before, k = [belief.posterior(i) for i in range(N_TASKS)], case.n_arms
    belief.add_arms(2)
    assert belief.n_arms == k + 2
    for i, (mean, cov) in enumerate(before):
        after = belief.posterior(i)
        _gaussian(after, k + 2)
        near(after.mean[:k], mean, case)
        near(after.cov[:k, :k], cov, case)
    if case.shape is None:
        assert belief.add_task(case.phi(belief, 1)[0]) == N_TASKS
    belief.observe([0, 1], [k, k + 1], case.data(2)[2])
    _gaussian(belief.posterior(0), k + 2)
    assert belief.n_observations == N_REWARDS + 2


def new_columns_leave_the_old_beliefs(case: Case) -> None:
    """New feature columns change nothing that was believed of the tasks, and new tasks can use them."""
    belief = case.filled()
    before = [belief.posterior(i) for i in range(N_TASKS)]
    belief.add_columns(2)
    for i, one in enumerate(before):
        for old, new in zip(one, belief.posterior(i), strict=True):
            near(new, old, case)
    if case.shape is None:
        i = belief.add_task(case.phi(belief, 1)[0])
        belief.observe(i, 0, float(case.data(1)[2][0]))
        _gaussian(belief.posterior(i), case.n_arms)


def a_restored_belief_continues_bit_for_bit(case: Case) -> None:
    """restore(state()) is the same belief: same answers, same draws, same future."""
    belief, restored = case.filled(), case.empty()
    state = belief.state()
    restored.restore(state)
    phi, more = case.phi(belief, 1, seed=11)[0], case.data(9, seed=12)
    for _ in range(2):
        np.testing.assert_array_equal(summary(restored), summary(belief))
        np.testing.assert_array_equal(restored.draw(Stream(1)), belief.draw(Stream(1)))
        assert (restored.version, restored.n_observations) == (belief.version, belief.n_observations)
        for one in (belief, restored):
            one.observe(*more)
            assert one.add_task(phi) == one.n_tasks - 1
    same(restored.state(), belief.state())
    again = case.empty()
    again.restore(state)  # and the state was a copy: it did not grow with the belief
    np.testing.assert_array_equal(summary(again), summary(case.filled()))


def a_belief_that_grew_is_restored(case: Case) -> None:
    """New arms and columns stand between the old ones; saved among them, they stay where they are."""
    belief, restored = case.filled(), case.empty()
    for grow, how_many in ((belief.add_columns, 1), (belief.add_arms, 1), (belief.add_columns, 2)):
        with suppress(InvalidInput):  # vectors of one length fix the number of coefficients
            grow(how_many)
    belief.observe(*case.data(5, seed=13))
    restored.restore(belief.state())
    np.testing.assert_array_equal(summary(restored), summary(belief))
    np.testing.assert_array_equal(restored.draw(Stream(2)), belief.draw(Stream(2)))
    same(restored.state(), belief.state())


def what_is_learned_on_request_can_be_adopted(case: Case) -> None:
    """Nothing is learned unasked; what a copy learned, adopted as numbers, makes the same belief."""
    belief, copied = case.empty(), case.empty()
    belief.learn_on_request()
    belief.add_tasks(case.phi(belief, N_TASKS))
    before = belief.learned_numbers()
    belief.observe(*case.data())
    same(belief.learned_numbers(), before)
    if not before:
        belief.adopt({})
        return
    copied.learn_on_request()
    copied.restore(belief.state())
    was_due = belief.learning_due
    copied.learn()
    belief.adopt(copied.learned_numbers())
    same(belief.learned_numbers(), copied.learned_numbers())
    assert not (was_due and belief.learning_due)
    np.testing.assert_allclose(summary(belief), summary(copied), rtol=1e-7, atol=1e-9)
    wrong = {name: np.full_like(value, np.nan) for name, value in before.items()}
    _refused("adopt", lambda: belief.adopt(wrong))
    same(belief.learned_numbers(), copied.learned_numbers())


def states_are_plain(case: Case) -> None:
    """A state holds arrays, numbers and text alone, so that saving it needs no pickle."""
    for name, value in case.filled().state().items():
        plain = isinstance(value, (np.ndarray, np.generic, int, float, bool, str))
        assert plain, f"{name} is a {type(value).__name__}"
        assert np.asarray(value).dtype.kind in "fiubU", f"{name} has dtype {np.asarray(value).dtype}"


def models_are_plain_data(case: Case) -> None:
    """type(model).from_spec(model.spec()) is the model, also through JSON."""
    model = case.make_model()
    again = type(model).from_spec(json.loads(json.dumps(model.spec())))
    assert again.spec() == model.spec()
    belief = again.belief(case.n_arms, case.n_features, **case.options)
    belief.add_tasks(case.phi(belief, N_TASKS))
    belief.observe(*case.data())
    np.testing.assert_array_equal(summary(belief), summary(case.filled()))


def bad_input_is_refused_and_changes_nothing(case: Case) -> None:
    """Every refusal is an InvalidInput that names the argument, and comes before anything was changed."""
    belief = case.filled()
    before, version, believed = belief.state(), belief.version, summary(belief)
    good = float(case.data(1)[2][0])
    phi, draw = case.phi(belief, 2), belief.draw(np.random.default_rng(13))
    half_bad = phi.copy()
    half_bad.flat[0] = np.inf
    bad: dict[str, Callable[[], Any]] = {
        "an unknown task": lambda: belief.observe(N_TASKS, 0, good),
        "a negative task": lambda: belief.observe(-1, 0, good),
        "half a task": lambda: belief.observe(0.5, 0, good),
        "an unknown arm": lambda: belief.observe(0, case.n_arms, good),
        "a negative arm": lambda: belief.observe(0, -1, good),
        "a reward that is not a number": lambda: belief.observe(0, 0, float("nan")),
        "an infinite reward": lambda: belief.observe(0, 0, float("inf")),
        "a reward in words": lambda: belief.observe(0, 0, "good"),
        "no reward": lambda: belief.observe(0, 0, None),
        "a bad reward at the end of a batch": lambda: belief.observe([0, 1], [0, 0], [good, float("nan")]),
        "a bad task at the end of a batch": lambda: belief.observe([0, N_TASKS], [0, 0], [good, good]),
        "columns of unequal length": lambda: belief.observe([0, 1], [0, 0], [good]),
        "a table of rewards": lambda: belief.observe([0], [0], [[good]]),
        "a reward that is not of the model's kind": lambda: belief.observe(0, 0, _wrong_kind(belief)),
        "a reward that was never observed": lambda: belief.retract(N_TASKS - 1, 0, good),
        "more rewards than were observed": lambda: belief.retract([N_TASKS - 1] * 2, [0, 0], [good, good]),
        "features that are not numbers": lambda: belief.add_task(np.full_like(phi[0], np.nan)),
        "features of another shape": lambda: belief.add_task(phi),
        "one bad task of two": lambda: belief.add_tasks(half_bad),
        "the posterior of an unknown task": lambda: belief.posterior(N_TASKS),
        "the posterior of a negative task": lambda: belief.posterior(-1),
        "a sample of an unknown task": lambda: belief.sample(N_TASKS, np.random.default_rng(1)),
        "the law of an unknown task": lambda: belief.law(N_TASKS, draw),
        "the laws of an unknown task": lambda: belief.law(np.array([0, N_TASKS]), draw),
        "the moments of an unknown task": lambda: belief.moments(np.array([0, N_TASKS])),
        "no new arms": lambda: belief.add_arms(0),
        "fewer arms": lambda: belief.add_arms(-1),
        "half a column": lambda: belief.add_columns(1.5),
    }
    for name, call in bad.items():
        _refused(name, call)
        assert belief.version == version, f"{name} changed the version"
    same(before, belief.state())
    np.testing.assert_array_equal(summary(belief), believed)


def _refused(name: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except InvalidInput:
        return
    raise AssertionError(f"{name} was accepted")


def _wrong_kind(belief: Any) -> Any:
    return {"binary": 0.5, "count": -1.0}.get(belief.reward, "1e3 kg")


# -- comparing -----------------------------------------------------------------------------------------------


def summary(belief: Any) -> Array:
    """Every posterior mean and covariance, the coefficients and their information in one vector."""
    posteriors = [part.ravel() for i in range(belief.n_tasks) for part in belief.posterior(i)]
    coef = [part.ravel() for part in belief.coef]
    return np.concatenate([*posteriors, *coef, [belief.information]])


def near(got: Any, expected: Any, case: Case) -> None:
    """Equal up to rounding."""
    scale = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(got, expected, rtol=case.tolerance, atol=case.tolerance * scale)


def same(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Two states are equal, bit for bit."""
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)


MODEL_CHECKS: tuple[Callable[[Case], None], ...] = (
    shapes,
    reading_changes_nothing,
    questions_leave_no_trace,
    only_the_given_generator,
    moments_are_those_of_the_posterior,
    many_are_one_at_a_time,
    order_does_not_matter,
    retract_undoes_observe,
    nothing_told_changes_nothing,
    version_grows_with_every_change,
    it_learns,
    draws_belong_to_their_keys,
    a_batch_of_laws_is_its_single_laws,
    samples_follow_the_law,
    samples_follow_the_posterior,
    new_arms_leave_the_old_beliefs,
    new_columns_leave_the_old_beliefs,
    a_restored_belief_continues_bit_for_bit,
    a_belief_that_grew_is_restored,
    what_is_learned_on_request_can_be_adopted,
    states_are_plain,
    models_are_plain_data,
    bad_input_is_refused_and_changes_nothing,
)
