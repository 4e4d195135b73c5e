"""Scales of the coefficients learned with the dispersion: the beta-logistic and gamma-log models given nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metabandit as mb
from metabandit.errors import InvalidInput
from metabandit.learning.ascent import ascend
from metabandit.learning.variances import DEGREES
from metabandit.models.collapsed_learning import Evidence
from metabandit.models.scaled_prior import log_prior
from metabandit.streams import Stream

KINDS = [mb.BetaLogisticModel, mb.GammaLogModel]


def simulated(
    model: Any, n_tasks: int, k: int, pulls: int, scales: Any, d: int = 20, psi: float = 0.2, seed: int = 1
) -> tuple[Any, Any]:
    """A belief in which every other coefficient belongs to the second of two groups, and the data."""
    rng = np.random.default_rng(seed)
    groups = np.arange(d) % 2
    phi = rng.standard_normal((n_tasks, k, d))
    size = np.sqrt(np.asarray(scales)[groups])
    theta = size * np.where(rng.random(d) < 0.5, -1.0, 1.0)  # the mean square of each group is its scale
    mu = np.exp(phi @ theta)
    tasks, arms = rng.integers(n_tasks, size=pulls), rng.integers(k, size=pulls)
    if isinstance(model, mb.BetaLogisticModel):
        mu = mu / (1.0 + mu)
        r = rng.beta(mu / psi, (1.0 - mu) / psi)
        rewards = (rng.random(pulls) < r[tasks, arms]).astype(float)
    else:
        rewards = rng.poisson(rng.gamma(1.0 / psi, psi * mu)[tasks, arms]).astype(float)
    belief = model.belief(k, d, groups=groups)
    belief.add_tasks(phi)
    belief.observe(tasks, arms, rewards)
    return belief, (phi, tasks, arms, rewards)


def objective(belief: Any) -> tuple[Evidence, Any]:
    """Evidence + log prior around what the belief has learned, and where it is there."""
    _ = belief.prior
    coefs = belief.coefs
    evidence = Evidence(coefs, coefs.mean[coefs.busy])
    return evidence, evidence.start(coefs)


# -- the objective ---------------------------------------------------------------------------------


@pytest.mark.parametrize("psi", [0.0, 0.2, None])
@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_difference_quotients(kind: Any, psi: float | None) -> None:
    belief, _ = simulated(kind(dispersion=psi, refit=0.0), 30, 3, 400, [0.05, 0.3], d=6)
    evidence, best = objective(belief)
    vector, h = best + np.array([0.5, -0.4, 0.3])[: len(best)], 1e-4
    numeric = [(evidence(vector + s)[0] - evidence(vector - s)[0]) / (2 * h) for s in h * np.eye(len(best))]
    assert evidence(vector)[1] == pytest.approx(numeric, rel=1e-6, abs=1e-5)
    assert evidence(best)[1] == pytest.approx(np.zeros(len(best)), abs=1e-5)  # it has been maximised


def test_the_weak_prior() -> None:
    """Scaled inverse chi-square in the logarithm: highest at its centre, zero at zero."""
    centres = np.array([0.5, 3.0])
    value, slope, curvature = log_prior(np.log(centres), centres)
    assert slope == pytest.approx([0.0, 0.0], abs=1e-12)
    assert curvature == pytest.approx(np.full(2, 0.5 * DEGREES))
    for factor in (0.5, 2.0):
        assert log_prior(np.log(factor * centres), centres)[0] < value
    assert log_prior(np.log(1e-3 * centres), centres)[0] < value - 900


def test_ascent_never_goes_down() -> None:
    def banana(x: Any) -> Any:
        a, b = x[1] - x[0] ** 2, 1.0 - x[0]
        return -(100 * a * a + b * b), np.array([400 * a * x[0] + 2 * b, -200 * a])

    best, values = ascend(banana, np.array([-1.2, 1.0]), np.eye(2))
    assert best == pytest.approx([1.0, 1.0], abs=1e-5)
    assert (np.diff(values) > 0).all()
    walled, _ = ascend(lambda x: (-np.inf if x[0] > 1 else float(x[0]), np.ones(1)), np.zeros(1), np.eye(1))
    assert 0.9 < walled[0] <= 1.0


# -- what is learned -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_two_groups_are_recovered(kind: Any) -> None:
    truth = [0.05, 1.5] if kind is mb.BetaLogisticModel else [0.03, 0.2]
    belief, _ = simulated(kind(), 300, 4, 20_000, truth, d=30)
    assert belief.prior.scale == pytest.approx(truth, rel=0.3)
    assert belief.dispersion == pytest.approx(0.2, rel=0.3)
    mean, cov = belief.mode, belief.coef.cov
    centre = belief.prior.centres(belief.features)
    for g in (0, 1):  # nearly the fixed point (prior + |m|^2 + tr C) / (prior + d)
        mine = belief.prior.groups == g
        fixed = DEGREES * centre[g] + (mean[mine] ** 2).sum() + np.trace(cov[np.ix_(mine, mine)])
        assert belief.prior.scale[g] == pytest.approx(fixed / (DEGREES + mine.sum()), rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_evidence_is_not_lower_than_at_the_start(kind: Any) -> None:
    belief, (phi, tasks, arms, rewards) = simulated(kind(dispersion=0.2), 60, 3, 900, [0.01, 0.4])
    centre = belief.prior.centres(belief.features)
    start = kind(0.0, centre[belief.prior.groups], 0.2).belief(3, 20)
    start.add_tasks(phi)
    start.observe(tasks, arms, rewards)
    gained = belief.log_evidence - start.log_evidence
    assert gained > 1.0
    assert gained + log_prior(np.log(belief.prior.scale), centre)[0] > log_prior(np.log(centre), centre)[0]


@pytest.mark.parametrize("sampler", ["exact", "filter"])
@pytest.mark.parametrize("kind", KINDS)
def test_few_rewards_never_drive_a_scale_to_zero(kind: Any, sampler: str) -> None:
    """Rewards that say "no effect at all", or nothing: the scale stays above what its prior alone would leave."""
    belief = kind(sampler=sampler).belief(2, 4)
    phi = np.random.default_rng(2).standard_normal((6, 2, 4))
    belief.add_tasks(phi)
    least = belief.prior.centres(belief.features) * DEGREES / (DEGREES + 4)
    for j in range(40):
        belief.observe(j % 6, j % 2, (j // 2) % 2)
        assert belief.prior.scale > 0.5 * least, j
        assert belief.prior.scale < 20 * least, j


def test_a_scale_is_a_prior_variance() -> None:
    """The same belief as with what was learned given from the start."""
    for kind in KINDS:
        belief, (phi, tasks, arms, rewards) = simulated(kind(), 40, 3, 500, [0.05, 0.5], d=6)
        known = kind(0.0, belief.prior.scale[belief.prior.groups], belief.dispersion).belief(3, 6)
        known.add_tasks(phi)
        known.observe(tasks, arms, rewards)
        assert known.mode == pytest.approx(belief.mode, abs=1e-7)
        assert known.information == pytest.approx(belief.information, abs=1e-6)
        assert known.log_evidence == pytest.approx(belief.log_evidence, abs=1e-6)
        assert known.prior.scale.tolist() == [1.0]


def test_units_of_the_features_do_not_matter() -> None:
    belief, (phi, tasks, arms, rewards) = simulated(mb.BetaLogisticModel(), 30, 3, 400, [0.05, 0.5], d=4)
    unit = np.array([100.0, 0.01] * 2)
    other = mb.BetaLogisticModel().belief(3, 4, groups=[0, 1, 0, 1])
    other.add_tasks(phi * unit)
    empty = other.prior.scale.copy()
    other.observe(tasks, arms, rewards)
    assert other.prior.scale * unit[:2] ** 2 == pytest.approx(belief.prior.scale, rel=1e-6)
    assert other.moments(np.arange(5))[0] == pytest.approx(belief.moments(np.arange(5))[0], abs=1e-5)
    assert empty == pytest.approx(other.prior.centres(other.features))


def test_the_filter_learns_the_same_scales() -> None:
    belief, (phi, tasks, arms, rewards) = simulated(mb.BetaLogisticModel(), 40, 3, 600, [0.02, 0.6], d=6)
    online = mb.BetaLogisticModel(sampler="filter").belief(3, 6, groups=np.arange(6) % 2)
    online.add_tasks(phi)
    for j in range(600):
        online.observe(tasks[j], arms[j], rewards[j])
    assert online.prior.scale == pytest.approx(belief.prior.scale, rel=0.1)
    assert online.dispersion == pytest.approx(belief.dispersion, rel=0.1)


# -- no data, growth, saving -----------------------------------------------------------------------


def test_without_data_the_scale_is_the_centre_of_its_prior() -> None:
    """Also when all data were taken back, and whatever was asked in between."""
    for sampler in ("exact", "filter"):
        belief = mb.BetaLogisticModel(sampler=sampler).belief(2, 4, "by_arm")
        assert belief.prior.scale.tolist() == [1.0, 1.0]
        assert belief.prior.groups.tolist() == [0, 1, 0, 1]
        belief.add_task([1.0, 2.0])
        assert belief.prior.scale == pytest.approx([1.0, 0.25])
        assert np.diag(belief.coef.cov) == pytest.approx([1.0, 0.25, 1.0, 0.25], rel=0.2)
        belief.add_task([1.0, 0.0])
        assert belief.prior.scale == pytest.approx([1.0, 0.5])
        belief.set_features(1, [1.0, 2.0])
        assert belief.prior.scale == pytest.approx([1.0, 0.25])
        belief.observe([0, 0, 1], [0, 0, 1], [1, 1, 0])
        assert np.isfinite(belief.draw(Stream(1))).all()
        assert belief.prior.scale != pytest.approx([1.0, 0.25], rel=1e-3)
        belief.retract([0, 0, 1], [0, 0, 1], [1, 1, 0])
        belief.add_task([1.0, 2.0])
        assert belief.prior.scale == pytest.approx([1.0, 0.25])
        assert belief.information == pytest.approx(0.0, abs=1e-12)


def test_new_columns_and_arms_find_their_group() -> None:
    belief = mb.BetaLogisticModel().belief(2, 4, "by_arm")
    belief.add_tasks(np.random.default_rng(3).standard_normal((9, 2)))
    belief.observe(np.arange(60) % 9, np.arange(60) % 2, np.arange(60) % 7 < 3)
    first, second = belief.prior.scale
    belief.add_columns(2, [1, 2])
    belief.add_arms(1)
    assert belief.prior.groups.tolist() == [0, 1, 1, 2] * 3
    assert belief.prior.scale == pytest.approx([first, second, (first + second) / 2])
    assert np.sqrt(belief.prior.scale[belief.prior.groups]) == pytest.approx(
        np.linalg.norm(belief.coefs.prior.root, axis=1)
    )
    belief.add_columns(1)
    assert belief.prior.groups.tolist() == [0, 1, 1, 2, 3] * 3
    for wrong in ([0.5], [-1], [0, 1], "g"):
        with pytest.raises(InvalidInput, match="groups"):
            belief.add_columns(1, wrong)
        with pytest.raises(InvalidInput, match="groups"):
            mb.GammaLogModel().belief(1, 3, groups=wrong)
    assert belief.n_features == 15
    belief.add_task(np.ones(5))
    belief.observe([9] * 30, [2] * 30, [1] * 30)
    assert (belief.prior.scale > 0).all()


def test_given_covariances_are_not_learned() -> None:
    for cov in (0.0, 0.7, [0.7, 0.2], np.array([[0.7, 0.1], [0.1, 0.2]])):
        belief = mb.BetaLogisticModel(coef_cov=cov).belief(1, 2, groups=[0, 1])
        root = belief.coefs.prior.root.copy()
        belief.add_tasks(3.0 * np.ones((4, 1, 2)))
        belief.observe(np.arange(40) % 4, np.zeros(40, int), np.arange(40) % 3 == 0)
        belief.draw(Stream(1))
        assert belief.prior.scale.tolist() == [1.0, 1.0]
        np.testing.assert_array_equal(belief.coefs.prior.root, root)


@pytest.mark.parametrize("dispersion", [None, 0.2, "drawn"])
@pytest.mark.parametrize("sampler", ["exact", "filter"])
def test_a_restored_belief_goes_on(dispersion: Any, sampler: str) -> None:
    """Bit for bit, through refits, new groups, new features and rewards taken back."""
    if (dispersion, sampler) == ("drawn", "filter"):
        return
    model = mb.BetaLogisticModel(dispersion=dispersion, sampler=sampler)
    belief, (phi, tasks, arms, rewards) = simulated(model, 12, 2, 90, [0.1, 1.0], d=4)
    belief.draw(Stream(1))
    belief.add_columns(1, [2])
    copy = model.belief(2, 4)
    copy.restore(belief.state())
    wide = np.concatenate([phi, phi[..., :1] ** 2], axis=2)
    for one in (belief, copy):
        one.set_features(3, wide[3])
        one.observe(tasks[:20], arms[:20], 1.0 - rewards[:20])
        one.draw(Stream(2))
        one.retract(tasks[:9], arms[:9], 1.0 - rewards[:9])
        one.add_task(wide[0])
        one.observe(12, 1, 1)
    np.testing.assert_array_equal(copy.draw(Stream(5)), belief.draw(Stream(5)))
    np.testing.assert_array_equal(copy.prior.scale, belief.prior.scale)
    np.testing.assert_array_equal(copy.posterior(3).cov, belief.posterior(3).cov)
    np.testing.assert_array_equal(copy.prior_from_metadata(0), belief.prior_from_metadata(0))
    assert (copy.dispersion, copy.information) == (belief.dispersion, belief.information)


def test_when_scales_are_learned() -> None:
    """With the dispersion: whenever the number of rewards has grown by the share `refit`, whatever the batches."""
    model = mb.BetaLogisticModel(refit=0.5)  # after 1, 2, 4, 7, 11, 17, 26, 40, 61, 92, 139 rewards
    belief, (phi, tasks, arms, rewards) = simulated(model, 20, 2, 139, [0.1, 1.0], d=4)
    late = model.belief(2, 4, groups=np.arange(4) % 2)
    late.add_tasks(phi)
    late.observe(tasks[:100], arms[:100], rewards[:100])
    before = late.prior.scale.copy()
    late.observe(tasks[100:138], arms[100:138], rewards[100:138])
    np.testing.assert_array_equal(late.prior.scale, before)
    late.observe(tasks[138:], arms[138:], rewards[138:])
    np.testing.assert_array_equal(late.prior.scale, belief.prior.scale)
    assert (late.prior.scale != before).all()


def test_the_bandit_learns_a_scale_for_every_column() -> None:
    bandit = mb.MultiTaskBandit(["a", "b"], metadata="x + C(kind)", model=mb.BetaLogisticModel(), seed=1)
    for j in range(60):
        record = {"x": j % 5, "kind": "uvw"[j % 3]}
        bandit.learn(bandit.decide(f"t{j % 20}", record), float(j % 4 < 2))
    belief: Any = bandit.belief
    assert len(belief.prior.scale) == len(set(belief.prior.groups)) > 2
    assert len(set(belief.prior.scale)) == len(belief.prior.scale)
