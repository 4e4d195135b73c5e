"""Posterior draws in the tools of the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.checking import count
from metabandit.errors import MissingExtra

if TYPE_CHECKING:
    from metabandit.bandit.bandit import MultiTaskBandit


def to_arviz(bandit: MultiTaskBandit, draws: int, seed: int) -> Any:
    """Draws of theta, named; ArviZ's InferenceData before its release 1, a DataTree since."""
    try:
        import arviz
    except ImportError as error:
        raise MissingExtra("posterior draws", "bayes", "arviz") from error
    rng, n = np.random.default_rng(count("seed", seed, 0)), count("draws", draws)
    belief = bandit.belief
    made = belief.draw_coef(rng, n) if hasattr(belief, "draw_coef") else None
    others: dict[str, Any] = {}
    if made is None:
        each = [belief.draw(rng) for _ in range(n)]
        others = {name: np.array([[draw.others[name] for draw in each]]) for name in each[0].others}
        made = np.array(each)
    posterior = {"theta": np.asarray(made)[None], **others}
    names = bandit.features.coefficient_names(bandit.arms)
    options: dict[str, Any] = {"coords": {"coefficient": names}, "dims": {"theta": ["coefficient"]}}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": posterior}, **options)
    return arviz.from_dict(posterior=posterior, **options)
