"""Other libraries as policies, and what a study says of who beats whom."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import metabandit as mb
from metabandit import lab
from metabandit.cli import main
from metabandit.errors import InvalidInput, MissingExtra
from metabandit.lab import peers, report, studies
from metabandit.lab.result import Part, Result
from metabandit.lab.runs import Run
from metabandit.lab.simulation import Setting
from metabandit.lab.study import Case, Outcome, Study, run_study
from metabandit.laws import Normal
from tests.statistics import P_LEAST, best_arm, best_independent_arm, frequencies

Array = np.ndarray[Any, Any]

STUDY = studies.study("peers")
NOISE_VAR = 4.0
WORLD = lab.GaussianTasks(n_tasks=6, n_arms=3, n_features=5, task_var=0.5, noise_var=NOISE_VAR).world(3)
DISJOINT = ("mabwiser", "contextualbandits", "river")


# -- the libraries -------------------------------------------------------------------------------------------------


def installed(name: str) -> peers.Library:
    pytest.importorskip(peers.MODULES[name])
    return peers.Library(name)


def taught(name: str, seed: int = 1) -> tuple[Any, tuple[Array, Array, Array]]:
    """A player that has seen 40 rewards, and these."""
    player, rng = installed(name).player(WORLD, "concurrent", seed), np.random.default_rng(5)
    tasks, arms, rewards = rng.integers(6, size=40), rng.integers(3, size=40), 2.0 * rng.standard_normal(40)
    for i, arm, reward in zip(tasks.tolist(), arms.tolist(), rewards.tolist(), strict=True):
        player.decide(i)
        player.learn(i, arm, reward)
    return player, (tasks, arms, rewards)


def disjoint_law(data: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Means and standard deviations (N, K) of one regression an arm, by the normal equations."""
    context, (tasks, arms, rewards) = peers.context_of(WORLD.problem), data
    mean, sd = np.empty((2, 6, 3))
    for a in range(3):
        rows, y = context[tasks[arms == a]], rewards[arms == a]
        cov = np.linalg.inv(np.eye(context.shape[1]) + rows.T @ rows / NOISE_VAR)
        mean[:, a] = context @ cov @ rows.T @ y / NOISE_VAR
        sd[:, a] = np.sqrt(np.einsum("ij,jk,ik->i", context, cov, context))
    return mean, sd


def joint_belief(data: tuple[Array, Array, Array]) -> Any:
    belief = WORLD.problem.model.belief(3, 5)
    belief.add_tasks(WORLD.problem.phi)
    belief.observe(*data)
    return belief


@pytest.mark.parametrize("name", peers.MAKERS)
def test_a_peer_believes_what_its_model_says_with_the_true_variances(name: str) -> None:
    player, data = taught(name)
    exact = disjoint_law(data)[0] if name in DISJOINT else joint_belief(data).moments(np.arange(6))[0]
    np.testing.assert_allclose(player.means(), exact, atol=1e-9)


def test_mabwiser_draws_every_arm_from_its_law() -> None:
    """One by one: its draws of different arms are not independent."""
    player, data = taught("mabwiser")
    mean, sd = (table[2] for table in disjoint_law(data))
    made = [player.bandit.predict_expectations(player.context[2]) for _ in range(2000)]
    draws = np.array([[expectation[a] for a in range(3)] for expectation in made])
    for a in range(3):
        assert stats.kstest(draws[:, a], stats.norm(mean[a], sd[a]).cdf).pvalue > P_LEAST
        assert stats.kstest(draws[:, a], stats.norm(mean[a], 1.5 * sd[a]).cdf).pvalue < P_LEAST


def test_contextualbandits_draws_arms_from_their_laws() -> None:
    player, data = taught("contextualbandits")
    mean, sd = disjoint_law(data)
    counts = np.bincount([player.decide(2) for _ in range(3000)], minlength=3)
    assert frequencies(counts, best_independent_arm(mean[2], sd[2])) > P_LEAST
    assert frequencies(counts, best_independent_arm(mean[2], 1.5 * sd[2])) < P_LEAST  # a planted bug is seen


def test_the_regression_with_a_column_for_every_effect_draws_as_mtts_does() -> None:
    player, data = taught("bayesianbandits")
    mean, cov = joint_belief(data).posterior(2)
    counts = np.bincount([player.decide(2) for _ in range(3000)], minlength=3)
    assert frequencies(counts, best_arm(mean, cov)) > P_LEAST
    assert frequencies(counts, best_arm(mean, 2.25 * cov)) < P_LEAST


def test_river_takes_the_highest_upper_bound_of_a_reward() -> None:
    player, data = taught("river")
    mean, sd = disjoint_law(data)
    bounds = mean + np.sqrt(sd**2 + NOISE_VAR)
    assert [player.decide(i) for i in range(6)] == bounds.argmax(axis=1).tolist()


@pytest.mark.parametrize("name", peers.MAKERS)
def test_a_peer_plays_a_seed_as_it_did_before(name: str) -> None:
    environment = lab.GaussianTasks(n_tasks=5, n_arms=3, n_features=4)
    first, again = (lab.simulate(environment, [installed(name)], horizon=5, seeds=2) for _ in range(2))
    np.testing.assert_array_equal(first.parts[0].totals(), again.parts[0].totals())


def test_many_cells_take_the_sparse_path_and_believe_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = taught("bayesianbandits")[0].means()
    monkeypatch.setattr(peers, "FASTER_SPARSE", 0)
    np.testing.assert_allclose(taught("bayesianbandits")[0].means(), dense, atol=1e-9)


def test_a_context_holds_a_constant_the_features_that_differ_and_the_task() -> None:
    context = peers.context_of(WORLD.problem)
    assert context.shape == (6, 1 + 3 * 2 + 6)  # an arm's own intercept says nothing about the task
    sd = np.sqrt(1.0 / 5)
    np.testing.assert_allclose(context[:, 0], sd)
    np.testing.assert_allclose(context[:, 1:7], sd * WORLD.problem.phi[:, :, 3:].reshape(6, 6))
    np.testing.assert_allclose(context[:, 7:], np.sqrt(0.5) * np.eye(6))


@pytest.mark.parametrize(
    "environment",
    [lab.BernoulliTasks(n_tasks=3, n_arms=2, n_features=2), lab.GaussianTasks(4, 2, 3, correlation=0.5)],
)
def test_peers_are_for_real_rewards_and_variances_that_are_numbers(environment: lab.Environment) -> None:
    with pytest.raises(InvalidInput, match="policies"):
        peers.known(environment.world(0).problem)


# -- without the libraries -----------------------------------------------------------------------------------------


def test_a_missing_library_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in peers.MODULES.values():
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'metabandit[bench]'")):
        lab.simulate(lab.GaussianTasks(n_tasks=3), ["mtts", peers.PEERS[0]], horizon=2, seeds=1)
    out = tmp_path / "results"
    with pytest.raises(MissingExtra, match="bayesianbandits"):
        run_study(STUDY, out, seeds=1)
    command = ["study", "run", "figure-2-gaussian", "peers", "--seeds", "1", "--out", str(out)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert not out.exists()


def test_a_peer_is_plain_data_whether_it_is_installed_or_not() -> None:
    assert {peer.spec()["peer"] for peer in peers.PEERS} == set(peers.MODULES)


# -- what the study says -------------------------------------------------------------------------------------------


def outcome_of(regrets: dict[str, list[float]], folder: Path) -> Outcome:
    """A study with one setting in which policies had these regrets, seed by seed."""
    environment = lab.GaussianTasks(n_tasks=3)
    study = Study(
        "made", "Made", "Up.", (Case("it", environment),), orders=("concurrent",), challenged=("mtts",)
    )
    setting = Setting(environment, tuple(regrets), "concurrent", 1, "it")
    parts = [Part("it", "concurrent", name, "real", name, setting) for name in regrets]
    for part, totals in zip(parts, regrets.values(), strict=True):
        part.runs = {seed: Run(np.array([[y], [y], [1.0], [1.0]]), 0.1) for seed, y in enumerate(totals)}
    return Outcome(study, "stated", Result(parts), folder)


BASE = [100.0, 300.0, 150.0, 250.0]
CLOSE = [95.2, 294.8, 145.1, 244.9]  # five less on every seed, though seeds differ by a hundred


def test_policies_are_compared_on_the_same_seeds(tmp_path: Path) -> None:
    regrets = {"oracle-ts": [1.0] * 4, "mtts": BASE, "close": CLOSE, "shuffled": CLOSE[::-1]}
    outcome = outcome_of(regrets, tmp_path)
    group = outcome.result.parts
    ((winner, by, error),) = report.better(group, group[1])
    assert winner.name == "close"
    assert by == pytest.approx(5.0)
    assert error == pytest.approx(np.std(np.subtract(BASE, CLOSE), ddof=1) / 2.0)
    said = report.report(outcome)
    assert "mtts is beaten in 1 of 1 settings; furthest ahead of it: close in 1." in said
    assert "- concurrent, it: mtts (200) is beaten by close by 5 ± 0 (2%)." in said
    assert "(with 4 seeds: above 10.2 standard errors)" in said  # Student's t with 3 degrees of freedom


@pytest.mark.parametrize(
    "regrets",
    [
        {"mtts": BASE, "worse": [y + 5.0 for y in BASE]},
        {"mtts": BASE, "doubtful": [y - 5.0 * j for j, y in enumerate(BASE)]},
        {"mtts": [100.0], "better, on one seed": [1.0]},
        {"mtts": BASE, "oracle-ts": [1.0] * 4},
    ],
    ids=["worse", "doubtful", "one seed", "oracle"],
)
def test_nobody_is_said_to_win_without_evidence(regrets: dict[str, list[float]], tmp_path: Path) -> None:
    said = report.report(outcome_of(regrets, tmp_path))
    assert "mtts is beaten in 0 of 1 settings." in said
    assert "is beaten by nobody that the test sees." in said


def test_the_most_is_said_first(tmp_path: Path) -> None:
    regrets = {"mtts": BASE, "good": [y - 5.0 for y in BASE], "best": [y - 9.0 for y in BASE]}
    assert "is beaten by best by 9 ± 0 (4%), good by 5 ± 0 (2%)." in report.report(
        outcome_of(regrets, tmp_path)
    )


def test_a_pair_of_policies_that_are_the_same_is_no_evidence(tmp_path: Path) -> None:
    assert "is beaten by nobody that the test sees." in report.report(
        outcome_of({"mtts": BASE, "twin": BASE}, tmp_path)
    )


def test_over_few_interactions_thompson_sampling_loses_to_our_own_policies(tmp_path: Path) -> None:
    short = replace(
        STUDY.cases[0], policies=tuple(p for p in STUDY.cases[0].policies if p not in peers.PEERS)
    )
    outcome = run_study(replace(STUDY, cases=(short,), orders=("concurrent",)), tmp_path, seeds=12)
    names = [part.name for part, _, _ in report.better(outcome.result.parts, outcome.result.part("mtts"))]
    assert {"greedy", "upper-0.75", "upper-0.95", "tempered-0.25", "tempered-0.5"} <= set(names)
    assert "individual-ts" not in names
    said = (tmp_path / "peers" / "report.md").read_text()
    assert "mtts is beaten in 1 of 1 settings" in said
    assert (tmp_path / "peers" / "figure.png").stat().st_size > 0


def test_policies_without_a_draw_are_played_with_the_law_given_everything() -> None:
    """What the study calls greedy takes the highest posterior mean, here found by hand."""
    agent = next(p for p in STUDY.cases[0].policies if getattr(p, "name", "") == "greedy")
    player = agent.player(WORLD, "concurrent", 0)
    player.learn(1, 2, 9.0)
    law = Normal(*player.belief.moments(np.array([1])))
    assert player.decide(1) == int(law.mean[0].argmax()) == 2
    assert not mb.Greedy().uses_draw


def test_every_horizon_is_played_by_ours_and_the_short_and_long_one_by_the_peers() -> None:
    by_label = {case.label: case.policies for case in STUDY.cases}
    assert all("mtts" in policies and "oracle-ts" in policies for policies in by_label.values())
    for label in ("horizon=20", "horizon=200"):
        assert set(peers.PEERS) <= {p for p in by_label[label] if isinstance(p, peers.Library)}
