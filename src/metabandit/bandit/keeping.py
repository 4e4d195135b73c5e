"""Saving a bandit to one file, and loading it again."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import numpy as np

from metabandit import policies
from metabandit.bandit.arms import Arms
from metabandit.bandit.bandit import MultiTaskBandit
from metabandit.bandit.log import RECORD
from metabandit.bandit.saving import read, write
from metabandit.bandit.tasks import Tasks
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.features import Features, from_spec, load_covariances_with, make
from metabandit.learning.refresh import Refresh
from metabandit.models import model_from_spec, model_spec
from metabandit.models.base import Model
from metabandit.models.covariances import Covariance
from metabandit.policies import Policy

Array = np.ndarray[Any, Any]

load_covariances_with(Covariance.from_spec)  # features know covariances only by what they can do


def save(bandit: MultiTaskBandit, path: str | os.PathLike[str]) -> None:
    """Everything the bandit is: what it was made of, what it believes, what it decided."""
    refresh, log = bandit.refresh, bandit._log
    content: dict[str, Any] = {
        "arms": bandit.arms, "active": bandit._arms.active.copy(), "seed": str(bandit.seed),
        "model": model_spec(bandit.model), "policy": bandit.policy.spec(), "features": bandit.features.spec(),
        "refresh": [refresh.rule, refresh.amount, refresh.per_task], "decision_ids": log.texts,
    }  # fmt: skip
    records = log.records[: log.size]
    parts: dict[str, dict[str, Any]] = {
        "belief": bandit.belief.state(),
        "log": {name: np.ascontiguousarray(records[name]) for name in RECORD.names or ()},
        "draws": bandit._draws.state(),
        "tasks": bandit._tasks.state(),
    }
    for part, state in parts.items():
        content |= {f"{part}/{name}": value for name, value in state.items()}
    write(path, content)


def load(
    path: str | os.PathLike[str],
    metadata: Any = None,
    policy: Policy | None = None,
    model: Model | None = None,
) -> MultiTaskBandit:
    """A bandit from the file that save() wrote; it continues bit for bit as the saved one would have.

    metadata : only for features that plain data cannot hold (a fitted transformer): the same object as before. What
        does not describe the columns that were saved is refused.
    policy, model : only for those of your own, which this library cannot make again from their spec.

    >>> import os, tempfile, metabandit as mb
    >>> bandit = mb.MultiTaskBandit(arms=["a", "b"], seed=1)
    >>> path = os.path.join(tempfile.mkdtemp(), "bandit.mb")
    >>> bandit.save(path)
    >>> mb.load(path).decide("t") == bandit.decide("t")
    True
    """
    content = read(path)
    try:
        return _rebuilt(content, metadata, policy, model)
    except (
        KeyError,
        TypeError,
        IndexError,
        ValueError,
        AttributeError,
        OverflowError,
        FloatingPointError,
    ) as error:
        if isinstance(error, (InvalidInput, DamagedFile)):
            raise
        raise DamagedFile(f"{path}: incomplete ({type(error).__name__}: {error})") from error


def _rebuilt(content: dict[str, Any], metadata: Any, policy: Any, model: Any) -> MultiTaskBandit:
    arms = content["arms"]
    given = metadata if metadata is None or isinstance(metadata, Features) else make(metadata, arms)
    rule, amount, per_task = content["refresh"]
    model = _same("model", model, content["model"], model_from_spec, model_spec)
    policy = _same("policy", policy, content["policy"], policies.from_spec, policies.spec)
    n_arms, n_features = content["tasks/origin"]
    tasks = Tasks(from_spec(content["features"], given), model, arms, origin=(n_arms, n_features))
    bandit = MultiTaskBandit.__new__(MultiTaskBandit)
    bandit._assemble(Arms(arms), tasks, model, policy, Refresh(rule, amount, per_task), int(content["seed"]))
    tasks.restore(_part(content, "tasks"))
    bandit.belief.restore(_part(content, "belief"))
    bandit._draws.restore(_part(content, "draws"))
    bandit._log.restore(_part(content, "log"), content["decision_ids"])
    active = np.asarray(content["active"])
    if active.shape != (len(arms),) or active.dtype != bool or not active.any():
        raise DamagedFile("active: not which of the arms can be chosen")
    bandit._arms.set_active(active)
    _check(bandit)
    return bandit


def _check(bandit: MultiTaskBandit) -> None:
    """Names, numbers and the log must fit one another: nothing is looked up beyond what there is."""
    belief, tasks, log = bandit.belief, bandit._tasks, bandit._log
    n, k = len(tasks.names), len(bandit._arms)
    if not 0 <= belief.version < 2**62 or not 0 <= belief.n_observations < 2**53:
        raise DamagedFile("belief: a version or a number of rewards that cannot be")
    if not (belief.n_tasks == n == len(tasks.digests) == len(tasks.index)) or belief.n_arms != k:
        raise DamagedFile("tasks: not one name for each task of the belief")
    if not all(type(name) in (int, str) for name in tasks.names):
        raise DamagedFile("tasks: a name that is neither a text nor a whole number")
    records = log.records
    for name, size in (("task", n), ("arm", k)):
        if len(records) and not 0 <= records[name].min() <= records[name].max() < size:
            raise DamagedFile(f"log/{name}: numbers beyond what there is")
    if not all(type(place) is int and 0 <= place < log.size for place in log.texts.values()):
        raise DamagedFile("decision_ids: decisions that are not in the log")
    if not all(isinstance(number, int) and number >= 0 for number in tasks.groups.values()):
        raise DamagedFile("tasks/groups: not whole numbers")


def _same(name: str, given: Any, spec: dict[str, Any], make: Any, describe: Any) -> Any:
    """The model or policy that was saved: made from its spec, or the one given if it has that spec."""
    if given is None:
        return make(spec)
    mine = msgspec.json.decode(msgspec.json.encode(describe(given)))
    if mine != spec:
        raise InvalidInput(name, mine, f"the one that was saved, {spec}")
    return given


def _part(content: dict[str, Any], part: str) -> dict[str, Any]:
    prefix = part + "/"
    return {name[len(prefix) :]: value for name, value in content.items() if name.startswith(prefix)}
