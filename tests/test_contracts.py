"""The contract of models, over every model and its variants; and that it fails for broken models.

A new model adds one line to MODELS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from metabandit.checks.models import MODEL_CHECKS, Case, check_model
from metabandit.laws import Normal
from metabandit.models.linear import CompoundSymmetric, InverseGamma, LinearMixedModel
from metabandit.models.linear_belief import LinearBelief

ROOT = np.random.default_rng(51).normal(size=(3, 3))
FULL = ROOT @ ROOT.T / 3


def real(rng: np.random.Generator, n: int) -> Any:
    return rng.normal(0.5, 1.5, n)


def linear(*arguments: Any, **named: Any) -> Callable[[], LinearMixedModel]:
    return lambda: LinearMixedModel(*arguments, **named)


# A learned variance depends on when it was learned, and is not unlearned.
LEARNS = {"order_does_not_matter", "retract_undoes_observe"}
BY_ARM: dict[str, Any] = {"n_features": 6, "options": {"layout": "by_arm"}}
MODELS: dict[str, tuple[Case, set[str]]] = {
    "linear": (Case(linear(0.3, 0.8, 0.5, 1.0), real), set()),
    "linear, per arm": (Case(linear(0.0, 0.8, [0.5, 0.0, 2.0], [0.5, 1.0, 2.0]), real), set()),
    "linear, by arm": (Case(linear(0.0, 0.8, 0.5, 1.0), real, **BY_ARM), set()),
    "linear, full": (Case(linear(0.3, 0.8, FULL, [0.5, 1.0, 2.0]), real), set()),
    "linear, singular": (Case(linear(0.0, 0.8, CompoundSymmetric(1.0, 1.0), 1.0), real), set()),
    "linear, no task effect": (Case(linear(0.0, 0.8, 0.0, 1.0), real), set()),
    "linear, known coefficients": (Case(linear(0.5, 0.0, 0.5, 1.0), real), set()),
    "linear, unknown noise": (Case(linear(0.3, 0.8, 0.5, InverseGamma(3.0, 2.0)), real), set()),
    "linear, full, unknown noise": (Case(linear(0.3, 0.8, FULL, InverseGamma(3.0, 2.0)), real), set()),
    "linear, learning": (Case(linear(), real), LEARNS),
    "linear, learning by arm": (Case(linear(0.0, None, "per_arm", "per_arm"), real, **BY_ARM), LEARNS),
    "linear, learning a full covariance": (Case(linear(0.0, 1.0, "full"), real), LEARNS),
    "linear, drifting": (Case(linear(0.0, 0.8, FULL, 1.0, drift=0.9), real, retracts=False), set()),
    "linear, discounting": (Case(linear(0.0, 0.8, 0.5, 1.0, discount=0.9), real, retracts=False), set()),
}


@pytest.mark.interpreted
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # keys wrap around on purpose
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_contract(name: str, check: Callable[[Case], None]) -> None:
    case, skipped = MODELS[name]
    if check.__name__ in skipped:
        pytest.skip("not promised by this model")
    check(case)


# -- the checks themselves can fail --------------------------------------------------------------------------


class Broken(LinearMixedModel):
    """A linear model whose belief has one fault."""

    fault: type[LinearBelief]

    def belief(self, n_arms: int, n_features: int, layout: str = "given", *_: Any, **__: Any) -> LinearBelief:
        return type(self).fault(self, n_arms, n_features, layout)


class DropsOwnHistory(LinearBelief):
    def law(self, i: Any, draw: Any, z: Any = None) -> Any:
        means = self.features.means(np.atleast_1d(i), np.asarray(draw))
        sd = np.sqrt(np.broadcast_to(np.diagonal(self.task_cov), means.shape))
        return Normal(means[0], sd[0]) if np.ndim(i) == 0 else Normal(means, sd)


class VarianceForDeviation(LinearBelief):
    def law(self, i: Any, draw: Any, z: Any = None) -> Any:
        law = super().law(i, draw, z)
        return Normal(law.mean, law.sd**2)


class OneDrawForAll(LinearBelief):
    def sample(self, i: int, rng: Any, size: int | None = None) -> Any:
        return self.sample_given(i, self.draw(rng), rng, size)


class ForgetsTheNoise(LinearBelief):
    def retract(self, i: Any, arm: Any, reward: Any, z: Any = None) -> None:
        self.n_observations -= np.size(reward)


class KeepsHalfABatch(LinearBelief):
    def observe(self, i: Any, arm: Any, reward: Any, z: Any = None) -> None:
        for one in zip(np.atleast_1d(i), np.atleast_1d(arm), np.atleast_1d(reward), strict=True):
            super().observe(*one)


class AliasesItsState(LinearBelief):
    def state(self) -> Any:
        return {**super().state(), "tasks.means": self.tasks.means}


class SharedStream(LinearBelief):
    def draws(self, keys: Any) -> Any:
        return super().draws(np.full_like(keys, keys[0]))


class LastRewardOnly(LinearBelief):
    def observe(self, i: Any, arm: Any, reward: Any, z: Any = None) -> None:
        tasks, arms, rewards = self._data(i, arm, reward)
        super().observe(tasks[-1:], arms[-1:], rewards[-1:])
        self.n_observations += max(0, len(tasks) - 1)


class OldRewardsFade(LinearBelief):
    def observe(self, i: Any, arm: Any, reward: Any, z: Any = None) -> None:
        for one in zip(*self._data(i, arm, reward), strict=True):
            super().observe(one[0], one[1], one[2] * (1.0 + 0.01 * self.n_observations))


class NewArmsConfuse(LinearBelief):
    def add_arms(self, how_many: int = 1, phi: Any = None) -> None:
        super().add_arms(how_many, phi)
        self.tasks.means[:, 0] = self.tasks.means[:, 1]
        self.rebuild()


FAULTS = {
    DropsOwnHistory: {"samples_follow_the_posterior"},
    VarianceForDeviation: {"samples_follow_the_posterior"},
    OneDrawForAll: {"samples_follow_the_posterior"},
    ForgetsTheNoise: {"retract_undoes_observe"},
    KeepsHalfABatch: {"bad_input_is_refused_and_changes_nothing"},
    AliasesItsState: {"reading_changes_nothing"},
    SharedStream: {"draws_belong_to_their_keys"},
    LastRewardOnly: {"many_are_one_at_a_time"},
    OldRewardsFade: {"order_does_not_matter"},
    NewArmsConfuse: {"new_arms_leave_the_old_beliefs"},
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_model_breaks_the_contract(fault: type[LinearBelief]) -> None:
    model = type("Model", (Broken,), {"fault": fault})
    case = Case(lambda: model(0.3, 0.8, 0.5, 1.0), real)
    failed = set()
    for check in MODEL_CHECKS:
        try:
            check(case)
        except Exception:
            failed.add(check.__name__)
    assert failed >= FAULTS[fault]


def test_check_model_runs_all_of_it() -> None:
    check_model(linear(0.3, 0.8, 0.5, 1.0), real, n_arms=2, n_features=3)
    model = type("Model", (Broken,), {"fault": OneDrawForAll})
    with pytest.raises(AssertionError, match="standard errors off"):
        check_model(lambda: model(0.3, 0.8, 0.5, 1.0), real)
    check_model(lambda: model(0.3, 0.8, 0.5, 1.0), real, skip={"samples_follow_the_posterior"})


@pytest.mark.parametrize("layout", ["given", "by_arm"])
@pytest.mark.parametrize("task_cov", [0.5, "full"])
def test_a_belief_that_grew_is_restored_too(layout: str, task_cov: Any) -> None:
    """Into an empty belief of the size the first one started with: sizes are part of the state."""
    case = Case(linear(0.3, None, task_cov), real, n_features=6, options={"layout": layout})
    belief, restored = case.filled(), case.empty()
    belief.add_arms(1)
    belief.add_columns(2)
    belief.observe(*case.data())
    restored.restore(belief.state())
    for one in (belief, restored):
        one.add_tasks(case.phi(one, 3))
        one.observe([5, 6, 7] * 7, [3, 0, 1] * 7, real(np.random.default_rng(1), 21))
    for i in range(belief.n_tasks):
        for got, expected in zip(restored.posterior(i), belief.posterior(i), strict=True):
            np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(restored.variances.task, belief.variances.task)
