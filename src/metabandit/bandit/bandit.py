"""MultiTaskBandit: decide, learn, explain, save - by name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.bandit.arms import Arms
from metabandit.bandit.batch import Batch, batch_of, checked_id
from metabandit.bandit.decisions import Decisions
from metabandit.bandit.draws import DrawsInForce
from metabandit.bandit.frames import columns_of, is_frame
from metabandit.bandit.log import DecisionLog
from metabandit.bandit.repeats import Repeats
from metabandit.bandit.rewards import Rewards
from metabandit.bandit.tasks import Tasks, plain_name
from metabandit.errors import InvalidInput
from metabandit.features import Features, make
from metabandit.laws import Law, Normal
from metabandit.learning.refresh import Refresh
from metabandit.models.base import Belief, Model
from metabandit.models.linear import LinearMixedModel
from metabandit.policies import Policy, Thompson
from metabandit.streams import keys, number_of
from metabandit.types import Decision

if TYPE_CHECKING:
    from metabandit.bandit.explanation import Explanation

Array = np.ndarray[Any, Any]
Name = int | str


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
    >>> bandit = mb.MultiTaskBandit(arms=["short", "friendly"], metadata=["visits"], seed=7)
    >>> d = bandit.decide("user-42", {"visits": 3})
    >>> d.task, d.arm in bandit.arms, 0 < d.probability <= 1
    ('user-42', True, True)
    >>> bandit.learn(d, 1.3)
    >>> bandit.learn(d.id, 1.3)  # twice: no harm
    """

    def __init__(
        self, arms: Iterable[str], metadata: Any = None, model: Model | None = None, policy: Policy | None = None,
        refresh: Any = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        model = LinearMixedModel() if model is None else model
        if isinstance(model, type) or not callable(getattr(model, "belief", None)):
            raise InvalidInput("model", model, "a model such as LinearMixedModel()")
        policy = Thompson() if policy is None else policy
        if isinstance(policy, type) or not callable(getattr(policy, "choose", None)):
            raise InvalidInput("policy", policy, "a policy such as Thompson()")
        if refresh is None:
            refresh = "always" if getattr(model, "cheap_draws", False) else ("every", 100)
        seed = secrets.randbits(63) if seed is None else _checked_seed(seed)
        named = Arms(arms)
        check_feasible(policy, named.active[None])
        tasks = Tasks(make(metadata, list(named.names)), model, named.names)
        self._assemble(named, tasks, model, policy, Refresh.of(refresh), seed)

    def _assemble(
        self, arms: Arms, tasks: Tasks, model: Model, policy: Policy, refresh: Refresh, seed: int
    ) -> None:  # fmt: skip
        """What a new bandit and a loaded one have in common."""
        self._arms, self._tasks = arms, tasks
        self.model, self.policy, self.seed = model, policy, seed
        self._draws, self._log = DrawsInForce(refresh, seed), DecisionLog()
        self._rewards = Rewards(self._log, tasks, arms)
        self._repeats = Repeats(self._log, tasks, arms)

    # -- what there is -----------------------------------------------------------------------------------------

    @property
    def arms(self) -> list[str]:
        """Every arm, retired ones included, in the order of their numbers."""
        return list(self._arms.names)

    @property
    def active_arms(self) -> list[str]:
        """The arms that can be chosen."""
        return self._arms.active_names

    @property
    def tasks(self) -> list[Name]:
        """Every task, in the order they came."""
        return list(self._tasks.names)

    @property
    def features(self) -> Features:
        """What turns metadata into columns."""
        return self._tasks.features

    @property
    def belief(self) -> Belief:
        """Everything the data say; tasks and arms by number."""
        return self._tasks.belief

    @property
    def refresh(self) -> Refresh:
        """When the draw in force is renewed."""
        return self._draws.refresh

    def __repr__(self) -> str:
        return (
            f"MultiTaskBandit({len(self._arms)} arms, {len(self._tasks.names)} tasks, {self._log.size} decisions, "
            f"{self.belief.n_observations} rewards, {type(self.model).__name__})"
        )

    def add_task(self, task: Name, metadata: Any = None) -> None:
        """Make a task known, or give a known one its metadata; decide() and learn() do so on the way."""
        self._tasks.one(task, metadata)

    def add_arm(self, arm: str) -> None:
        """A new arm, from now on; it starts from what the model believes of an arm nobody has tried."""
        self._arms.check_new(arm)
        check_feasible(self.policy, np.append(self._arms.active, True)[None])
        self._tasks.add_arm(arm)
        self._arms.add(arm)

    def retire_arm(self, arm: str) -> None:
        """Never choose this arm again; what it taught stays, and its late rewards still count."""
        left = self._arms.active.copy()
        left[self._arms.number(arm)] = False
        if left.any():
            check_feasible(self.policy, left[None])
        self._arms.retire(arm)

    def restore_arm(self, arm: str) -> None:
        """Choose a retired arm again."""
        self._arms.switch(arm, True)

    # -- deciding --------------------------------------------------------------------------------------------

    def decide(
        self, task: Name, metadata: Any = None, eligible: Sequence[str] | None = None, id: str | None = None
    ) -> Decision:
        """Choose an arm for a task. A new task id is a new task; no metadata means the average task.

        eligible : the arms that may be chosen this time; None: every active arm.
        id : a name of your own for the decision. The same id again gives the same decision again, whatever is
            known by then; what is asked must still be right.
        """
        named = self._arms.named(eligible)
        named = None if named is None else named[None]
        if id is not None:
            batch = Batch([plain_name(task)], [metadata], [checked_id("id", id)])
            if (place := int(self._repeats.places(batch, named)[0])) >= 0:
                return self._decision(place, id)
        mask = self._choosable(named, 1)
        tasks = np.array([self._tasks.one(task, metadata)])
        number = self._log.size if id is None else number_of(id)
        made = self._choose(tasks, np.array([number], np.uint64), mask)
        place = int(self._log.append(tasks, *made, self.belief.version, None if id is None else [id])[0])
        return self._decision(place, id)

    def _decision(self, place: int, id: str | None) -> Decision:
        task, arm, version, probability, error, *_ = self._log.records[place].item()
        name: Name = place if id is None else id
        return Decision(name, self._tasks.names[task], self._arms.names[arm], probability, error, version)

    def decide_many(
        self, tasks: Any, metadata: Any = None, eligible: Any = None, ids: Sequence[str] | None = None,
        probability: bool = True,
    ) -> Decisions:  # fmt: skip
        """Choose an arm for each of many tasks, all from what is believed now.

        tasks : a data frame, or a dict of columns, with "task" and the metadata columns (and "id", if the decisions
            have ids); or the task ids, with `metadata` a sequence of records, a data frame or an array with a row
            for each.
        eligible : a list of arms for each, or a boolean array (n, arms).
        ids : a name of your own for each; those used before give the same decisions again.
        probability : False leaves the probabilities out (NaN), where only speed counts.
        """
        batch = batch_of(tasks, metadata, ids)
        named = self._arms.many_named(eligible, len(batch))
        places = self._repeats.places(batch, named)
        fresh = np.flatnonzero(places < 0)
        if len(fresh):
            new = batch if len(fresh) == len(batch) else batch.part(fresh)
            places[fresh] = self._decide_new(new, None if named is None else named[fresh], probability)
        return self._decisions(places, batch)

    def _decide_new(self, batch: Batch, named: Array | None, probability: bool) -> Array:
        """Decide and log; returns the places in the log."""
        mask = self._choosable(named, len(batch))
        index = self._tasks.many(batch.names, batch.metadata)
        first = self._log.size
        numbers = (
            np.arange(first, first + len(batch)) if batch.ids is None else list(map(number_of, batch.ids))
        )
        made = self._choose(index, np.asarray(numbers, np.uint64), mask, probability)
        return self._log.append(index, *made, self.belief.version, batch.ids)

    def _decisions(self, places: Array, batch: Batch) -> Decisions:
        records = self._log.records[places]
        chosen = list(map(self._arms.names.__getitem__, records["arm"].tolist()))
        numbers = (np.ascontiguousarray(records[name]) for name in ("probability", "error", "version"))
        ids: Any = places if batch.ids is None else batch.ids
        return Decisions(ids, batch.names, chosen, *numbers)

    def _choosable(self, named: Array | None, n: int) -> Array | None:
        """The arms that may be chosen : (n, K), None for all of them; refused where the policy cannot."""
        mask = self._arms.choosable(named, n)
        if named is not None and mask is not None:
            check_feasible(self.policy, np.unique(mask, axis=0))
        return mask

    def _choose(
        self, tasks: Array, numbers: Array, mask: Any, probability: bool = True
    ) -> tuple[Array, Array, Array]:
        made = keys(self.seed, numbers)
        choice = self.policy.choose(self._law(tasks, made), made, mask, with_probability=probability)
        return choice.arm, choice.probability, choice.standard_error

    def _law(self, tasks: Array, decision_keys: Array) -> Law:
        """What the policy acts on: the law given the draw in force, or given everything."""
        if self.policy.uses_draw:
            return self._draws.law(self.belief, tasks, decision_keys)
        return Normal(*self.belief.moments(tasks))

    # -- learning ----------------------------------------------------------------------------------------------

    def learn(
        self, decision: Decision | Name, reward: float, *, amend: bool = False, exposure: float = 1.0
    ) -> None:
        """The reward of a decision, any time later, in any order. The same reward again does no harm.

        A different one raises ConflictingReward, unless amend=True: then it replaces the first, exactly.
        exposure : over how much time, or how many trials, a count was made (GammaLogModel).
        """
        self._rewards.learn(decision, reward, amend, exposure)

    def forget(self, decision: Decision | Name) -> None:
        """Take the reward of a decision back, exactly: as if it had not been learned yet."""
        self._rewards.forget(decision)

    def learn_many(self, rewards: Any, reward: Any = None, *, amend: bool = False) -> None:
        """Many rewards at once: everything is checked before anything is learned.

        rewards : a data frame, or a dict of columns, with "decision" (or "id") and "reward"; or with "task", "arm" and
            "reward" and the metadata columns, for data that were not decided here (then there is no id, and the same
            row twice counts twice). Counts may come with a column "exposure".
            Or decisions, or their ids, with `reward` the numbers.
        """
        accepted = 'a data frame or a dict of columns, with "reward" among them; or decisions and reward='
        if reward is None:
            columns = columns_of("rewards", rewards, accepted)
        elif is_frame(rewards) or isinstance(rewards, dict):
            raise InvalidInput("rewards", f"<a {type(rewards).__name__} and reward=>", accepted)
        else:
            columns = {"decision": rewards, "reward": reward}
        self._rewards.learn_many(columns, amend)

    def log(self) -> dict[str, Any]:
        """Every decision so far, as columns for any data frame; reward is NaN where none was learned.

        >>> import metabandit as mb
        >>> bandit = mb.MultiTaskBandit(arms=["a", "b"], seed=1)
        >>> bandit.learn(bandit.decide("u", id="visit-1"), 0.5)
        >>> log = bandit.log()
        >>> log["id"], log["task"], log["reward"].tolist()
        (['visit-1'], ['u'], [0.5])
        """
        return self._log.columns(self._tasks.names, self._arms.names)

    # -- understanding and keeping -----------------------------------------------------------------------------

    def explain(self, task: Name) -> Explanation:
        """Why this task gets its arms: prior from metadata, own data, posterior, and who else it learned from."""
        from metabandit.bandit.explanation import explain

        return explain(self.belief, self._tasks, self.arms, self._tasks.number(task))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, atomically; load() continues bit for bit as this bandit would have."""
        from metabandit.bandit.keeping import save

        save(self, path)

    def to_arviz(self, draws: int = 1000, seed: int = 0) -> Any:
        """Posterior draws of the coefficients, for ArviZ (needs the extra "bayes")."""
        from metabandit.bandit.arviz import to_arviz

        return to_arviz(self, draws, seed)


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInput("seed", seed, "a whole number >= 0, or None")
    return int(seed)


def check_feasible(policy: Policy, masks: Array) -> None:
    """Refuse what the policy cannot do with these eligible arms, before anything changes."""
    n, k = masks.shape
    flat = Normal(np.zeros((n, k)), np.ones((n, k)))
    policy.choose(flat, np.arange(n, dtype=np.uint64), None if masks.all() else masks, with_probability=False)
