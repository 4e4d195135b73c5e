"""Models whose task effects are integrated out: what beta-logistic and gamma-log have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from metabandit.checking import covariance, finite
from metabandit.errors import InvalidInput

Array = np.ndarray[Any, Any]
M = TypeVar("M", bound="CollapsedModel")


@dataclass(frozen=True, eq=False)
class CollapsedModel:
    """The fields and checks shared by BetaLogisticModel and GammaLogModel."""

    coef_mean: Any = 0.0
    coef_cov: Any = None
    dispersion: float | str | None = None
    sampler: str = "exact"
    refit: float = 0.05

    reward: ClassVar[str]
    learns_by_group: ClassVar[bool] = True  # belief() takes the groups of coefficients with one scale

    def __post_init__(self) -> None:
        if finite("coef_mean", self.coef_mean).ndim > 1:
            raise InvalidInput(
                "coef_mean", f"<array of shape {np.shape(self.coef_mean)}>", "a number or a vector (d,)"
            )
        if self.coef_cov is not None:
            covariance("coef_cov", self.coef_cov)
        if self.sampler not in ("exact", "filter"):
            raise InvalidInput("sampler", self.sampler, '"exact" or "filter"')
        if float(finite("refit", self.refit, ())) < 0.0:
            raise InvalidInput("refit", self.refit, "a number >= 0")
        self._check_dispersion()

    def _check_dispersion(self) -> None:
        accepted = 'a number >= 0, None (learned) or "drawn" (drawn with the coefficients)'
        if isinstance(self.dispersion, str):
            if self.dispersion != "drawn":
                raise InvalidInput("dispersion", self.dispersion, accepted)
            if self.sampler == "filter":
                raise InvalidInput("dispersion", self.dispersion, 'a number or None with sampler "filter"')
        elif self.dispersion is not None:
            value = float(finite("dispersion", self.dispersion, ()))
            if value < 0.0 or 0.0 < value < 1e-100:
                raise InvalidInput("dispersion", value, accepted + "; 0 or at least 1e-100")

    @property
    def known_dispersion(self) -> float | None:
        """psi, or None when it is not known."""
        return None if self.dispersion is None or isinstance(self.dispersion, str) else float(self.dispersion)

    def spec(self) -> dict[str, Any]:
        """The model as plain data."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            k: v if v is None or isinstance(v, str) else np.asarray(v, float).tolist()
            for k, v in values.items()
        }

    @classmethod
    def from_spec(cls: type[M], spec: dict[str, Any]) -> M:
        """The model that spec() describes."""
        values: dict[str, Any] = {k: np.array(v) if isinstance(v, list) else v for k, v in spec.items()}
        return cls(**values)
