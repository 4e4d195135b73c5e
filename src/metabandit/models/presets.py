"""The baselines of the paper: the one model with something removed.

Their priors follow from the full model by the law of total expectation and variance, with the metadata
(and, where nothing is learned across tasks, the coefficients) integrated out. The formulas are
in docs/models/presets.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.models import model_from_spec, model_spec
from metabandit.models.base import Belief
from metabandit.models.beta_logistic import BetaLogisticModel
from metabandit.models.linear import LinearMixedModel
from metabandit.models.reduced import ReducedBelief
from metabandit.models.total_variance import (
    BinaryParts,
    GaussianParts,
    binary_parts,
    gaussian_parts,
    logit_normal,
)

Array = np.ndarray[Any, Any]

NAMES = {
    "real": ("mtts", "oracle-ts", "linear-ts", "glb-ts", "meta-ts", "individual-ts", "osfa"),
    "binary": ("mtts", "oracle-ts", "glb-ts", "meta-ts", "individual-ts", "osfa"),
}
INTERCEPTS = ("meta-ts", "individual-ts", "osfa")


@dataclass(frozen=True, eq=False)
class Preset:
    """A baseline, usable wherever a model is: its beliefs take the same features and ignore what was removed.

    >>> import numpy as np, metabandit as mb
    >>> model = mb.LinearMixedModel(coef_cov=0.5, task_cov=0.25, noise_var=1.0)
    >>> osfa = mb.presets.make("osfa", model, phi=np.ones((1, 2, 3)))
    >>> belief = osfa.belief(n_arms=2, n_features=3)
    >>> first, second = belief.add_tasks(np.zeros((2, 2, 3)))
    >>> belief.observe(first, 0, 1.0)
    >>> [round(float(m), 3) for m in belief.posterior(second).mean]  # one size fits all: the tasks are one
    [0.636, 0.0]
    """

    name: str
    model: Any
    """the model with something removed"""
    keeps: str = "features"
    """ "features", or "intercepts": one coefficient an arm and nothing else"""
    pooled: bool = False
    """whether all tasks are taken for one"""

    @property
    def reward(self) -> str:
        """What rewards it accepts."""
        return str(self.model.reward)

    def belief(self, n_arms: int, n_features: int, layout: str = "given") -> Belief:
        """An empty belief, to be used like the full model's."""
        if self.keeps == "features":
            made: Belief = self.model.belief(n_arms, n_features, layout)
            return made
        return ReducedBelief(self.model, n_arms, n_features, layout, self.pooled)

    def spec(self) -> dict[str, Any]:
        """The preset as plain data."""
        rest = {"keeps": self.keeps, "pooled": self.pooled, "model": model_spec(self.model)}
        return {"name": self.name, **rest}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Preset:
        """The preset that spec() describes."""
        return cls(spec["name"], model_from_spec(spec["model"]), spec["keeps"], bool(spec["pooled"]))


def make(name: str, model: Any, phi: Any = None, theta: Any = None) -> Preset:
    """The baseline `name` of a LinearMixedModel or a BetaLogisticModel.

    phi : (n, K, d), features of n tasks, needed by "meta-ts", "individual-ts" and "osfa": a sample, or a few
        points with the moments of the features, each of the same weight.
    theta : (d,), the true coefficients, needed by "oracle-ts".

    >>> import numpy as np, metabandit as mb
    >>> model = mb.LinearMixedModel(coef_cov=0.5, task_cov=0.25, noise_var=1.0)
    >>> phi = np.sqrt(2) * np.array([[[1.0, 0.0]], [[-1.0, 0.0]], [[0.0, 1.0]], [[0.0, -1.0]]])
    >>> round(float(mb.presets.make("individual-ts", model, phi).model.task_cov[0]), 3)  # 2 x 0.5 + 0.25
    1.25
    """
    if not isinstance(model, (LinearMixedModel, BetaLogisticModel)):
        raise InvalidInput("model", model, "a LinearMixedModel or a BetaLogisticModel")
    if name not in NAMES[model.reward]:
        raise InvalidInput("name", name, f"one of {NAMES[model.reward]} for {model.reward} rewards")
    if name in INTERCEPTS and isinstance(model, LinearMixedModel):
        return _intercepts_real(name, model, _sample(phi))
    if name in INTERCEPTS and isinstance(model, BetaLogisticModel):
        return _intercepts_binary(name, model, _sample(phi))
    return Preset(name, replace(model, **_removed(name, model, theta)))


def _removed(name: str, model: Any, theta: Any) -> dict[str, Any]:
    """What a baseline that keeps the features sets differently."""
    if name == "oracle-ts":
        if theta is None:
            raise InvalidInput("theta", None, "the true coefficients, (d,)")
        return {"coef_mean": finite("theta", theta).copy(), "coef_cov": 0.0}
    if name in ("linear-ts", "glb-ts"):  # with real rewards the generalised linear bandit is the linear one
        return {"task_cov": 0.0} if isinstance(model, LinearMixedModel) else {"dispersion": 0.0}
    return {}


def _sample(phi: Any) -> Array:
    if phi is None:
        raise InvalidInput("phi", None, "features of some tasks, (n, K, d)")
    array = finite("phi", phi)
    if array.ndim != 3 or not array.size:
        raise InvalidInput("phi", f"<array of shape {array.shape}>", "features of some tasks, (n, K, d)")
    return array


def _intercepts_real(name: str, model: LinearMixedModel, phi: Array) -> Preset:
    parts: GaussianParts = gaussian_parts(model, phi)
    if name == "meta-ts":
        split = replace(model, coef_mean=parts.mean, coef_cov=parts.common, task_cov=parts.within)
        return Preset(name, split, "intercepts")
    total = parts.within + (parts.common if parts.within.ndim == 2 else np.diagonal(parts.common))
    marginal = replace(model, coef_mean=parts.mean, coef_cov=0.0, task_cov=total)
    return Preset(name, marginal, "intercepts", pooled=name == "osfa")


def _intercepts_binary(name: str, model: BetaLogisticModel, phi: Array) -> Preset:
    parts: BinaryParts = binary_parts(model, phi, split=name == "meta-ts")
    between = parts.common if name == "meta-ts" else np.zeros_like(parts.mean)
    # Beta laws of mean mu and dispersion psi have variance mu (1 - mu) psi / (1 + psi): solved for psi on
    # average over the arms, because the model has one dispersion; exact when they are alike, as in the paper.
    room = parts.mean * (1.0 - parts.mean) - parts.total
    dispersion = float((parts.total - between).sum() / room.sum())
    fitted = [logit_normal(float(p), float(v)) for p, v in zip(parts.mean, between, strict=True)]
    mean, variance = np.array(fitted).T
    marginal = replace(
        model, coef_mean=mean, coef_cov=variance, dispersion=dispersion if dispersion > 1e-12 else 0.0
    )
    return Preset(name, marginal, "intercepts", pooled=name == "osfa")
