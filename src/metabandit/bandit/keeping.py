"""Saving a bandit to one file, and loading it again."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from metabandit import policies
from metabandit.bandit.bandit import MultiTaskBandit
from metabandit.bandit.saving import read, write
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.features import Features, from_spec, load_covariances_with, make
from metabandit.learning.refresh import Refresh
from metabandit.models import model_from_spec, model_spec
from metabandit.models.covariances import Covariance

Array = np.ndarray[Any, Any]

load_covariances_with(Covariance.from_spec)  # features know covariances only by what they can do


def save(bandit: MultiTaskBandit, path: str | os.PathLike[str]) -> None:
    """Everything the bandit is: what it was made of, what it believes, what it decided."""
    refresh = bandit.refresh
    content: dict[str, Any] = {
        "arms": bandit.arms, "active": bandit._active.copy(), "seed": str(bandit.seed), "tasks": bandit._tasks,
        "digests": bandit._digests[: len(bandit._tasks)].copy(), "groups": bandit._groups,
        "model": model_spec(bandit.model), "policy": bandit.policy.spec(), "features": bandit.features.spec(),
        "refresh": [refresh.rule, refresh.amount, refresh.per_task], "decision_ids": bandit._log.texts,
    }  # fmt: skip
    parts = {"belief": bandit.belief.state(), "log": _columns_of(bandit._log.state()["records"])}
    parts["draws"] = bandit._draws.state()
    for part, state in parts.items():
        content |= {f"{part}/{name}": value for name, value in state.items()}
    write(path, content)


def load(path: str | os.PathLike[str], metadata: Any = None) -> MultiTaskBandit:
    """A bandit from the file that save() wrote; it continues bit for bit as the saved one would have.

    metadata : only for features that plain data cannot hold (a fitted transformer): the same object as before.

    >>> import os, tempfile, metabandit as mb
    >>> bandit = mb.MultiTaskBandit(arms=["a", "b"], seed=1)
    >>> path = os.path.join(tempfile.mkdtemp(), "bandit.mb")
    >>> bandit.save(path)
    >>> mb.load(path).decide("t") == bandit.decide("t")
    True
    """
    content = read(path)
    try:
        return _rebuilt(content, metadata)
    except (KeyError, TypeError, IndexError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise DamagedFile(f"{path}: incomplete ({type(error).__name__}: {error})") from error


def _rebuilt(content: dict[str, Any], metadata: Any) -> MultiTaskBandit:
    arms = content["arms"]
    given = metadata if metadata is None or isinstance(metadata, Features) else make(metadata, arms)
    rule, amount, per_task = content["refresh"]
    bandit = MultiTaskBandit(
        arms, from_spec(content["features"], given), model_from_spec(content["model"]),
        policies.from_spec(content["policy"]), Refresh(rule, amount, per_task), int(content["seed"]),
    )  # fmt: skip
    bandit._groups = {str(name): int(number) for name, number in content["groups"].items()}
    bandit.belief.restore(_part(content, "belief"))
    bandit._draws.restore(_part(content, "draws"))
    records = _part(content, "log")
    bandit._log.restore(_records_of(records), content["decision_ids"])
    bandit._active, bandit._digests = content["active"].astype(bool), content["digests"].astype(np.uint64)
    bandit._tasks = list(content["tasks"])
    bandit._task_index = {task: i for i, task in enumerate(bandit._tasks)}
    return bandit


def _part(content: dict[str, Any], part: str) -> dict[str, Any]:
    prefix = part + "/"
    return {name[len(prefix) :]: value for name, value in content.items() if name.startswith(prefix)}


def _columns_of(records: Array) -> dict[str, Array]:
    return {name: np.ascontiguousarray(records[name]) for name in records.dtype.names or ()}


def _records_of(columns: dict[str, Array]) -> Array:
    from metabandit.bandit.log import RECORD

    records = np.zeros(len(columns["task"]), RECORD)
    for name in RECORD.names or ():
        records[name] = columns[name]
    return records
