"""The published policies of Gaussian bandits: compiled loops against slow twins, and formulas by hand."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metabandit import lab
from metabandit.errors import InvalidInput
from metabandit.kernels import published, published_arms
from metabandit.lab.agents import AGENTS
from metabandit.lab.published import PUBLISHED, gaussian
from metabandit.lab.published.base import Game
from metabandit.lab.published.binary import BinaryMTTS
from tests.published_games import BINARY, HORIZON, ORDERS, REAL, SEEDS, D, K, N, played, schedule, slow
from tests.twins import published as twin

# -- Gaussian bandits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", twin.POLICIES)
def test_gaussian_policies_are_their_twins(name: str, order: str, seed: int) -> None:
    expected = slow(order, seed, REAL)
    twin.POLICIES[name](expected)
    np.testing.assert_array_equal(played(PUBLISHED["real"][name], REAL, order, seed), expected.arms)


@pytest.mark.parametrize("order", ORDERS)
def test_mtts_is_refreshed_every_so_often(order: str) -> None:
    expected = slow(order, 4, REAL)
    twin.mtts(expected, every=7)
    arms = played(gaussian.GaussianMTTS(every=7), REAL, order, 4)
    np.testing.assert_array_equal(arms, expected.arms)
    assert (arms != played(gaussian.GaussianMTTS(every=1), REAL, order, 4)).any()


@pytest.mark.parametrize("order", ORDERS)
def test_mtts_refreshed_always_is_mtts_as_stated(order: str) -> None:
    env = lab.GaussianTasks(20, 4, 7)
    arms = played(gaussian.GaussianMTTS(every=1), env, order, 3)
    np.testing.assert_array_equal(arms, played(AGENTS["mtts"], env, order, 3))


def test_the_posterior_that_goes_stale_is_the_beliefs_own() -> None:
    rng, problem = np.random.default_rng(5), REAL.world(2).problem
    belief = gaussian.belief_of("mtts", problem)
    belief.observe(rng.integers(N, size=40), rng.integers(K, size=40), rng.normal(size=40))
    centre, slopes, sd = np.zeros(K), np.zeros((K, D)), np.zeros(K)
    for i in range(N):
        room = np.zeros(D), np.zeros(D), np.zeros(D), np.zeros(D + 1)
        published.everything(gaussian.cells_of(belief), i, *room, centre, slopes, sd)
        posterior = belief.posterior(i)
        np.testing.assert_allclose(centre, posterior.mean, rtol=1e-10)
        np.testing.assert_allclose(slopes @ slopes.T + np.diag(sd**2), posterior.cov, rtol=1e-10)


def test_a_prior_variance_of_sixty_seven() -> None:
    world = lab.GaussianTasks(3, 8, 15, task_var=0.25).world(0)
    assert gaussian.wide_variance("osfa", world.problem) == pytest.approx(1000 / 15 + 1 / 15 + 0.25)
    rng = np.random.default_rng(1)  # what the code computed, on average over its own draws
    sums = [(rng.normal(scale=15**-0.5, size=(1000, 7)) ** 2).sum(axis=0).mean() for _ in range(50)]
    assert np.mean(sums) == pytest.approx(1000 / 15, rel=0.02)
    alone = lab.GaussianTasks(3, 4, 4, task_var=0.25).world(0)
    assert gaussian.wide_variance("osfa", alone.problem) == pytest.approx(1 / 4 + 0.25)


def test_osfa_takes_the_first_arm_and_leaves_it_for_certain_ones() -> None:
    """All arms look surely worth 0: the first is pulled, and the others in order, when those before disappoint."""
    for seed in range(5):
        arms = played(PUBLISHED["real"]["osfa"], REAL, "concurrent", seed)
        first = [int(np.argmax(arms == a)) for a in range(K) if (arms == a).any()]
        assert arms[0] == 0
        assert first == sorted(first)


def test_linear_ts_learns_the_reward_as_if_it_were_larger() -> None:
    """d = K = 1, theta ~ N(0, 1), noise 0.75 + 0.25: after the draw z and a reward R, P = 2 and P m = R + (R - z)."""
    env = lab.GaussianTasks(1, 1, 1, task_var=0.25, noise_var=0.75)
    world, (tasks, visits) = env.world(3), schedule("sequential", 1, 1)
    one = Game(world, "sequential", 3, tasks, visits)
    model = replace(env.model, task_cov=0.0, noise_var=1.0)
    belief = model.belief(1, 1)
    belief.add_tasks(world.problem.phi)
    published.play_linear(gaussian.cells_of(belief), *one.plan)
    z = twin.Play(world, "sequential", 3, tasks, visits).normals(1, 1)[0]
    reward = float(world.rewards(0, 0, 0)[0])
    assert belief.coef.cov[0, 0] == pytest.approx(0.5)
    assert belief.coef.mean[0] == pytest.approx(0.5 * (reward + (reward - z)))


def test_common_means_after_a_task() -> None:
    """Prior N(0, 1/2); two pulls with mean 3, effects of variance 1 and noise 2: one value 3 of variance 1 + 2/2."""
    mean, var = np.zeros(2), np.full(2, 0.5)
    published_arms.after_task(np.array([2.0, 0.0]), np.array([6.0, 0.0]), 1.0, 2.0, mean, var)
    np.testing.assert_allclose(mean, [(3 / 2) / (2 + 1 / 2), 0.0])
    np.testing.assert_allclose(var, [1 / (2 + 1 / 2), 0.5])


def test_common_means_after_a_reward() -> None:
    """A cell of two rewards 1 and 5 with effects of variance 1 and noise 2 weighs 1 / (1 + 2/2)."""
    sums = np.array([0.0, 4.0])
    published_arms.change_cell(0.0, 0.0, 1.0, 1.0, 2.0, sums)
    np.testing.assert_allclose(sums, [1 / 3, 4 + 1 / 3])
    published_arms.change_cell(1.0, 1.0, 5.0, 1.0, 2.0, sums)
    np.testing.assert_allclose(sums, [3 / 2, 4 + 1 / 2])


# -- all of them -----------------------------------------------------------------------------------------------------

ALL = [(kind, policy) for kind, policies in PUBLISHED.items() for policy in policies.values()]
ENVS = {"real": REAL, "binary": BINARY}


def test_there_is_one_for_every_policy_of_figure_2() -> None:
    others = {"mtts", "oracle-ts", "meta-ts", "individual-ts", "osfa"}
    assert set(PUBLISHED["real"]) == others | {"mtts-approx", "linear-ts"}
    assert set(PUBLISHED["binary"]) == others | {"glb-ts"}


@pytest.mark.parametrize(("kind", "policy"), ALL, ids=[f"{kind}-{policy.name}" for kind, policy in ALL])
def test_every_policy_can_be_kept_sent_and_played_again(kind: str, policy: Any) -> None:
    spec = policy.spec()
    assert spec == json.loads(json.dumps(spec))
    assert spec["variant"] == "published"
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert PUBLISHED[kind][policy.name] is policy
    for order in ORDERS:
        first = played(policy, ENVS[kind], order, 0)
        np.testing.assert_array_equal(first, played(policy, ENVS[kind], order, 0))
        assert set(np.unique(first)) <= set(range(K))


@pytest.mark.parametrize(("kind", "policy"), ALL, ids=[f"{kind}-{policy.name}" for kind, policy in ALL])
def test_what_the_code_did_not_know_is_refused(kind: str, policy: Any) -> None:
    with pytest.raises(InvalidInput, match="order: got 'random'; accepted: concurrent or sequential"):
        policy.player(ENVS[kind].world(0), "random", 0)
    with pytest.raises(InvalidInput, match="environment"):
        policy.player(ENVS["real" if kind == "binary" else "binary"].world(0), "concurrent", 0)
    other = replace(ENVS[kind].world(0), seed=1)  # features that are not this seed's
    with pytest.raises(InvalidInput, match="environment"):
        policy.player(other, "concurrent", 0)


@pytest.mark.parametrize("name", ["mtts", "mtts-approx", "linear-ts", "meta-ts", "individual-ts", "osfa"])
def test_correlated_arms_are_refused(name: str) -> None:
    env = lab.GaussianTasks(N, K, D, correlation=0.5)
    with pytest.raises(InvalidInput, match="one variance each"):
        played(PUBLISHED["real"][name], env, "concurrent", 0)


@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_oracle_is_as_stated_and_a_study_counts_regret(kind: str, order: str) -> None:
    policies = [*PUBLISHED[kind].values(), replace(PUBLISHED[kind]["oracle-ts"], name="again")]
    result = lab.simulate(ENVS[kind], policies, order=order, horizon=HORIZON, seeds=2)
    stated = lab.simulate(ENVS[kind], ["oracle-ts"], order=order, horizon=HORIZON, seeds=2)
    regret = {row["policy"]: row["regret"] for row in result.rows()}
    assert regret["oracle-ts"] == regret["again"] == stated.rows()[0]["regret"]
    assert all(row["multitask_regret"] is not None for row in result.rows())


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_refreshes_are_counted(every: Any) -> None:
    for policy in (gaussian.GaussianMTTS, BinaryMTTS):
        with pytest.raises(InvalidInput, match="every"):
            policy(every=every)
