"""A machine that asks anything of an engine, in any order, beside dicts that say what must be so."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from metabandit.errors import ConflictingReward, InvalidInput, UnknownName
from metabandit.service.audit import audit
from metabandit.service.errors import Conflict
from metabandit.service.messages import (
    BanditChange,
    DecisionMade,
    PolicySettings,
    RefreshSettings,
    TaskMetadata,
)
from tests.twins.service import (
    ARMS,
    ask,
    bandit,
    differences,
    fresh_belief,
    pay,
    records_of,
    refolded,
    running,
    same_belief,
    settled,
)

KINDS = {"real": "known", "wide": "full", "binary": "binary"}
NAMES = st.sampled_from(list(KINDS))
TASKS = st.sampled_from("pqrs")
METADATA = st.none() | st.fixed_dictionaries(
    {"age": st.integers(0, 3).map(float), "country": st.sampled_from(["NO", "SE", "DK", None])}
)
REWARDS = st.integers(0, 1).map(float)


@dataclass
class Known:
    """What must be so of one bandit."""

    arms: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(ARMS, True))
    paused: bool = False
    tasks: dict[str, Any] = field(default_factory=dict)
    made: dict[str, DecisionMade] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)

    def pick(self, number: int) -> str | None:
        return list(self.made)[number % len(self.made)] if self.made else None


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.known = {name: Known() for name in KINDS}
        self.ids = 0
        self.open()

    def open(self) -> None:
        self.stack = AsyncExitStack()
        new = [bandit(kind, name) for name, kind in KINDS.items()]
        entered = self.stack.enter_async_context(running(Path(self.folder.name) / "s.db", *new))
        self.engine = self.runner.run(entered)

    def does(self, work: Any) -> Any:
        return self.runner.run(asyncio.wait_for(work, 30))

    def fails(self, error: type[Exception], work: Any) -> None:
        with pytest.raises(error):
            self.does(work)

    # -- decisions ---------------------------------------------------------------------------------------------

    @rule(name=NAMES, tasks=st.lists(st.tuples(TASKS, METADATA), min_size=1, max_size=4), few=st.booleans())
    def decide(self, name: str, tasks: list[tuple[str, Any]], few: bool) -> None:
        known, eligible = self.known[name], ARMS[:2] if few else None
        asked = [
            ask(task, f"d{self.ids + j}", metadata, eligible) for j, (task, metadata) in enumerate(tasks)
        ]
        self.ids += len(asked)
        if known.paused or (few and not any(known.arms[arm] for arm in ARMS[:2])):
            self.fails(InvalidInput, self.engine.decide(name, asked))
            return
        for made in self.does(self.engine.decide(name, asked)):
            assert known.arms[made.arm]
            assert eligible is None or made.arm in eligible
            known.made[made.id] = made
        for task, metadata in tasks:
            if metadata or task not in known.tasks:
                known.tasks[task] = metadata

    @rule(
        name=NAMES,
        numbers=st.lists(st.integers(0, 1000), min_size=1, max_size=3, unique=True),
        metadata=METADATA,
    )
    def decide_again(self, name: str, numbers: list[int], metadata: Any) -> None:
        """The same answer; what a repeated request says of its task is no news."""
        known = self.known[name]
        if ids := {id for number in numbers if (id := known.pick(number))}:
            asked = [ask(known.made[id].task, id, metadata) for id in ids]
            assert self.does(self.engine.decide(name, asked)) == [known.made[id] for id in ids]

    @rule(name=NAMES, number=st.integers(0, 1000), task=st.sampled_from(["p", "q", "new"]), metadata=METADATA)
    def decide_wrongly(self, name: str, number: int, task: str, metadata: Any) -> None:
        known = self.known[name]
        id = known.pick(number)
        if id and known.made[id].task != task:
            self.fails(
                Conflict, self.engine.decide(name, [ask("new", "n", metadata), ask(task, id, metadata)])
            )
        wrong = [ask("new", "n", metadata), ask("p", "m", eligible=["no arm"])]
        self.fails(InvalidInput, self.engine.decide(name, wrong))

    # -- rewards -----------------------------------------------------------------------------------------------

    @rule(name=NAMES, number=st.integers(0, 1000), value=REWARDS)
    def reward(self, name: str, number: int, value: float) -> None:
        known = self.known[name]
        if id := known.pick(number):
            if known.rewards.get(id, value) != value:
                self.fails(ConflictingReward, self.engine.reward(name, [pay(id, value)]))
                return
            taken = self.does(self.engine.reward(name, [pay(id, value), pay(id, value)]))
            assert [t.effect for t in taken] == ["repeated" if id in known.rewards else "learned", "repeated"]
            known.rewards[id] = value

    @rule(name=NAMES, number=st.integers(0, 1000), value=REWARDS)
    def amend(self, name: str, number: int, value: float) -> None:
        known = self.known[name]
        if id := known.pick(number):
            (taken,) = self.does(self.engine.reward(name, [pay(id, value, True)]))
            had = known.rewards.get(id)
            assert taken.effect == ("learned" if had is None else "repeated" if had == value else "amended")
            known.rewards[id] = value

    @rule(name=NAMES, number=st.integers(0, 1000))
    def retract(self, name: str, number: int) -> None:
        known = self.known[name]
        if id := known.pick(number):
            (taken,) = self.does(self.engine.reward(name, [pay(id, None, True)]))
            assert taken.effect == ("retracted" if id in known.rewards else "repeated")
            known.rewards.pop(id, None)

    @rule(name=NAMES, number=st.integers(0, 1000))
    def reward_wrongly(self, name: str, number: int) -> None:
        known = self.known[name]
        good = [pay(id, 1.0, True)] if (id := known.pick(number)) else []
        for wrong in (pay("never made", 1.0), pay(id or "", 0.5 if name == "binary" else float("nan"), True)):
            self.fails(InvalidInput, self.engine.reward(name, [*good, wrong]))

    # -- everything else ---------------------------------------------------------------------------------------

    @rule(name=NAMES, task=TASKS, metadata=METADATA)
    def put(self, name: str, task: str, metadata: Any) -> None:
        known = self.known[name]
        self.does(self.engine.put_tasks(name, [TaskMetadata(task=task, metadata=metadata or {})]))
        if metadata or task not in known.tasks:
            known.tasks[task] = metadata

    @rule(name=NAMES, task=TASKS)
    def erase(self, name: str, task: str) -> None:
        known = self.known[name]
        if task not in known.tasks:
            self.fails(UnknownName, self.engine.erase(name, task))
            return
        self.does(self.engine.erase(name, task))
        del known.tasks[task]
        for id in [id for id, made in known.made.items() if made.task == task]:
            del known.made[id]
            known.rewards.pop(id, None)

    @rule(name=NAMES, arm=st.sampled_from([*ARMS, "new"]), active=st.booleans())
    def arms(self, name: str, arm: str, active: bool) -> None:
        arms = self.known[name].arms
        if arm not in arms:
            self.does(self.engine.add_arm(name, arm))
            arms[arm] = True
        elif not active and [other for other in arms if arms[other]] == [arm]:
            self.fails(Conflict, self.engine.set_arm(name, arm, False))
        else:
            self.does(self.engine.set_arm(name, arm, active))
            arms[arm] = active

    @rule(name=NAMES, paused=st.booleans(), floor=st.sampled_from([0.0, 0.05]), amount=st.integers(1, 5))
    def change(self, name: str, paused: bool, floor: float, amount: int) -> None:
        refresh = RefreshSettings(rule="every", amount=float(amount))
        change = BanditChange(paused=paused, policy=PolicySettings(floor=floor), refresh=refresh)
        assert self.does(self.engine.change(name, change)).paused == paused
        self.known[name].paused = paused

    @rule(name=NAMES)
    def learn(self, name: str) -> None:
        self.engine.learner.rested.clear()
        self.does(self.engine.learner.renew(self.engine.desks[name]))
        self.does(self.engine.learner.look_after(self.engine.desks[name]))

    @rule(name=NAMES)
    def keep(self, name: str) -> None:
        self.does(self.engine.learner.keep(self.engine.desks[name], least=0))

    @rule()
    def restart(self) -> None:
        self.does(self.stack.aclose())
        self.open()

    # -- what must be so ---------------------------------------------------------------------------------------

    @invariant()
    def the_numbers_are_right(self) -> None:
        for name, known in self.known.items():
            state = self.does(settled(self.engine, name))
            made = self.does(self.engine.bandit(name))
            assert (made.decisions, made.rewards, made.tasks) == (
                *map(len, (known.made, known.rewards, known.tasks)),
            )
            assert {arm.name: arm.active for arm in made.arms} == known.arms
            assert made.paused == known.paused
            assert state.belief.n_observations == len(known.rewards)
            assert set(state.tasks.index) == set(known.tasks)

    def check(self, name: str, known: Known) -> None:
        state = self.does(settled(self.engine, name))
        assert differences(state, self.does(refolded(self.engine, name))) == []
        records = self.does(records_of(self.engine, name))
        assert set(records) == set(known.made)
        for id, made in known.made.items():
            record = records[id]
            assert (record.task, record.arm, record.probability) == (made.task, made.arm, made.probability)
            assert record.reward == known.rewards.get(id)
            assert self.does(self.engine.decision(name, id)) == record
        data = [(known.made[id].task, known.made[id].arm, value, 1.0) for id, value in known.rewards.items()]
        same_belief(state.belief, fresh_belief(state, data), 1e-8)
        columns = state.tasks.features.columns
        for task, metadata in known.tasks.items():
            row = state.belief.features.rows[state.tasks.index[task]]
            if metadata:
                assert row[columns.index("age")] == metadata["age"]
                if metadata["country"]:
                    assert row[columns.index(f"country[{metadata['country']}]")] == 1.0

    def teardown(self) -> None:
        try:
            for name, known in self.known.items():
                self.check(name, known)
            result = self.does(audit(self.engine.store))
            assert result.clean, str(result)
            assert result.decisions == sum(len(known.made) for known in self.known.values())
        finally:
            self.does(self.stack.aclose())
            self.runner.close()
            self.folder.cleanup()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)


@pytest.mark.slow
class TestLongMachine(Machine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
