"""The named level beside its peers: the same tasks, the same noise, one run; time, regret and posterior error.

    python -m benchmarks.peers

The problem is the paper's: K = 8 arms, d = 15 (an intercept for each arm and 7 features given per arm), task_var 0.25,
noise 1. Every side gets the true variances. bayesianbandits gets the linear mixed model itself, with the task effects
as one-hot columns scaled by their standard deviation: the same posterior, by linear regression. mabwiser,
contextualbandits and river have no task effects and no features per arm: they get all 56 features as one context.
Each side plays whole rounds over all tasks until its time is up; regret is compared over the rounds all have played.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

import metabandit as mb
from metabandit.features import PerArm

K, P, TASK_VAR = 8, 7, 0.25
D = K + P
SECONDS, MOST_ROUNDS = 10.0, 100
Array = np.ndarray[Any, Any]


class Player(Protocol):
    """What a round asks of each side."""

    def act(self, i: int) -> int: ...
    def learn(self, i: int, arm: int, reward: float) -> None: ...
    def means(self) -> Array:
        """The posterior means of all r_i : (N, K), by this side's own model."""


class Tasks:
    """N tasks of the paper's Section 6."""

    def __init__(self, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.z = rng.standard_normal((n, K, P))
        self.phi = np.concatenate([np.broadcast_to(np.eye(K), (n, K, K)), self.z], axis=2)
        theta = rng.standard_normal(D) / np.sqrt(D)
        self.truth = self.phi @ theta + np.sqrt(TASK_VAR) * rng.standard_normal((n, K))
        self.noise = rng.standard_normal((MOST_ROUNDS, n, K))
        self.n = n


class Ours:
    """The named level: decide and learn, one decision at a time, with its exact probability."""

    def __init__(self, tasks: Tasks, refresh: str = "always") -> None:
        model = mb.LinearMixedModel(coef_cov=1.0 / D, task_cov=TASK_VAR, noise_var=1.0)
        self.bandit = mb.MultiTaskBandit(
            [str(a) for a in range(K)], PerArm([f"z{j}" for j in range(P)]), model, refresh=refresh, seed=0
        )
        for i in range(tasks.n):
            self.bandit.add_task(i, tasks.z[i])

    def act(self, i: int) -> int:
        self.decision = self.bandit.decide(i)
        return int(self.decision.arm)

    def learn(self, i: int, arm: int, reward: float) -> None:
        self.bandit.learn(self.decision, reward)

    def means(self) -> Array:
        return self.bandit.belief.moments(np.arange(self.bandit.belief.n_tasks))[0]


class BayesianBandits:
    """The linear mixed model as a regression on scaled one-hot columns, d + N K of them."""

    def __init__(self, tasks: Tasks) -> None:
        from bayesianbandits import NormalRegressor

        self.sparse = tasks.n * K > 500  # where its sparse path is the faster one
        self.regressor = NormalRegressor(alpha=1.0, beta=1.0, sparse=self.sparse, random_state=0)
        self.scaled, self.n = tasks.phi / np.sqrt(D), tasks.n

    def rows(self, i: int) -> Any:
        wide = np.zeros((K, D + self.n * K))
        wide[:, :D] = self.scaled[i]
        wide[np.arange(K), D + i * K + np.arange(K)] = np.sqrt(TASK_VAR)
        if self.sparse:
            from scipy.sparse import csc_array

            return csc_array(wide)
        return wide

    def act(self, i: int) -> int:
        self.now = self.rows(i)
        return int(self.regressor.sample(self.now)[0].argmax())

    def learn(self, i: int, arm: int, reward: float) -> None:
        row = self.now[[arm]] if not self.sparse else self.now[[arm], :]
        self.regressor.partial_fit(row, np.array([reward]))

    def means(self) -> Array:
        return np.array([self.regressor.predict(self.rows(i)) for i in range(self.n)])


class MabWiser:
    """Linear Thompson sampling, one regression an arm."""

    def __init__(self, tasks: Tasks) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        self.context = tasks.z.reshape(tasks.n, 1, K * P)
        self.bandit = MAB(list(range(K)), LearningPolicy.LinTS(alpha=1.0), seed=0)
        self.bandit.fit(list(range(K)), [0.0] * K, np.zeros((K, K * P)))

    def act(self, i: int) -> int:
        return int(self.bandit.predict(self.context[i]))

    def learn(self, i: int, arm: int, reward: float) -> None:
        self.bandit.partial_fit([arm], [reward], self.context[i])

    def means(self) -> Array:
        models = self.bandit._imp.arm_to_model
        return self.context[:, 0] @ np.array([models[a].beta for a in range(K)]).T


class ContextualBandits:
    """Linear Thompson sampling, one regression an arm."""

    def __init__(self, tasks: Tasks) -> None:
        from contextualbandits.online import LinTS

        self.context = tasks.z.reshape(tasks.n, 1, K * P)
        self.bandit = LinTS(nchoices=K, random_state=1)
        self.bandit.partial_fit(np.zeros((K, K * P)), np.arange(K), np.zeros(K))

    def act(self, i: int) -> int:
        return int(self.bandit.predict(self.context[i])[0])

    def learn(self, i: int, arm: int, reward: float) -> None:
        self.bandit.partial_fit(self.context[i], np.array([arm]), np.array([reward]))

    def means(self) -> Array:
        made = self.bandit.predict(self.context[:, 0], exploit=True, output_all_scores=True)
        return np.asarray(made["scores"])


class River:
    """LinUCB with one regression an arm: river's Thompson sampling takes no context."""

    def __init__(self, tasks: Tasks) -> None:
        from river.bandit import LinUCBDisjoint

        self.context = [dict(enumerate(row.tolist())) for row in tasks.z.reshape(tasks.n, K * P)]
        self.bandit = LinUCBDisjoint(alpha=1.0, seed=0)

    def act(self, i: int) -> int:
        return int(self.bandit.pull(list(range(K)), context=self.context[i]))

    def learn(self, i: int, arm: int, reward: float) -> None:
        self.bandit.update(arm, self.context[i], reward)

    def means(self) -> Array:
        models = self.bandit._bayes_lin_regs
        return np.array([[models[a].predict_one(row) for a in range(K)] for row in self.context])


def play(player: Player, tasks: Tasks) -> tuple[float, Array, tuple[Array, Array, Array]]:
    """Whole rounds until the time is up: us a round of one decision, the regret of each round, the data."""
    regret, data, spent = [], [], 0.0
    while spent < SECONDS and len(regret) < MOST_ROUNDS:
        errors, got = tasks.noise[len(regret)], 0.0
        for i in range(tasks.n):
            start = time.perf_counter()
            arm = player.act(i)
            reward = float(tasks.truth[i, arm] + errors[i, arm])
            player.learn(i, arm, reward)
            spent += time.perf_counter() - start
            got += tasks.truth[i].max() - tasks.truth[i, arm]
            data.append((i, arm, reward))
            if spent > 3.0 * SECONDS:  # not even one round in three times the time
                return spent / len(data) * 1e6, np.array(regret), _columns(data)
        regret.append(got / tasks.n)
    return spent / len(data) * 1e6, np.array(regret), _columns(data)


def _columns(data: list[tuple[int, int, float]]) -> tuple[Array, Array, Array]:
    i, arm, reward = zip(*data, strict=True)
    return np.array(i), np.array(arm), np.array(reward)


def posterior_error(player: Player, tasks: Tasks, data: tuple[Array, Array, Array]) -> str:
    """The largest distance from the exact posterior mean given the data this side has seen."""
    means = player.means()
    exact = mb.LinearMixedModel(coef_cov=1.0 / D, task_cov=TASK_VAR, noise_var=1.0).belief(K, D)
    exact.add_tasks(tasks.phi)
    exact.observe(*data)
    exact.rebuild()
    return f"{np.abs(means - exact.moments(np.arange(tasks.n))[0]).max():.0e}"


SIDES: dict[str, Callable[[Tasks], Player]] = {
    "metabandit": Ours,
    "bayesianbandits": BayesianBandits,
    "mabwiser": MabWiser,
    "contextualbandits": ContextualBandits,
    "river": River,
}


def main() -> None:
    warnings.simplefilter("ignore")
    play(Ours(Tasks(2)), Tasks(2))  # compile
    for n in (30, 200, 1000):
        tasks = Tasks(n)
        results = {}
        for name, make in SIDES.items():
            player = make(tasks)
            us, regret, data = play(player, tasks)
            results[name] = (us, regret, posterior_error(player, tasks, data))
        common = min(len(regret) for _, regret, _ in results.values() if len(regret))
        ours = results["metabandit"][0]
        print(f"\n{n} tasks, K = {K}, d = {D}; mean regret over the first {common} rounds\n")
        print("| | us a round | ratio | mean regret | posterior error | rounds played |")
        print("|---|---|---|---|---|---|")
        for name, (us, regret, error) in results.items():
            mean = f"{regret[:common].mean():.3f}" if len(regret) else "-"
            print(f"| {name} | {us:.0f} | {us / ours:.1f} | {mean} | {error} | {len(regret)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
