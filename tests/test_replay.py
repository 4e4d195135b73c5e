"""Decisions are functions of what was learned and of the seed, whatever was asked in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metabandit as mb

MODELS: dict[str, Callable[[], Any]] = {
    "linear": lambda: mb.LinearMixedModel(),
    "beta": lambda: mb.BetaLogisticModel(),
    "beta, known": lambda: mb.BetaLogisticModel(0.0, 1.0, 0.2),
    "gamma": lambda: mb.GammaLogModel(),
    "Gaussian process": lambda: mb.GaussianProcessModel(mb.SquaredExponential(1.0), 0.5, 1.0),
}


def life(make: Callable[[], Any], ask: Callable[[mb.MultiTaskBandit, int], Any], rounds: int = 120) -> Any:
    """Arms and probabilities of a bandit's decisions, with `ask` called every seventh round."""
    bandit = mb.MultiTaskBandit(["a", "b", "c"], ["x"], make(), refresh=("every", 5), seed=3)
    rng, out = np.random.default_rng(4), []
    for t in range(rounds):
        decision = bandit.decide(f"t{t % 12}", {"x": float(t % 12) / 6.0 - 1.0})
        bandit.learn(decision, float(rng.random() < 0.3 + 0.2 * bandit.arms.index(decision.arm)))
        out.append((decision.arm, decision.probability))
        if t % 7 == 0:
            ask(bandit, t)
    return out


@pytest.mark.parametrize("name", MODELS)
def test_questions_change_no_decision(name: str, tmp_path: Any) -> None:
    def ask(bandit: mb.MultiTaskBandit, t: int) -> None:
        bandit.explain(f"t{t % 12}")
        bandit.save(tmp_path / "bandit.mb")
        _ = bandit.belief.coef, bandit.belief.information

    assert life(MODELS[name], ask) == life(MODELS[name], lambda *_: None)
