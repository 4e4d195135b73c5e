"""MultiTaskBandit: decide, learn, explain, save - by name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.bandit.draws import DrawsInForce
from metabandit.bandit.log import DecisionLog
from metabandit.checking import finite
from metabandit.errors import ConflictingReward, InvalidInput, UnknownName
from metabandit.features import Features, make
from metabandit.laws import Law, Normal
from metabandit.learning.refresh import Refresh
from metabandit.models.base import Belief, Model
from metabandit.models.features import grown
from metabandit.models.linear import LinearMixedModel
from metabandit.policies import Policy, Thompson
from metabandit.streams import keys, number_of
from metabandit.types import Decision

if TYPE_CHECKING:
    from metabandit.bandit.explanation import Explanation

Array = np.ndarray[Any, Any]
Name = int | str

TASK_ACCEPTED = "a task that was decided for, learned or added before"


@dataclass(frozen=True, slots=True)
class Decisions:
    """Many decisions as arrays; iterating gives each as a Decision.

    >>> import metabandit as mb
    >>> made = mb.MultiTaskBandit(arms=["a", "b"], seed=1).decide_many(["u", "v", "w"])
    >>> len(made), made.task, [d.id for d in made]
    (3, ['u', 'v', 'w'], [0, 1, 2])
    """

    id: Sequence[Name]
    task: Sequence[Name]
    arm: Sequence[str]
    probability: Array
    standard_error: Array
    version: int

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, j: int) -> Decision:
        number = self.id[j]
        name = number if isinstance(number, str) else int(number)
        error, p = float(self.standard_error[j]), float(self.probability[j])
        return Decision(name, self.task[j], self.arm[j], p, error, self.version)

    def __iter__(self) -> Iterator[Decision]:
        return (self[j] for j in range(len(self)))

    def columns(self) -> dict[str, Any]:
        """A dict of columns, for any data frame: pandas.DataFrame(decisions.columns())."""
        names = ("id", "task", "arm", "probability", "standard_error")
        return {name: getattr(self, name) for name in names}


class MultiTaskBandit:
    """Many bandit tasks over the same arms, which learn from one another through their metadata.

    arms : the names of the arms.
    metadata : None, a formula such as "age + C(country)", a list of numeric columns, a dict from column to "number",
        "category" or a list of levels, a fitted transformer, or any `features` object.
    model : the hierarchical model; LinearMixedModel() learns its variances. BetaLogisticModel() for 0/1 rewards.
    policy : Thompson() unless given; Floored(Thompson(), 0.05) keeps every arm's probability above 5 %.
    refresh : when the draw of the coefficients is renewed; see Refresh. None: "always" when draws are exact and cheap,
        else after every 100 rewards.
    seed : what all random numbers come from; the same seed and the same calls give the same decisions.

    >>> import metabandit as mb
    >>> bandit = mb.MultiTaskBandit(arms=["short", "friendly"], metadata=["age"], seed=7)
    >>> d = bandit.decide("user-42", {"age": 31})
    >>> d.task, d.arm in bandit.arms, 0 < d.probability < 1
    ('user-42', True, True)
    >>> bandit.learn(d, 1.3)
    >>> bandit.learn(d.id, 1.3)  # twice: no harm
    """

    def __init__(
        self, arms: Iterable[str], metadata: Any = None, model: Model | None = None, policy: Policy | None = None,
        refresh: Any = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        self._arms = _checked_arms(arms)
        self._arm_index = {arm: a for a, arm in enumerate(self._arms)}
        self._active = np.ones(len(self._arms), bool)
        self.model: Model = LinearMixedModel() if model is None else model
        if not callable(getattr(self.model, "belief", None)):
            raise InvalidInput("model", model, "a model such as LinearMixedModel()")
        self.policy: Policy = Thompson() if policy is None else policy
        if not callable(getattr(self.policy, "choose", None)):
            raise InvalidInput("policy", policy, "a policy such as Thompson()")
        self.seed = secrets.randbits(63) if seed is None else _checked_seed(seed)
        self.features: Features = make(metadata, list(self._arms))
        # Inducing points leave variance out, which belongs to the task effect.
        self._leaves_out = type(self.features)._extra_variance is not Features._extra_variance
        self._groups: dict[str, int] = {}
        self.belief: Belief = self._empty_belief()
        if refresh is None:
            refresh = "always" if getattr(self.model, "cheap_draws", True) else ("every", 100)
        self._draws = DrawsInForce(Refresh.of(refresh), self.seed)
        self._log = DecisionLog()
        self._task_index: dict[Name, int] = {}
        self._tasks: list[Name] = []
        self._digests = np.zeros(0, np.uint64)  # of each task's metadata, to know when it changes; 0: none given

    def _empty_belief(self) -> Belief:
        k = len(self._arms)
        options: dict[str, Any] = {}
        if getattr(self.model, "learns_by_group", False):
            options["groups"] = self._group_numbers(self.features.coefficient_groups(self.arms))
        d = self.features.n_features(k)
        return self.model.belief(n_arms=k, n_features=d, layout=self.features.layout, **options)

    def _group_numbers(self, names: Sequence[str]) -> Array:
        return np.array([self._groups.setdefault(name, len(self._groups)) for name in names], np.int64)

    # -- names ---------------------------------------------------------------------------------------------

    @property
    def arms(self) -> list[str]:
        """Every arm, retired ones included, in the order of their numbers."""
        return list(self._arms)

    @property
    def active_arms(self) -> list[str]:
        """The arms that can be chosen."""
        return [arm for arm, active in zip(self._arms, self._active, strict=True) if active]

    @property
    def tasks(self) -> list[Name]:
        """Every task, in the order they came."""
        return list(self._tasks)

    @property
    def refresh(self) -> Refresh:
        """When the draw in force is renewed."""
        return self._draws.refresh

    def __repr__(self) -> str:
        return (
            f"MultiTaskBandit({len(self._arms)} arms, {len(self._tasks)} tasks, {self._log.size} decisions, "
            f"{self.belief.n_observations} rewards, {type(self.model).__name__})"
        )

    def add_arm(self, arm: str) -> None:
        """A new arm, from now on; it starts from what the model believes of an arm nobody has tried."""
        _checked_arms([*self._arms, arm])
        fresh = self.features.add_arms([arm])
        if fresh:
            self._add_columns(fresh)
        phi = None
        if self.features.layout == "given":
            average = self.features.rows([None])[0, -1]
            phi = np.broadcast_to(average, (self.belief.n_tasks, 1, len(average)))
        self.belief.add_arms(1, phi)
        self._arm_index[arm] = len(self._arms)
        self._arms.append(arm)
        self._active = np.append(self._active, True)

    def retire_arm(self, arm: str) -> None:
        """Never choose this arm again; what it taught stays, and its late rewards still count."""
        if self.active_arms == [arm]:
            raise InvalidInput("arm", arm, "an arm that is not the last active one")
        self._active[self._arm(arm)] = False

    def restore_arm(self, arm: str) -> None:
        """Choose a retired arm again."""
        self._active[self._arm(arm)] = True

    def _arm(self, arm: Any) -> int:
        index = self._arm_index.get(arm) if isinstance(arm, str) else None
        if index is None:
            raise UnknownName("arm", arm, f"one of {self._arms}")
        return index

    # -- tasks -----------------------------------------------------------------------------------------------

    def add_task(self, task: Name, metadata: Any = None) -> None:
        """Make a task known, or give a known one its metadata; decide() and learn() do so on the way."""
        self._task(task, metadata)

    def _task(self, task: Any, metadata: Any) -> int:
        index = self._task_index.get(task) if isinstance(task, (str, int)) else None
        if index is not None and metadata is None:
            return index
        digest = _digest(metadata)
        if index is not None:
            if digest != self._digests[index]:
                self._change_metadata(index, metadata, digest)
            return index
        _checked_task(task)
        return self._new_tasks([task], [metadata], self._encode([metadata]), np.array([digest], np.uint64))

    def _change_metadata(self, index: int, metadata: Any, digest: int) -> None:
        row = self._encode([metadata])[0]
        self.belief.set_features(index, row)
        self._digests[index] = digest

    def _encode(self, records: Any, frame: bool = False) -> Array:
        """Rows for the belief; new categories have become new columns of it."""
        before = len(self.features.columns)
        rows = self.features.rows_from_frame(records) if frame else self.features.rows(records)
        if len(self.features.columns) > before:
            self._add_columns(len(self.features.columns) - before)
        return rows

    def _add_columns(self, how_many: int) -> None:
        groups = self._group_numbers(self.features.groups[-how_many:])
        if getattr(self.model, "learns_by_group", False):
            self.belief.add_columns(how_many, groups)  # type: ignore[call-arg]
        else:
            self.belief.add_columns(how_many)

    def _new_tasks(self, names: list[Name], records: Any, rows: Array, digests: Array) -> int:
        first = int(self.belief.add_tasks(rows)[0])
        if self._leaves_out:
            extra = self.features.extra_variance(_records(records, len(names)))
            self.belief.add_variance(np.arange(first, first + len(names)), extra)
        self._task_index.update(zip(names, range(first, first + len(names)), strict=True))
        self._tasks.extend(names)
        self._digests = grown(self._digests, len(self._tasks))
        self._digests[first : len(self._tasks)] = digests
        return first

    # -- deciding --------------------------------------------------------------------------------------------

    def decide(
        self, task: Name, metadata: Any = None, eligible: Sequence[str] | None = None, id: str | None = None
    ) -> Decision:
        """Choose an arm for a task. A new task id is a new task; no metadata means the average task.

        eligible : the arms that may be chosen this time; None: every active arm.
        id : a name of your own for the decision. The same id again gives the same decision again.
        """
        if id is not None and (repeated := self._repeated(id, task)) is not None:
            return repeated
        mask = self._mask(eligible)
        tasks = np.array([self._task(task, metadata)])
        number = self._log.size if id is None else number_of(id)
        made = self._choose(tasks, np.array([number], np.uint64), None if mask is None else mask[None])
        place = self._log.append(tasks, *made, self.belief.version, None if id is None else [id])[0]
        return self._decision(int(place), id)

    def _repeated(self, id: str, task: Any) -> Decision | None:
        if not isinstance(id, str) or not id:
            raise InvalidInput("id", id, "a text, not empty")
        place = self._log.texts.get(id)
        if place is None:
            return None
        decision = self._decision(place, id)
        if decision.task != task:
            raise InvalidInput("id", id, f"an id not used before: it belongs to a decision for task {decision.task!r}")
        return decision

    def _decision(self, place: int, id: str | None) -> Decision:
        task, arm, version, probability, error, *_ = self._log.records[place].item()
        name: Name = place if id is None else id
        return Decision(name, self._tasks[task], self._arms[arm], probability, error, version)

    def decide_many(
        self, tasks: Any, metadata: Any = None, eligible: Any = None, ids: Sequence[str] | None = None,
        probability: bool = True,
    ) -> Decisions:  # fmt: skip
        """Choose an arm for each of many tasks, all from what is believed now.

        tasks : a data frame with a column "task" and the metadata columns (and "id", if the decisions have ids); or
            the task ids, with `metadata` a sequence of records, a data frame or an array with a row for each.
        eligible : a list of arms for each, or a boolean array (n, arms).
        probability : False leaves the probabilities out (NaN), where only speed counts.
        """
        names, metadata, framed, ids = self._unframed(tasks, metadata, ids)
        mask = self._masks(eligible, len(names))
        if ids is not None:
            self._check_new_ids(ids, len(names))
        if not names:
            return Decisions([], [], [], np.zeros(0), np.zeros(0), self.belief.version)
        index = self._many_tasks(names, metadata, framed)
        first = self._log.size
        numbers = np.arange(first, first + len(names)) if ids is None else [number_of(id) for id in ids]
        made = self._choose(index, np.asarray(numbers, np.uint64), mask, probability)
        places = self._log.append(index, *made, self.belief.version, None if ids is None else list(ids))
        arms = self._arms
        chosen = [arms[a] for a in made[0].tolist()]
        return Decisions(places if ids is None else list(ids), names, chosen, made[1], made[2], self.belief.version)  # type: ignore[arg-type]

    def _unframed(self, tasks: Any, metadata: Any, ids: Any) -> tuple[list[Name], Any, bool, Any]:
        if hasattr(tasks, "columns") and metadata is None:
            import narwhals as nw

            frame = nw.from_native(tasks, eager_only=True)
            if "task" not in frame.columns:
                raise InvalidInput("tasks", f"<a data frame with columns {frame.columns}>", 'a column named "task"')
            ids = frame["id"].to_list() if "id" in frame.columns and ids is None else ids
            rest = [name for name in frame.columns if name not in ("task", "id")]
            return frame["task"].to_list(), (frame.select(rest).to_native() if rest else None), True, ids
        names = tasks.tolist() if isinstance(tasks, np.ndarray) else list(tasks)
        return names, metadata, hasattr(metadata, "columns") or isinstance(metadata, np.ndarray), ids

    def _check_new_ids(self, ids: Sequence[str], n: int) -> None:
        if len(ids) != n or len(set(ids)) != n:
            raise InvalidInput("ids", f"<{len(ids)} ids, {len(set(ids))} of them different>", f"{n} different texts")
        for id in ids:
            if not isinstance(id, str) or not id or id in self._log.texts:
                raise InvalidInput("ids", id, "texts not used before, not empty")

    def _many_tasks(self, names: list[Name], metadata: Any, framed: bool) -> Array:
        """The indices of tasks, new ones added; metadata given for known tasks replaces theirs where it differs."""
        known = self._task_index
        found = list(map(known.get, names)) if metadata is None else None
        if found is not None and None not in found:
            return np.array(found, np.int64)
        for name in names:
            if not isinstance(name, str):
                _checked_task(name)
        if metadata is None:
            fresh = [name for name in dict.fromkeys(names) if name not in known]
            rows = np.repeat(self._encode([None]), len(fresh), axis=0)
            self._new_tasks(fresh, [None] * len(fresh), rows, np.zeros(len(fresh), np.uint64))
        elif framed and not any(map(known.__contains__, names)) and len(set(names)) == len(names):
            digests = np.array([_digest(record) for record in _records(metadata, len(names))], np.uint64)
            self._new_tasks(names, metadata, self._encode(metadata, frame=True), digests)
        else:
            self._mixed_tasks(names, metadata)
        return np.array([known[name] for name in names], np.int64)

    def _mixed_tasks(self, names: list[Name], metadata: Any) -> None:
        wanted = dict(zip(names, _records(metadata, len(names)), strict=True))
        digests = {name: _digest(record) for name, record in wanted.items()}
        fresh = [name for name in wanted if name not in self._task_index]
        changed = [
            name for name in wanted
            if name in self._task_index and wanted[name] is not None
            and digests[name] != self._digests[self._task_index[name]]
        ]  # fmt: skip
        rows = self._encode([wanted[name] for name in fresh + changed])  # all checked before anything changes
        if fresh:
            records = [wanted[name] for name in fresh]
            self._new_tasks(fresh, records, rows[: len(fresh)], np.array([digests[n] for n in fresh], np.uint64))
        for name, row in zip(changed, rows[len(fresh) :], strict=True):
            self.belief.set_features(self._task_index[name], row)
            self._digests[self._task_index[name]] = digests[name]

    def _choose(self, tasks: Array, numbers: Array, mask: Any, probability: bool = True) -> tuple[Array, Array, Array]:
        made = keys(self.seed, numbers)
        choice = self.policy.choose(self._law(tasks, made), made, mask, with_probability=probability)
        return choice.arm, choice.probability, choice.standard_error

    def _law(self, tasks: Array, decision_keys: Array) -> Law:
        """What the policy acts on: the law given the draw in force, or given everything."""
        if self.policy.uses_draw:
            return self._draws.law(self.belief, tasks, decision_keys)
        return Normal(*self.belief.moments(tasks))

    def _mask(self, eligible: Sequence[str] | None) -> Array | None:
        if eligible is None:
            return None if self._active.all() else self._active
        if isinstance(eligible, str):
            raise InvalidInput("eligible", eligible, "a list of arms")
        mask = np.zeros(len(self._arms), bool)
        mask[[self._arm(arm) for arm in eligible]] = True
        mask &= self._active
        if not mask.any():
            raise InvalidInput("eligible", eligible, f"at least one of the active arms {self.active_arms}")
        return mask

    def _masks(self, eligible: Any, n: int) -> Array | None:
        if eligible is None:
            return None if self._active.all() else np.tile(self._active, (n, 1))
        if len(eligible) != n:
            raise InvalidInput("eligible", f"<{len(eligible)} entries>", f"one for each of {n} tasks")
        if isinstance(eligible, np.ndarray) and eligible.dtype == bool and eligible.shape == (n, len(self._arms)):
            mask: Array = eligible & self._active
            if not mask.any(axis=1).all():
                raise InvalidInput("eligible", "<a row without an active arm>", "at least one active arm for each")
            return mask
        every = self._active
        return np.array([every if arms is None else self._mask(arms) for arms in eligible])

    # -- learning ----------------------------------------------------------------------------------------------

    def learn(self, decision: Decision | Name, reward: float, *, amend: bool = False, exposure: float = 1.0) -> None:
        """The reward of a decision, any time later, in any order. The same reward again does no harm.

        A different one raises ConflictingReward, unless amend=True: then it replaces the first, exactly.
        exposure : over how much time, or how many trials, a count was made (GammaLogModel).
        """
        place = self._log.place(decision)
        value, span = float(finite("reward", reward, ())), float(finite("exposure", exposure, ()))
        record = self._log.records[place]
        old, old_span = float(record["reward"]), float(record["exposure"])
        if old == value and old_span == span:
            return
        task, arm = int(record["task"]), int(record["arm"])
        if old == old:  # there is a reward already
            if not amend:
                raise ConflictingReward("reward", value, f"{old!r}, which was learned before; or amend=True")
            self._observe(task, arm, value, span)  # first: a refused reward changes nothing
            self._retract(task, arm, old, old_span)
        else:
            self._observe(task, arm, value, span)
        record["reward"], record["exposure"] = value, span

    def _observe(self, task: Any, arm: Any, reward: Any, exposure: Any) -> None:
        if self.belief.reward == "count":
            self.belief.observe(task, arm, reward, exposure=exposure)  # type: ignore[call-arg]
        elif np.all(exposure == 1.0):
            self.belief.observe(task, arm, reward)
        else:
            raise InvalidInput("exposure", exposure, f"1 with {self.belief.reward} rewards; counts have an exposure")

    def _retract(self, task: Any, arm: Any, reward: Any, exposure: Any) -> None:
        if self.belief.reward == "count":
            self.belief.retract(task, arm, reward, exposure=exposure)  # type: ignore[call-arg]
        else:
            self.belief.retract(task, arm, reward)

    def forget(self, decision: Decision | Name) -> None:
        """Take the reward of a decision back, exactly: as if it had not been learned yet."""
        record = self._log.records[self._log.place(decision)]
        old, span = float(record["reward"]), float(record["exposure"])
        if old == old:
            self._retract(int(record["task"]), int(record["arm"]), old, span)
            record["reward"], record["exposure"] = np.nan, 1.0

    def learn_many(self, rewards: Any, reward: Any = None, *, amend: bool = False) -> None:
        """Many rewards at once: everything is checked before anything is learned.

        rewards : a data frame, or a dict of columns, with "decision" (or "id") and "reward"; or with "task", "arm" and
            "reward", for data that were not decided here (then there is no id, and the same row twice counts twice).
            Or decisions, or their ids, with `reward` the numbers.
        """
        columns = {"decision": rewards, "reward": reward} if reward is not None else _columns(rewards)
        values = np.atleast_1d(finite("reward", columns.get("reward")))
        spans = np.broadcast_to(finite("exposure", columns.get("exposure", 1.0)), values.shape)
        decided = columns.get("decision", columns.get("id"))
        if decided is None:
            self._learn_data(columns, values, spans)
            return
        if isinstance(decided, Decisions):
            decided = decided.id
        places = self._log.places(decided)
        if len(places) != len(values):
            raise InvalidInput("reward", f"<{len(values)} rewards>", f"one for each of {len(places)} decisions")
        fresh, changed = self._sorted_out(places, values, spans, amend)
        if len(fresh):
            records = self._log.records[places[fresh]]
            self._observe(records["task"], records["arm"].astype(np.int64), values[fresh], spans[fresh])
            self._log.records["reward"][places[fresh]] = values[fresh]
            self._log.records["exposure"][places[fresh]] = spans[fresh]
        for j in changed:
            self.learn(int(places[j]), float(values[j]), amend=True, exposure=float(spans[j]))

    def _sorted_out(self, places: Array, values: Array, spans: Array, amend: bool) -> tuple[Array, Array]:
        """Which rewards are new and which amend; a conflict is refused before anything is learned."""
        old, old_spans = self._log.records["reward"][places], self._log.records["exposure"][places]
        first = np.zeros(len(places), bool)
        unique, where, back = np.unique(places, return_index=True, return_inverse=True)
        first[where] = True
        repeated = ~first & ((values != values[where][back]) | (spans != spans[where][back]))
        known = ~np.isnan(old)
        differs = known & ((old != values) | (old_spans != spans))
        if repeated.any() or (differs.any() and not amend):
            j = int(np.flatnonzero(repeated | differs)[0])
            other = float(old[j]) if differs[j] else float(values[where][back][j])
            raise ConflictingReward("reward", float(values[j]), f"{other!r}, given for the same decision; or amend=True")
        return np.flatnonzero(first & ~known), np.flatnonzero(first & differs)

    def _learn_data(self, columns: dict[str, Any], values: Array, spans: Array) -> None:
        if not {"task", "arm"} <= columns.keys():
            raise InvalidInput(
                "rewards", f"<columns {sorted(columns)}>", '"decision" and "reward", or "task", "arm" and "reward"'
            )
        names = list(columns["task"])
        arms = np.array([self._arm(arm) for arm in columns["arm"]], np.int64)
        if not len(names) == len(arms) == len(values):
            raise InvalidInput("rewards", "<columns of different lengths>", "columns of equal length")
        rest = {k: v for k, v in columns.items() if k not in ("task", "arm", "reward", "exposure", "decision", "id")}
        records = [dict(zip(rest, row, strict=True)) for row in zip(*rest.values(), strict=True)] if rest else None
        self._observe(self._many_tasks(names, records, False), arms, values, spans)

    # -- understanding and keeping -----------------------------------------------------------------------------

    def explain(self, task: Name) -> Explanation:
        """Why this task gets its arms: prior from metadata, own data, posterior, and who else it learned from."""
        from metabandit.bandit.explanation import explain

        return explain(self, self._known(task))

    def _known(self, task: Any) -> int:
        index = self._task_index.get(task) if isinstance(task, (str, int)) else None
        if index is None:
            raise UnknownName("task", task, TASK_ACCEPTED)
        return index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, atomically; load() continues bit for bit as this bandit would have."""
        from metabandit.bandit.keeping import save

        save(self, path)

    def to_arviz(self, draws: int = 1000, seed: int = 0) -> Any:
        """Posterior draws of the coefficients, for ArviZ (needs the extra "bayes")."""
        from metabandit.bandit.arviz import to_arviz

        return to_arviz(self, draws, seed)


def _checked_arms(arms: Iterable[str]) -> list[str]:
    if isinstance(arms, str):
        raise InvalidInput("arms", arms, "a list of names")
    names = list(arms)
    if not names or not all(isinstance(arm, str) and arm for arm in names):
        raise InvalidInput("arms", names, "at least one name, each a text, not empty")
    if len(set(names)) < len(names):
        twice = next(arm for arm in names if names.count(arm) > 1)
        raise InvalidInput("arms", twice, "different names")
    return names


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInput("seed", seed, "a whole number >= 0, or None")
    return int(seed)


def _checked_task(task: Any) -> Name:
    if isinstance(task, bool) or not isinstance(task, (str, int)):
        raise InvalidInput("task", task, "a text or a whole number")
    return task


def _digest(metadata: Any) -> int:
    """64 bits that tell one metadata record from another; 0 for none."""
    if metadata is None:
        return 0
    if isinstance(metadata, np.ndarray):
        content = metadata.tobytes()
    elif hasattr(metadata, "items"):
        content = repr(sorted((str(name), repr(value)) for name, value in metadata.items())).encode()
    else:
        content = repr(metadata).encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") | 1


def _records(metadata: Any, n: int) -> list[Any]:
    """One record for each of n tasks, from a data frame, an array or a sequence."""
    if hasattr(metadata, "columns"):
        import narwhals as nw

        records = list(nw.from_native(metadata, eager_only=True).iter_rows(named=True))
    else:
        records = list(metadata)
    if len(records) != n:
        raise InvalidInput("metadata", f"<{len(records)} records>", f"one for each of {n} tasks")
    return records


def _columns(rewards: Any) -> dict[str, Any]:
    if isinstance(rewards, dict):
        return rewards
    if not hasattr(rewards, "columns"):
        raise InvalidInput("rewards", f"<{type(rewards).__name__}>", "a data frame, a dict of columns, or decisions and reward=")
    import narwhals as nw

    frame = nw.from_native(rewards, eager_only=True)
    return {name: frame[name].to_list() for name in frame.columns}
