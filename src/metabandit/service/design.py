"""From settings, as clients write them, to what a bandit is made of; and metadata held to their columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.reading import label
from metabandit.learning.refresh import Refresh
from metabandit.models.beta_logistic import BetaLogisticModel
from metabandit.models.gamma_log import GammaLogModel
from metabandit.models.linear import LinearMixedModel
from metabandit.policies import Floored, Greedy, Policy, Random, Thompson, UpperBound
from metabandit.service.messages import (
    Column,
    Metadata,
    ModelSettings,
    NewBandit,
    PolicySettings,
    RefreshSettings,
)

DRAW_AFTER = 100.0  # rewards, where draws are not cheap
MOST_COEFFICIENTS = 2_000  # of a bandit: its belief has as many squared numbers


def columns_of(metadata: dict[str, Column]) -> dict[str, Any] | None:
    """What the features are made of; None: no metadata."""
    return {name: _kind(name, column) for name, column in metadata.items()} or None


def _kind(name: str, column: Column) -> Any:
    field = f"metadata.{name}"
    if column.type == "category":
        if column.low is not None or column.high is not None:
            raise InvalidInput(field, "<a category with low or high>", "a range with type number only")
        if column.levels is not None and len(set(column.levels)) < len(column.levels):
            raise InvalidInput(f"{field}.levels", column.levels, "different levels")
        return "category" if column.levels is None else column.levels
    if column.levels is not None:
        raise InvalidInput(f"{field}.levels", column.levels, "levels with type category only")
    low, high = _range(column)
    if not low < high:
        raise InvalidInput(f"{field}.low", column.low, f"a number below high, which is {column.high}")
    return "number"


def _range(column: Column) -> tuple[float, float]:
    low = -math.inf if column.low is None else column.low
    return low, math.inf if column.high is None else column.high


def checked_metadata(columns: dict[str, Column], metadata: Metadata | None) -> Metadata | None:
    """The metadata of a task, if they fit the columns; {} is none."""
    if not metadata:
        return None
    for name, value in metadata.items():
        column = columns.get(name)
        if column is None:
            known = f"one of {list(columns)}" if columns else "nothing: this bandit has no metadata"
            raise InvalidInput("metadata", name, known)
        if value is not None:
            _check_value(f"metadata.{name}", column, value)
    return metadata


def _check_value(field: str, column: Column, value: Any) -> None:
    if column.type == "category":
        text = label(field, value)
        if column.levels is not None and text not in column.levels:
            raise InvalidInput(field, value, f"one of {column.levels}, or null")
        if text is not None and len(text) > 256:
            raise InvalidInput(field, value, "at most 256 characters")
        return
    if isinstance(value, str):
        raise InvalidInput(field, value, "a number, or null")
    low, high = _range(column)
    try:
        fits = low <= float(value) <= high
    except OverflowError:  # an integer that no float can hold
        fits = False
    if not fits:
        raise InvalidInput(field, value, f"a number from {low:g} to {high:g}, or null")


def check_size(field: str, value: Any, coefficients: int, arms: int) -> None:
    """Refuse what would need more coefficients than a belief can have, before anything is made of it."""
    if coefficients > MOST_COEFFICIENTS:
        accepted = (
            f"what needs at most {MOST_COEFFICIENTS} coefficients: for each arm one, one for each number, and one "
            f"for each category; here {arms} arms would need {coefficients}"
        )
        raise InvalidInput(field, value, accepted)


# -- the model -------------------------------------------------------------------------------------------------


def model_of(wanted: NewBandit) -> Any:
    """The hierarchical model."""
    m = wanted.model
    if wanted.reward == "real":
        _only(m, "dispersion", "binary rewards and counts")
        task_cov = np.array(m.task_cov) if isinstance(m.task_cov, list) else m.task_cov
        if isinstance(m.task_cov, list) and len(m.task_cov) != len(wanted.arms):
            raise InvalidInput(
                "model.task_cov", m.task_cov, f"one number for each of {len(wanted.arms)} arms"
            )
        return LinearMixedModel(m.coef_mean, m.coef_cov, task_cov, m.noise_var)
    for name in ("task_cov", "noise_var"):
        _only(m, name, "real rewards")
    kind = BetaLogisticModel if wanted.reward == "binary" else GammaLogModel
    return kind(m.coef_mean, m.coef_cov, m.dispersion)


def _only(settings: ModelSettings, name: str, kinds: str) -> None:
    if getattr(settings, name) is not None:
        raise InvalidInput(f"model.{name}", getattr(settings, name), f"nothing, but with {kinds}")


# -- the policy and its draws ----------------------------------------------------------------------------------


def policy_of(settings: PolicySettings, reward: str) -> Policy:
    """The policy, with its floor and ceiling."""
    if reward != "real" and settings.kind in ("greedy", "upper-bound"):
        accepted = f"thompson or random with {reward} rewards, whose posterior means have no closed form"
        raise InvalidInput("policy.kind", settings.kind, accepted)
    made: dict[str, Any] = {
        "thompson": lambda: Thompson(settings.scale),
        "greedy": Greedy,
        "upper-bound": lambda: UpperBound(settings.level),
        "random": Random,
    }
    policy: Policy = made[settings.kind]()
    bounded = settings.floor > 0.0 or settings.ceiling < 1.0
    return Floored(policy, settings.floor, settings.ceiling) if bounded else policy


def refresh_settings(settings: RefreshSettings | None, reward: str) -> RefreshSettings:
    """What was asked for, or what suits the kind of reward."""
    if settings is None:
        if reward == "real":
            return RefreshSettings(rule="always")
        return RefreshSettings(rule="every", amount=DRAW_AFTER)
    if settings.rule == "always" and reward != "real":
        accepted = (
            f"every or information with {reward} rewards: a draw for every decision would take too long"
        )
        raise InvalidInput("refresh.rule", settings.rule, accepted)
    return settings


def refresh_of(settings: RefreshSettings) -> Refresh:
    """The rule."""
    return Refresh(settings.rule, settings.amount)
