"""The mixed-effect Gaussian process: what is assumed. What is believed after data is in gp_belief.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.checking import count, covariance, finite, positive
from metabandit.errors import InvalidInput
from metabandit.models.covariances import Coregionalised, Covariance
from metabandit.models.gp_evidence import Learned
from metabandit.models.gp_part import Prior

if TYPE_CHECKING:
    from metabandit.models.gp_belief import GaussianProcessBelief

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class GaussianProcessModel:
    """r_i(a) = m_a + F_a(x_i) + delta_ia, rewards y = r_i(a) + eps; F a Gaussian process over metadata.

    kernel : a covariance function: every arm has an independent function F_a with that covariance; or
        Coregionalised, for functions that are correlated between arms.
    task_cov : number, (K,) or (K, K): Cov(delta_i). None: one variance for all arms, learned.
    noise_var : number or (K,): Var(eps). None: one variance for all arms, learned.
    mean : number or (K,): m_a.
    learn_kernel : whether the kernel's parameters are learned as well, from the values they have.

    >>> import metabandit as mb
    >>> from metabandit.models.covariances import Matern52
    >>> model = mb.GaussianProcessModel(2.0 * Matern52(0.5), task_cov=0.25, noise_var=1.0)
    >>> belief = model.belief(n_arms=2, n_features=1)
    >>> here, near, far = belief.add_tasks([[0.0], [0.1], [9.0]])
    >>> belief.observe([here, here], [0, 0], [3.0, 2.0])
    >>> [round(float(belief.posterior(i).mean[0]), 3) for i in (here, near, far)]
    [2.045, 1.76, 0.0]
    """

    kernel: Covariance | Coregionalised
    task_cov: Any = None
    noise_var: Any = None
    mean: Any = 0.0
    learn_kernel: bool = False

    reward = "real"

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, (Covariance, Coregionalised)):
            raise InvalidInput(
                "kernel", self.kernel, "a covariance function, such as SquaredExponential(1.0)"
            )
        if self.task_cov is not None:
            covariance("task_cov", self.task_cov)
        if self.noise_var is not None:
            positive("noise_var", self.noise_var)
        if finite("mean", self.mean).ndim > 1:
            raise InvalidInput("mean", f"<array of shape {np.shape(self.mean)}>", "a number or a vector (K,)")

    @property
    def learned(self) -> Learned:
        """Which hyper-parameters are learned."""
        return Learned(bool(self.learn_kernel), self.task_cov is None, self.noise_var is None)

    def belief(self, n_arms: int, n_features: int, layout: str = "metadata") -> GaussianProcessBelief:
        """An empty belief; tasks come with metadata x : (p,).

        n_features : p with layout "metadata"; K p with layout "by_arm", as other models count them there.
        """
        from metabandit.models.gp_belief import GaussianProcessBelief

        n_arms, n_features = count("n_arms", n_arms), count("n_features", n_features, 0)
        if layout not in ("metadata", "by_arm"):
            raise InvalidInput("layout", layout, "'metadata' or 'by_arm': a process takes x : (p,), not Phi")
        if layout == "by_arm":
            if n_features % n_arms:
                raise InvalidInput("n_features", n_features, f"a multiple of n_arms = {n_arms} by arm")
            n_features //= n_arms
        if not self.over_metadata.fits(n_features):
            raise InvalidInput("n_features", n_features, "as many columns as the kernel has length-scales")
        return GaussianProcessBelief(self, n_arms, n_features)

    def prior(self, n_arms: int) -> Prior:
        """What is known of the arms before any data; variances that are to be learned start from 1."""
        task_cov = np.asarray(1.0 if self.task_cov is None else self.task_cov, float)
        if task_cov.ndim < 2:
            task_cov = np.diag(_vector("task_cov", task_cov, n_arms))
        return Prior(
            kernel=self.over_metadata,
            arm_cov=finite(
                "arm_cov", getattr(self.kernel, "arm_cov", np.eye(n_arms)), (n_arms, n_arms)
            ).copy(),
            sigma=finite("task_cov", task_cov, (n_arms, n_arms)).copy(),
            noise=_vector("noise_var", 1.0 if self.noise_var is None else self.noise_var, n_arms),
            mean=_vector("mean", self.mean, n_arms),
        )

    @property
    def over_metadata(self) -> Covariance:
        """The kernel's part over metadata."""
        return self.kernel.kernel if isinstance(self.kernel, Coregionalised) else self.kernel

    def spec(self) -> dict[str, Any]:
        """The model as plain data."""
        plain = {
            name: None if value is None else np.asarray(value, float).tolist()
            for name, value in (
                ("task_cov", self.task_cov),
                ("noise_var", self.noise_var),
                ("mean", self.mean),
            )
        }
        return {"kernel": self.kernel.spec(), **plain, "learn_kernel": bool(self.learn_kernel)}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> GaussianProcessModel:
        """The model that spec() describes."""
        kernel = spec["kernel"]
        made = (Coregionalised if kernel["kind"] == Coregionalised.kind else Covariance).from_spec(kernel)
        return cls(**{**spec, "kernel": made})


def _vector(name: str, value: Any, n_arms: int) -> Array:
    array = np.asarray(value, float)
    return np.full(n_arms, float(array)) if array.ndim == 0 else finite(name, array, (n_arms,)).copy()
