"""Models and their beliefs."""

from __future__ import annotations

from typing import Any

from metabandit.errors import InvalidInput


def model_spec(model: Any) -> dict[str, Any]:
    """A model as plain data, with its kind."""
    return {"kind": type(model).__name__, **model.spec()}


def model_from_spec(spec: dict[str, Any]) -> Any:
    """The model that model_spec() described."""
    from metabandit.models.beta_logistic import BetaLogisticModel
    from metabandit.models.gamma_log import GammaLogModel
    from metabandit.models.gaussian_process import GaussianProcessModel
    from metabandit.models.linear import LinearMixedModel
    from metabandit.models.presets import Preset

    kinds = (LinearMixedModel, BetaLogisticModel, GammaLogModel, GaussianProcessModel, Preset)
    rest = dict(spec)
    kind = {k.__name__: k for k in kinds}.get(str(rest.pop("kind", None)))
    if kind is None:
        raise InvalidInput("model", spec.get("kind"), f"one of {[k.__name__ for k in kinds]}")
    return kind.from_spec(rest)
