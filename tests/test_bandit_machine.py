"""A machine that does anything to a bandit, in any order; at the end the belief is that of the live rewards alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import metabandit as mb

MODEL = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=0.5)
REWARDS = st.floats(-3, 3).map(lambda x: round(x, 3))


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.arms = ["a", "b"]
        self.bandit = mb.MultiTaskBandit(
            self.arms, metadata={"x": "number", "c": "category"}, model=MODEL, seed=1
        )
        self.records: dict[str, dict[str, object]] = {}
        self.decided: list[mb.Decision] = []
        self.rewards: dict[int, float] = {}

    @rule(task=st.sampled_from("pqrs"), x=st.integers(0, 3), c=st.sampled_from(["N", "S", "D"]))
    def decide(self, task: str, x: int, c: str) -> None:
        record = {"x": float(x), "c": c}
        self.records[task] = record
        self.decided.append(self.bandit.decide(task, record))

    @rule(tasks=st.lists(st.sampled_from("pqrs"), max_size=4))
    def decide_many(self, tasks: list[str]) -> None:
        known = [task for task in tasks if task in self.records]
        self.decided.extend(self.bandit.decide_many(known))

    @rule(j=st.integers(0, 1000), reward=REWARDS)
    def learn(self, j: int, reward: float) -> None:
        if self.decided:
            j %= len(self.decided)
            conflict = j in self.rewards and self.rewards[j] != reward
            try:
                self.bandit.learn(self.decided[j], reward)
                assert not conflict
                self.rewards[j] = reward
            except mb.ConflictingReward:
                assert conflict

    @rule(j=st.integers(0, 1000), reward=REWARDS)
    def amend(self, j: int, reward: float) -> None:
        if self.decided:
            j %= len(self.decided)
            self.bandit.learn(self.decided[j], reward, amend=True)
            self.rewards[j] = reward

    @rule(j=st.integers(0, 1000))
    def forget(self, j: int) -> None:
        if self.decided:
            j %= len(self.decided)
            self.bandit.forget(self.decided[j])
            self.rewards.pop(j, None)

    @rule()
    def add_arm(self) -> None:
        if len(self.arms) < 4:
            self.arms.append(f"arm{len(self.arms)}")
            self.bandit.add_arm(self.arms[-1])

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.bandit.save(Path(folder) / "b.mb")
            self.bandit = mb.load(Path(folder) / "b.mb")

    @invariant()
    def the_belief_is_that_of_the_live_rewards(self) -> None:
        assert self.bandit.belief.n_observations == len(self.rewards)

    def teardown(self) -> None:
        belief = self.bandit.belief
        k, d = belief.n_arms, belief.n_features
        fresh = MODEL.belief(k, d, layout="by_arm")
        if belief.n_tasks:
            fresh.add_tasks(belief.features.rows[: belief.n_tasks])
        for j, reward in self.rewards.items():
            made = self.decided[j]
            fresh.observe(self.bandit.tasks.index(made.task), self.bandit.arms.index(made.arm), reward)
        np.testing.assert_allclose(belief.coef.mean, fresh.coef.mean, atol=1e-8)
        np.testing.assert_allclose(belief.coef.cov, fresh.coef.cov, atol=1e-8)
        assert abs(belief.log_evidence - fresh.log_evidence) < 1e-7
        for task, record in self.records.items():
            row = belief.features.rows[self.bandit.tasks.index(task)]
            columns = self.bandit.features.columns
            assert row[columns.index("x")] == record["x"]
            assert row[columns.index(f"c[{record['c']}]")] == 1.0


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
