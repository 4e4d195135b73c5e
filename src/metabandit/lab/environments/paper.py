"""The features of the paper's experiments: an intercept for every arm, and standard normals about task and arm."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import FEATURES, THETA, generator

Array = np.ndarray[Any, Any]

SAMPLE = 2000  # tasks behind the priors of policies that see no metadata
SAMPLE_SEED = 0x70686931  # theirs, and no world's


def check_sizes(n_tasks: int, n_arms: int, n_features: int) -> None:
    """Refuse what cannot be: every arm has an intercept."""
    for name, value in (("n_tasks", n_tasks), ("n_arms", n_arms), ("n_features", n_features)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InvalidInput(name, value, "a whole number >= 1")
    if n_features < n_arms:
        raise InvalidInput(
            "n_features", n_features, f"at least n_arms = {n_arms}: every arm has an intercept"
        )


def check_variances(task_var: float, noise_var: float) -> None:
    """Refuse what are no variances; rewards need noise."""
    if not float(finite("task_var", task_var, ())) >= 0.0:
        raise InvalidInput("task_var", task_var, "a number >= 0")
    if not float(finite("noise_var", noise_var, ())) > 0.0:
        raise InvalidInput("noise_var", noise_var, "a number > 0")


def features(rng: np.random.Generator, n_tasks: int, n_arms: int, n_features: int) -> Array:
    """(N, K, d): one-hot arm, then d - K standard normals."""
    hot = np.broadcast_to(np.eye(n_arms), (n_tasks, n_arms, n_arms))
    own = rng.standard_normal((n_tasks, n_arms, n_features - n_arms))
    return np.ascontiguousarray(np.concatenate([hot, own], axis=2))


def world_features(seed: int, n_tasks: int, n_arms: int, n_features: int) -> Array:
    """The features of one world."""
    return features(generator(seed, FEATURES), n_tasks, n_arms, n_features)


def coefficients(seed: int, n_features: int, cov: float) -> Array:
    """theta ~ N(0, cov I) : (d,)."""
    theta: Array = generator(seed, THETA).standard_normal(n_features) * np.sqrt(cov)
    return theta


@lru_cache(maxsize=64)
def moments(n_arms: int, n_features: int) -> Array:
    """A few points (n, K, d) with exactly the mean and covariance of the features, for models linear in them."""
    own = n_features - n_arms
    points = normal_points(n_arms * own)  # of all arms: what is one arm's is independent of the others'
    points = points.reshape(len(points), n_arms, own)
    hot = np.broadcast_to(np.eye(n_arms), (len(points), n_arms, n_arms))
    made = np.concatenate([hot, points], axis=2)
    made.flags.writeable = False
    return made


def normal_points(size: int) -> Array:
    """A few points (n, size) of equal weight with the mean and covariance of N(0, I)."""
    if not size:
        return np.zeros((1, 0))
    points: Array = np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
    return points


def by_arm(metadata: Array, n_arms: int) -> Array:
    """I_K kron (1, x')' : (n, K, K (p + 1)) of metadata (n, p): every arm has its own coefficients."""
    rows = np.column_stack([np.ones(len(metadata)), metadata])
    blocks: Array = np.einsum("ab,np->nabp", np.eye(n_arms), rows)
    return blocks.reshape(len(rows), n_arms, -1)


@lru_cache(maxsize=64)
def sample(n_arms: int, n_features: int) -> Array:
    """A fixed sample (SAMPLE, K, d) of the features."""
    made = features(np.random.default_rng(SAMPLE_SEED), SAMPLE, n_arms, n_features)
    made.flags.writeable = False
    return made
