"""The linear mixed model: what is assumed. What is believed after data is in linear_belief.py."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.checking import count, covariance, finite, positive
from metabandit.errors import InvalidInput
from metabandit.learning.variances import SHAPES, Learnable, compound

if TYPE_CHECKING:
    from metabandit.models.linear_belief import LinearBelief
    from metabandit.models.particles import ParticleBelief

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class InverseGamma:
    """The prior of an unknown noise variance: sigma^2 ~ IG(shape, scale), mean scale / (shape - 1).

    With it, coef_cov and task_cov count in units of the noise variance: the normal-inverse-gamma model.

    >>> import metabandit as mb
    >>> noise_var = mb.InverseGamma(shape=3.0, scale=2.0)
    >>> model = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=noise_var)
    >>> belief = model.belief(n_arms=2, n_features=2)
    >>> belief.noise
    InverseGamma(shape=3.0, scale=2.0)
    """

    shape: float
    scale: float

    def __post_init__(self) -> None:
        positive("shape", self.shape)
        positive("scale", self.scale)


@dataclass(frozen=True)
class CompoundSymmetric:
    """A task covariance with one variance and one correlation between any two arms.

    >>> import metabandit as mb
    >>> mb.CompoundSymmetric(variance=2.0, correlation=0.5).matrix(2).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """

    variance: float
    correlation: float

    def __post_init__(self) -> None:
        if finite("variance", self.variance, ()) < 0.0:
            raise InvalidInput("variance", self.variance, "a number >= 0")
        if not -1.0 <= finite("correlation", self.correlation, ()) <= 1.0:
            raise InvalidInput("correlation", self.correlation, "a number from -1 to 1")

    def matrix(self, n_arms: int) -> Array:
        """The (K, K) matrix."""
        first = self.variance * (1.0 + (n_arms - 1) * self.correlation)
        rest = self.variance * (1.0 - self.correlation)
        if min(first, rest) < 0.0:
            least = -1.0 / (n_arms - 1) if n_arms > 1 else -1.0
            raise InvalidInput(
                "correlation", self.correlation, f"numbers from {least:.4g} to 1 with {n_arms} arms"
            )
        return compound(first, rest, n_arms)


@dataclass(frozen=True, eq=False)
class LinearMixedModel:
    """r_i = Phi_i theta + delta_i, rewards y = r_ia + eps: theta shared, delta_i the task's own.

    coef_mean : number or (d,). Prior mean of theta.
    coef_cov : number, (d,) or (d, d); 0 means known coefficients. None: a scale a group of columns, learned.
    task_cov : number, (K,), (K, K) or CompoundSymmetric: Cov(delta_i). None or "scalar", "per_arm",
        "compound", "full": learned in that shape.
    noise_var : number or (K,): Var(eps). InverseGamma: unknown, exactly. None or "scalar", "per_arm":
        learned.
    learning : "empirical" (Bayes: the best variances) or "full" (a grid of noise and task variances, each
        with its own belief, weighted by exact evidence).
    drift : correlation of a task's effect with itself one unit of time later (Ornstein-Uhlenbeck); 1: it
        stays.
    discount : what remains of the information on theta after one unit of time; an approximation; 1: all.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=1.0).belief(n_arms=2, n_features=1)
    >>> i = belief.add_task(np.ones((2, 1)))
    >>> belief.observe(i, 0, 3.0)
    >>> [round(float(m), 3) for m in belief.posterior(i).mean]  # the other arm learns through theta
    [1.8, 1.2]
    """

    coef_mean: Any = 0.0
    coef_cov: Any = None
    task_cov: Any = None
    noise_var: Any = None
    learning: str = "empirical"
    drift: float = 1.0
    discount: float = 1.0

    reward = "real"
    cheap_draws = True  # a draw for every decision costs O(d^2)
    learns_by_group = True  # belief() takes the groups of coefficients whose scale is learned together

    def __post_init__(self) -> None:
        if finite("coef_mean", self.coef_mean).ndim > 1:
            raise InvalidInput(
                "coef_mean", f"<array of shape {np.shape(self.coef_mean)}>", "a number or a vector (d,)"
            )
        if self.coef_cov is not None:
            covariance("coef_cov", self.coef_cov)
        self._check_task_cov()
        self._check_noise_var()
        if self.learning not in ("empirical", "full"):
            raise InvalidInput("learning", self.learning, '"empirical" or "full"')
        for name in ("drift", "discount"):
            value = getattr(self, name)
            if not 0.0 < float(finite(name, value, ())) <= 1.0:
                raise InvalidInput(name, value, "0 < number <= 1")
        self._check_learning()

    def _check_task_cov(self) -> None:
        if isinstance(self.task_cov, str):
            if self.task_cov not in SHAPES:
                raise InvalidInput("task_cov", self.task_cov, f"numbers, or one of {SHAPES} to learn it")
        elif isinstance(self.task_cov, CompoundSymmetric):
            covariance("task_cov", self.task_cov.variance)
        elif self.task_cov is not None:
            covariance("task_cov", self.task_cov)

    def _check_noise_var(self) -> None:
        if isinstance(self.noise_var, str):
            if self.noise_var not in ("scalar", "per_arm"):
                raise InvalidInput(
                    "noise_var", self.noise_var, 'numbers, InverseGamma, or "scalar" or "per_arm" to learn it'
                )
        elif self.noise_var is not None and not isinstance(self.noise_var, InverseGamma):
            positive("noise_var", self.noise_var)

    def _check_learning(self) -> None:
        learnable = self.learnable
        if learnable.anything and isinstance(self.noise_var, InverseGamma):
            raise InvalidInput(
                "noise_var", self.noise_var, "InverseGamma only with coef_cov and task_cov given"
            )
        if learnable.anything and (self.drift < 1.0 or self.discount < 1.0):
            raise InvalidInput(
                "drift",
                self.drift,
                "1, or all of coef_cov, task_cov and noise_var given: "
                "a past that fades cannot be weighed again",
            )
        if learnable.noise == "per_arm" and learnable.task in ("compound", "full"):
            raise InvalidInput("noise_var", "per_arm", '"scalar" with a task covariance between arms')
        if self.learning == "full" and (learnable.noise != "scalar" or learnable.task != "scalar"):
            raise InvalidInput("learning", "full", '"full" only with noise_var and task_cov None or "scalar"')

    @property
    def learnable(self) -> Learnable:
        """Which variances are learned."""

        def shape(value: Any) -> str | None:
            return "scalar" if value is None else value if isinstance(value, str) else None

        return Learnable(shape(self.noise_var), shape(self.task_cov), self.coef_cov is None)

    def belief(
        self,
        n_arms: int,
        n_features: int,
        layout: str = "given",
        n_effects: int | None = None,
        groups: Any = None,
    ) -> LinearBelief | ParticleBelief:
        """An empty belief.

        layout : "given": tasks come with Phi (K, d); "by_arm": with x (p,), and every arm has its own
            coefficients.
        n_effects : q, for task effects on vectors z given with every interaction instead of on arms; then
            tasks come with X (q, d), and task_cov has q effects.
        groups : (d,) whole numbers: the coefficients whose scale is learned together. Default: one group
            with layout "given", one for every column with layout "by_arm".
        """
        from metabandit.models.linear_belief import LinearBelief
        from metabandit.models.particles import ParticleBelief

        kind: type[LinearBelief | ParticleBelief] = (
            ParticleBelief if self.learning == "full" and self.learnable.anything else LinearBelief
        )
        n_effects = None if n_effects is None else count("n_effects", n_effects)
        return kind(
            self, count("n_arms", n_arms), count("n_features", n_features, 0), layout, n_effects, groups
        )

    def spec(self) -> dict[str, Any]:
        """The model as plain data."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> LinearMixedModel:
        """The model that spec() describes."""
        return cls(**{name: _unplain(value) for name, value in spec.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, InverseGamma):
        return {"inverse_gamma": [float(value.shape), float(value.scale)]}
    if isinstance(value, CompoundSymmetric):
        return {"compound_symmetric": [float(value.variance), float(value.correlation)]}
    return value if value is None or isinstance(value, str) else np.asarray(value, float).tolist()


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        ((name, numbers),) = value.items()
        return InverseGamma(*numbers) if name == "inverse_gamma" else CompoundSymmetric(*numbers)
    return np.array(value) if isinstance(value, list) else value
