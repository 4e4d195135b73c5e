"""The demonstration behind `make run`: many users, a few message templates, and what sharing information is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Record = dict[str, Any]

ARMS = ["short", "friendly", "urgent", "detailed"]
COUNTRIES = ["NO", "PT", "JP"]


class Users:
    """Simulated users: how they like each template depends on age and country, and on themselves."""

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self.names = [f"user-{i}" for i in range(n)]
        age, country = rng.integers(18, 80, n), rng.integers(0, len(COUNTRIES), n)
        self.metadata: list[Record] = [
            {"age": int(a), "country": COUNTRIES[c]} for a, c in zip(age, country, strict=True)
        ]
        by_country, by_age = (
            rng.normal(0.0, 0.7, (len(COUNTRIES), len(ARMS))),
            rng.normal(0.0, 0.5, len(ARMS)),
        )
        shared = by_country[country] + np.outer((age - 49.0) / 18.0, by_age)
        self.truth: Array = shared + rng.normal(0.0, 0.4, (n, len(ARMS)))

    def rewards(self, arms: Array, noise: Array) -> Array:
        """One noisy reward from each user."""
        got: Array = self.truth[np.arange(len(arms)), arms] + noise[np.arange(len(arms)), arms]
        return got

    def regret(self, arms: Array) -> float:
        """How much better the best template of each user would have been, on average."""
        return float((self.truth.max(axis=1) - self.truth[np.arange(len(arms)), arms]).mean())


def play(bandit: Any, users: Users, noise: Array, tick: Callable[[], None]) -> list[float]:
    """Every user once in each round; the mean regret of every round. The noise is the same for every bandit."""
    index = {arm: a for a, arm in enumerate(ARMS)}
    regrets = []
    for errors in noise:
        made = bandit.decide_many(users.names)
        arms = np.array([index[arm] for arm in made.arm])
        bandit.learn_many(made, users.rewards(arms, errors))
        regrets.append(users.regret(arms))
        tick()
    return regrets


def marks(rounds: int) -> list[int]:
    """The rounds that are shown, the last of them among these.

    >>> from metabandit.demo import marks
    >>> marks(1), marks(5), marks(12)
    ([1], [1, 5], [1, 5, 10, 12])
    """
    return sorted({mark for mark in (1, 5, 10, 20, rounds) if mark <= rounds})


def main(n_users: int, rounds: int, seed: int, say: Callable[[str], None], tick: Callable[[], None]) -> None:
    """Three ways to choose, the same users and the same noise."""
    import metabandit as mb

    rng = np.random.default_rng(seed)
    users = Users(n_users, rng)
    noise = rng.standard_normal((rounds, n_users, len(ARMS)))
    shared = mb.MultiTaskBandit(ARMS, metadata={"age": "number", "country": "category"}, seed=seed)
    for name, record in zip(users.names, users.metadata, strict=True):
        shared.add_task(name, record)
    contenders = {
        "metabandit, with metadata": shared,
        "metabandit, without": mb.MultiTaskBandit(ARMS, seed=seed),
        "uniform at random": mb.MultiTaskBandit(ARMS, policy=mb.Random(), seed=seed),
    }
    curves = {name: play(bandit, users, noise, tick) for name, bandit in contenders.items()}
    say(f"\nmean regret per decision, {n_users} users, {len(ARMS)} templates, noise sd 1:\n")
    shown = marks(rounds)
    say(f"{'':<28}" + "".join(f"{f'round {m}':>10}" for m in shown) + f"{'sum, per user':>16}")
    for name, curve in curves.items():
        say(f"{name:<28}" + "".join(f"{curve[m - 1]:>10.2f}" for m in shown) + f"{sum(curve):>16.1f}")
    newcomer = {"age": 30, "country": "JP"}
    decision = shared.decide("a newcomer", newcomer)
    say(
        f"\na newcomer, {newcomer}: {decision.arm!r}, with probability {decision.probability:.3f} given the draw "
        "of the coefficients\nbehind this decision. Why:\n"
    )
    say(str(shared.explain("a newcomer")))
    say("\nNext: README.md shows the ten lines this takes on your own problem.")
