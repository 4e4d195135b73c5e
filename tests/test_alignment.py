"""Prior alignment against dense formulas, and what must never enter a frozen prior."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

from metabandit.errors import InvalidInput
from metabandit.models.alignment import MODES, AlignedBelief, PriorAlignment
from metabandit.models.linear import CompoundSymmetric, LinearMixedModel
from metabandit.streams import Stream, keys

K, D, N = 3, 4, 5
NOISE = 0.8
EFFECTS = [0.4, CompoundSymmetric(0.5, 0.3), np.array([0.1, 0.5, 0.0])]
PRIOR_MEAN = np.linspace(-0.5, 0.5, D)
PRIOR_COV = 0.6 * np.eye(D) + 0.2


def effect_matrix(effect):
    return effect.matrix(K) if isinstance(effect, CompoundSymmetric) else np.diag(np.broadcast_to(effect, K))


def rule(mode, effect=0.4, include_self=False, noise=NOISE):
    return PriorAlignment(LinearMixedModel(PRIOR_MEAN, PRIOR_COV, effect, noise), mode, include_self)


def interactions(seed, later=6):
    """Tasks one after another; each aligns, then pulls more: features, and (i, arm, reward) in order."""
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((N, K, D))
    events = []
    for i in range(N):
        events += [(i, a, rng.standard_normal() + 1) for a in range(K)]
        events += [(i, int(rng.integers(K)), rng.standard_normal() + 1) for _ in range(later)]
    return phi, events


def run(aligned, phi, events, seed=11):
    belief = aligned.belief(K, D, seed=seed)
    for task in phi:
        belief.add_task(task)
    for i, a, y in events:
        belief.observe(i, a, y)
    return belief


def coefficients(phi, y, effect, tasks, noise=NOISE):
    """Dense: theta given the alignment rewards y : (N, K) of some tasks."""
    a = np.linalg.inv(effect_matrix(effect) + noise * np.eye(K))
    precision, right = np.linalg.inv(PRIOR_COV), np.linalg.solve(PRIOR_COV, PRIOR_MEAN)
    for j in tasks:
        precision = precision + phi[j].T @ a @ phi[j]
        right = right + phi[j].T @ a @ y[j]
    cov = np.linalg.inv(precision)
    return cov @ right, cov


def conditioned(mean, cov, arms, rewards, noise=NOISE):
    """Dense: N(mean, cov) given rewards of arms, one row a reward."""
    z = np.eye(K)[arms]
    gain = cov @ z.T @ np.linalg.inv(z @ cov @ z.T + noise * np.eye(len(arms)))
    return mean + gain @ (rewards - z @ mean), cov - gain @ z @ cov


def first_rewards(events):
    y = np.full((N, K), np.nan)
    for i, a, reward in events:
        if np.isnan(y[i, a]):
            y[i, a] = reward
    return y


def expected(mode, effect, phi, events, i, seed=11):
    """The posterior of r_i when tasks align in the order 0, 1, 2 ...: F is the tasks before i."""
    y = first_rewards(events)
    m, c = coefficients(phi, y, effect, range(i))
    cov = effect_matrix(effect)
    if mode == "marginal":
        cov = cov + phi[i] @ c @ phi[i].T
    if mode == "sample":  # the same draw from the same belief, made independently
        belief = LinearMixedModel(PRIOR_MEAN, PRIOR_COV, effect, NOISE).belief(K, D)
        for j in range(i):
            belief.observe(np.full(K, belief.add_task(phi[j])), np.arange(K), y[j])
        np.testing.assert_allclose(belief.coef.mean, m, rtol=1e-9)
        np.testing.assert_allclose(belief.coef.cov, c, rtol=1e-9, atol=1e-13)
        m = np.asarray(belief.draw(Stream(int(keys(seed, [i])[0]))))
    arms, rewards = map(np.array, zip(*((a, r) for j, a, r in events if j == i), strict=True))
    return conditioned(phi[i] @ m, cov, arms, rewards)


def worst_gap(belief, mode, effect, phi, events):
    gaps = []
    for i in range(N):
        mean, cov = expected(mode, effect, phi, events, i)
        got = belief.posterior(i)
        gaps += [np.abs(got.mean - mean).max(), np.abs(got.cov - cov).max()]
    return max(gaps)


@pytest.mark.parametrize("effect", EFFECTS, ids=["scalar", "compound", "per arm, one zero"])
@pytest.mark.parametrize("mode", MODES)
def test_against_dense_formulas(mode, effect):
    phi, events = interactions(1)
    belief = run(rule(mode, effect), phi, events)
    assert worst_gap(belief, mode, effect, phi, events) < 1e-9


@pytest.mark.parametrize("effect", EFFECTS[:2])
def test_including_oneself_jointly_is_the_same_law(effect):
    """p(r_i | y_F, y_i): conditioning a prior from the others on y_i, or everything at once."""
    phi, events = interactions(2)
    belief = run(rule("marginal", effect, include_self=True), phi, events)
    assert worst_gap(belief, "marginal", effect, phi, events) < 1e-9


class CountsTwice(AlignedBelief):
    """The planted bug: the prior has seen y_i, and y_i comes again as data."""

    def _freeze(self, i):
        super()._freeze(i)
        self._counts[i] += 1.0
        self._sums[i] += self._first[i]


class LearnsLater(AlignedBelief):
    """The planted bug: later pulls teach the coefficients too."""

    def _learn(self, i, arm, reward):
        late = self._aligned[i]
        super()._learn(i, arm, reward)
        if late:
            self.finished.observe(i, arm, reward)


class IncludesItself(AlignedBelief):
    """The planted bug: m has seen y_i, which then enters as likelihood as well."""

    def _freeze(self, i):
        shown = self._first[i].copy()
        self.finished.observe(np.full(K, i), np.arange(K), shown)
        super()._freeze(i)


@pytest.mark.parametrize("bug", [CountsTwice, LearnsLater, IncludesItself])
@pytest.mark.parametrize(("mode", "include_self"), [("mean", False), ("marginal", False), ("marginal", True)])
def test_the_checks_see_planted_bugs(bug, mode, include_self, monkeypatch):
    phi, events = interactions(3)
    right = rule(mode, include_self=include_self)
    assert worst_gap(run(right, phi, events), mode, 0.4, phi, events) < 1e-9
    monkeypatch.setattr("metabandit.models.alignment.AlignedBelief", bug)
    assert worst_gap(run(right, phi, events), mode, 0.4, phi, events) > 1e-3


def test_what_is_learned_for_all_depends_on_metadata_only():
    phi, events = interactions(4)
    belief = run(rule("mean"), phi, events)
    louder = run(rule("mean"), phi, [(i, a, 10 * y - 3) for i, a, y in events])
    assert (belief.coef.cov == louder.coef.cov).all()
    _, cov = coefficients(phi, first_rewards(events), 0.4, range(N))
    np.testing.assert_allclose(belief.coef.cov, cov, rtol=1e-9, atol=1e-13)
    without_later = [event for k, event in enumerate(events) if k % (K + 6) < K]
    again = run(rule("mean"), phi, without_later)
    assert (again.coef.mean == belief.coef.mean).all()


def test_a_prior_stays_frozen():
    """Alignment periods that end later change nothing for a task whose own is over."""
    phi, events = interactions(5)
    mine = [event for event in events if event[0] == 0]
    before = run(rule("sample"), phi, mine).posterior(0)
    after = run(rule("sample"), phi, events).posterior(0)
    assert (before.mean == after.mean).all()
    assert (before.cov == after.cov).all()


def test_concurrent_tasks_learn_from_those_that_ended_before():
    """Round by round over the tasks, periods end in the last round, task after task."""
    phi, events = interactions(6, later=0)
    rounds = [event for a in range(K) for event in events if event[1] == a]
    belief = run(rule("marginal"), phi, rounds)
    assert worst_gap(belief, "marginal", 0.4, phi, events) < 1e-9


def test_the_first_rewards_align_wherever_they_come_from():
    """A second reward of an arm before the period is over is the task's own affair."""
    phi, events = interactions(7, later=0)
    early = [*events[:2], (0, 1, 5.0), *events[2:]]
    belief = run(rule("marginal"), phi, early)
    assert worst_gap(belief, "marginal", 0.4, phi, early) < 1e-9


def test_every_arm_once_then_thompson_sampling():
    belief = rule("sample").belief(K, D, seed=5)
    phi = np.random.default_rng(8).standard_normal((2, K, D))
    i, j = belief.add_task(phi[0]), belief.add_task(phi[1])
    rng = np.random.default_rng(9)
    arms = []
    for _ in range(K):
        assert belief.next_arm(i) is not None
        with pytest.raises(InvalidInput, match="next_arm"):
            belief.law(i)
        arms.append(belief.choose(i, rng))
        belief.observe(i, arms[-1], 1.0)
    assert sorted(arms) == list(range(K))
    assert belief.next_arm(i) is None
    assert belief.next_arm(j) == 0
    picked = np.bincount([belief.choose(i, rng) for _ in range(4000)], minlength=K) / 4000
    best = np.bincount(belief.law(i).sample(np.random.default_rng(10), 40_000).argmax(axis=1), minlength=K)
    np.testing.assert_allclose(picked, best / 40_000, atol=0.03)


def test_sampled_priors_scatter_like_the_coefficients():
    """Over seeds, the frozen prior means of mode "sample" have mean Phi m and covariance Phi C Phi'."""
    phi, events = interactions(9, later=0)
    ahead = [event for event in events if event[0] < 3]
    means = []
    for seed in range(1500):
        belief = run(rule("sample"), phi[:3], ahead, seed=seed)
        means.append(belief._mean[2])
    m, c = coefficients(phi, first_rewards(events), 0.4, range(2))
    want = phi[2] @ c @ phi[2].T
    np.testing.assert_allclose(np.mean(means, axis=0), phi[2] @ m, atol=4 * np.sqrt(want.max() / 1500))
    np.testing.assert_allclose(np.cov(np.transpose(means)), want, atol=0.15 * want.max())


def test_noise_by_arm_and_layout_by_arm():
    noise = np.array([0.5, 1.0, 2.0])
    aligned = PriorAlignment(LinearMixedModel(0.0, 1.0, 0.4, noise), "marginal")
    belief = aligned.belief(K, 2 * K, "by_arm")
    x = np.array([1.0, -0.5])
    i = belief.add_task(x)
    belief.observe(np.zeros(K, int), np.arange(K), np.ones(K))
    prior = x @ x + 0.4
    np.testing.assert_allclose(belief.law(i).mean, prior / (prior + noise), rtol=1e-12)


def test_refusals():
    with pytest.raises(InvalidInput, match="mode"):
        rule("median")
    for mode in ("mean", "sample"):
        with pytest.raises(InvalidInput, match="include_self"):
            rule(mode, include_self=True)
    for model in (LinearMixedModel(), LinearMixedModel(0.0, 1.0, 1.0, 1.0, drift=0.9), "model"):
        with pytest.raises(InvalidInput, match="model"):
            PriorAlignment(model)
    belief = rule("mean").belief(K, D)
    with pytest.raises(InvalidInput, match="i: got 0"):
        belief.observe(0, 0, 1.0)
    belief.add_task(np.zeros((K, D)))
    with pytest.raises(InvalidInput, match="i, arm, reward"):
        belief.observe([0, 0], [0, 1], [1.0])


def test_the_page_of_what_is_learned_runs():
    page = Path(__file__).resolve().parent.parent / "docs" / "models" / "learning.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 20
    assert result.failed == 0
