"""The tasks by name, and their metadata on the way to the belief."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from metabandit.bandit.frames import is_frame, records_of
from metabandit.checking import checked_name
from metabandit.errors import DamagedFile, InvalidInput, UnknownName
from metabandit.features import Features
from metabandit.models.base import Belief, Model
from metabandit.models.features import grown

Array = np.ndarray[Any, Any]
Name = int | str


class Tasks:
    """Names and numbers of the tasks, and the features that turn their metadata into rows of the belief.

    Metadata themselves are not kept: a 64-bit digest of them tells whether what comes with a known task is news.
    """

    def __init__(
        self, features: Features, model: Model, arms: list[str], origin: tuple[int, int] | None = None
    ) -> None:
        """origin : the numbers of arms and coefficients a saved belief was made with, before it grew."""
        self.features = features
        self.names: list[Name] = []
        self.index: dict[Name, int] = {}
        self.digests = np.zeros(0, np.uint64)  # 0: no metadata were given
        self.groups: dict[str, int] = {}
        self.by_group = bool(getattr(model, "learns_by_group", False))
        # Inducing points leave variance out, which belongs to the task effect.
        self.leaves_out = type(features)._extra_variance is not Features._extra_variance
        self.origin = origin or (len(arms), features.n_features(len(arms)))
        self.belief = self._empty_belief(model, None if origin else arms)
        if self.leaves_out and not self.belief.takes_variance:
            accepted = (
                "a LinearMixedModel with a diagonal task covariance for features that leave variance out"
            )
            raise InvalidInput("model", f"<{type(model).__name__}>", accepted)

    def _empty_belief(self, model: Model, arms: list[str] | None) -> Belief:
        options: dict[str, Any] = {}
        if self.by_group and arms is not None:  # a saved belief knows its groups
            options["groups"] = self._group_numbers(self.features.coefficient_groups(arms))
        n_arms, n_features = self.origin
        made: Any = model.belief(n_arms=n_arms, n_features=n_features, layout=self.features.layout, **options)
        if not isinstance(made, Belief):
            raise InvalidInput("model", f"<{type(model).__name__}>", "a model whose belief() makes a Belief")
        return made

    def _group_numbers(self, names: Sequence[str]) -> Array:
        return np.array([self.groups.setdefault(name, len(self.groups)) for name in names], np.int64)

    # -- names ---------------------------------------------------------------------------------------------

    def known(self, task: Any) -> int | None:
        """The number of a task, None if it is new."""
        if type(task) is not str and type(task) is not int:
            task = plain_name(task)
        return self.index.get(task)

    def number(self, task: Any) -> int:
        """The number of a known task."""
        index = self.known(task)
        if index is None:
            raise UnknownName("task", task, "a task that was decided for, learned or added before")
        return index

    def one(self, task: Any, metadata: Any) -> int:
        """The number of a task, new or known; metadata that are news replace what a known task had."""
        index = self.known(task)
        if index is not None and metadata is None:
            return index
        digest = digest_of(metadata)
        if index is None:
            marks = np.array([digest], np.uint64)
            return self._add([plain_name(task)], [metadata], self._encode([metadata]), marks)
        if digest != self.digests[index]:
            self._check_change()
            self._change(index, metadata, self._encode([metadata])[0], digest)
        return index

    def _check_change(self) -> None:
        if not self.belief.can_rebuild:
            accepted = "the metadata it had: a past that fades cannot be seen with other eyes"
            raise InvalidInput("metadata", "<news of a known task>", accepted)

    def _change(self, index: int, metadata: Any, row: Array, digest: int) -> None:
        if not np.array_equal(row, self.belief.features.rows[index].reshape(row.shape)):
            self.belief.set_features(index, row)
            if self.leaves_out:
                self.belief.add_variance(np.array([index]), self.features.extra_variance([metadata]))
        self.digests[index] = digest

    def many(self, names: list[Name], metadata: Any) -> Array:
        """The numbers of many tasks : (n,); metadata: None, a data frame, an array, or a sequence of records."""
        if metadata is None:
            found = list(map(self.index.get, names))
            if None not in found:
                return np.array(found, np.int64)
        if metadata is None:
            fresh = [name for name in dict.fromkeys(names) if name not in self.index]
            rows = np.repeat(self._encode([None]), len(fresh), axis=0)
            self._add(fresh, [None] * len(fresh), rows, np.zeros(len(fresh), np.uint64))
        elif (
            _is_table(metadata)
            and len(set(names)) == len(names)
            and not any(map(self.index.__contains__, names))
        ):
            digests = np.array([digest_of(record) for record in records_of(metadata, len(names))], np.uint64)
            self._add(names, metadata, self._encode(metadata), digests)
        else:
            self._mixed(names, metadata)
        return np.array([self.index[name] for name in names], np.int64)

    def _mixed(self, names: list[Name], metadata: Any) -> None:
        """New tasks and known ones, with metadata: everything is encoded, so checked, before anything changes."""
        wanted = dict(zip(names, records_of(metadata, len(names)), strict=True))
        digests = {name: digest_of(record) for name, record in wanted.items()}
        fresh = [name for name in wanted if name not in self.index]
        news = [
            name for name, record in wanted.items()
            if name in self.index and record is not None and digests[name] != self.digests[self.index[name]]
        ]  # fmt: skip
        if news:
            self._check_change()
        rows = self._encode([wanted[name] for name in fresh + news])
        if fresh:
            marks = np.array([digests[name] for name in fresh], np.uint64)
            self._add(fresh, [wanted[name] for name in fresh], rows[: len(fresh)], marks)
        for name, row in zip(news, rows[len(fresh) :], strict=True):
            self._change(self.index[name], wanted[name], row, digests[name])

    # -- the belief ------------------------------------------------------------------------------------------

    def _encode(self, metadata: Any) -> Array:
        """Rows for the belief; new categories have become new columns of it."""
        before = len(self.features.columns)
        encode = self.features.rows_from_frame if _is_table(metadata) else self.features.rows
        rows = encode(metadata)
        if len(self.features.columns) > before:
            self._add_columns(len(self.features.columns) - before)
        return rows

    def _add_columns(self, how_many: int) -> None:
        if self.by_group:
            self.belief.add_columns(how_many, self._group_numbers(self.features.groups[-how_many:]))  # type: ignore[call-arg]
        else:
            self.belief.add_columns(how_many)

    def _add(self, names: list[Name], metadata: Any, rows: Array, digests: Array) -> int:
        first = int(self.belief.add_tasks(rows)[0])
        if self.leaves_out:
            extra = self.features.extra_variance(records_of(metadata, len(names)))
            self.belief.add_variance(np.arange(first, first + len(names)), extra)
        self.index.update(zip(names, range(first, first + len(names)), strict=True))
        self.names.extend(names)
        self.digests = grown(self.digests, len(self.names))
        self.digests[first : len(self.names)] = digests
        return first

    def add_level(self, column: str, value: Any) -> None:
        """Get to know a category, which may be a new column of the belief, without any task that has it."""
        self._encode([{column: value}])

    def new_level(self, column: str, value: Any) -> str | None:
        """The name of a category that would be new, None if it would not."""
        return self.features.new_level(column, value)

    def add_nameless(self) -> None:
        """A task that nobody can ask for: it keeps the number of one that was erased."""
        self._add([""], [None], self._encode([None]), np.zeros(1, np.uint64))
        del self.index[""]

    def add_arm(self, arm: str) -> None:
        """A new arm in the belief, with the features an average task has for it."""
        fresh = self.features.add_arms([arm])
        if fresh:
            self._add_columns(fresh)
        phi = None
        if self.features.layout == "given":
            average = self.features.rows([None])[0, -1]
            phi = np.broadcast_to(average, (self.belief.n_tasks, 1, len(average)))
        self.belief.add_arms(1, phi)

    # -- saving ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        digests = self.digests[: len(self.names)].copy()
        names, groups = list(self.names), dict(self.groups)  # theirs who packs them while more come
        return {"names": names, "digests": digests, "groups": groups, "origin": self.origin}

    def restore(self, state: dict[str, Any]) -> None:
        if np.asarray(state["digests"]).dtype != np.uint64:
            raise DamagedFile("tasks/digests: not 64-bit words")
        if len(state["digests"]) != len(state["names"]):
            raise DamagedFile("tasks/names: not as many as digests")
        self.names, self.digests = list(state["names"]), np.array(state["digests"])
        self.index = {name: i for i, name in enumerate(self.names) if name != ""}  # nameless: erased
        self.groups = {str(name): int(number) for name, number in state["groups"].items()}


def plain_name(task: Any) -> Name:
    """A task's name as plain str or int; numpy's are welcome."""
    if isinstance(task, (int, np.integer)) and not isinstance(task, (bool, np.bool_)):
        return int(task)
    if isinstance(task, str):
        return checked_name("task", str(task))
    raise InvalidInput("task", task, "a text or a whole number")


def _is_table(metadata: Any) -> bool:
    return is_frame(metadata) or isinstance(metadata, np.ndarray)


def digest_of(metadata: Any) -> int:
    """64 bits that tell one metadata record from another; 0 for none."""
    if metadata is None:
        return 0
    if isinstance(metadata, np.ndarray):
        content = metadata.tobytes()
    elif hasattr(metadata, "items"):
        content = repr(sorted((str(name), _shown(value)) for name, value in metadata.items())).encode()
    else:
        content = repr(metadata).encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") | 1


def _shown(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)
