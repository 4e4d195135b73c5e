"""Posterior draws in the tools of the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.checking import count
from metabandit.errors import MissingExtra
from metabandit.models.coefficient_sampler import CHAINS

if TYPE_CHECKING:
    from metabandit.bandit.bandit import MultiTaskBandit

Array = np.ndarray[Any, Any]


def to_arviz(bandit: MultiTaskBandit, draws: int, seed: int) -> Any:
    """Draws of theta, named; ArviZ's InferenceData before its release 1, a DataTree since."""
    try:
        import arviz
    except ImportError as error:
        raise MissingExtra("posterior draws", "bayes", "arviz") from error
    theta, others = _drawn(
        bandit.belief, np.random.default_rng(count("seed", seed, 0)), count("draws", draws)
    )
    # As many chains as the samplers run, so that ArviZ can compare them; one, where draws do not fill them.
    chains = CHAINS if len(theta) % CHAINS == 0 and len(theta) >= 4 * CHAINS else 1
    posterior = {
        name: values.reshape(chains, -1, *values.shape[1:])
        for name, values in {"theta": theta, **others}.items()
    }
    names = bandit.features.coefficient_names(bandit.arms)
    if len(names) != theta.shape[1]:  # of a Gaussian process, whose coordinates have no names
        names = [f"u{j}" for j in range(theta.shape[1])]
    options: dict[str, Any] = {"coords": {"coefficient": names}, "dims": {"theta": ["coefficient"]}}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": posterior}, **options)
    return arviz.from_dict(posterior=posterior, **options)


def _drawn(belief: Any, rng: Any, n: int) -> tuple[Array, dict[str, Array]]:
    """theta : (n, d) and what was drawn with it, (n,) each: chain after chain, or independent draws."""
    if hasattr(belief, "draw_coef"):
        made = belief.draw_coef(rng, n)
        return np.asarray(made), {name: np.asarray(values) for name, values in made.others.items()}
    each = [belief.draw(rng) for _ in range(n)]
    names = set(each[0].others) - {"generation"}  # of a process: which draws belong together, no quantity
    others = {name: np.array([draw.others[name] for draw in each]) for name in sorted(names)}
    return np.array(each), others
