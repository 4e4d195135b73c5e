"""MultiTaskBandit: names, ids, idempotence, amendments, growth, eligibility."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import metabandit as mb
from metabandit.features import Arrays, PerArm
from metabandit.models.linear_belief import LinearBelief

ARMS = ["short", "friendly", "urgent"]
LAZY = pl.LazyFrame({"task": ["u"], "age": [1.0], "reward": [1.0]})
KNOWN = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=1.0)


def bandit(**options: object) -> mb.MultiTaskBandit:
    settings = {"metadata": ["age"], "model": KNOWN, "seed": 7} | options
    return mb.MultiTaskBandit(ARMS, **settings)  # type: ignore[arg-type]


def same_belief(one: mb.MultiTaskBandit, other: mb.MultiTaskBandit, tolerance: float = 1e-9) -> None:
    assert one.belief.n_observations == other.belief.n_observations
    if hasattr(one.belief, "mode"):  # moments come from draws there; the mode is a function of the data
        np.testing.assert_allclose(one.belief.mode, other.belief.mode, atol=1e-6)
        return
    np.testing.assert_allclose(one.belief.coef.mean, other.belief.coef.mean, atol=tolerance)
    np.testing.assert_allclose(one.belief.coef.cov, other.belief.coef.cov, atol=tolerance)
    for i in range(one.belief.n_tasks):
        np.testing.assert_allclose(
            one.belief.posterior(i).mean, other.belief.posterior(i).mean, atol=tolerance
        )


def test_the_example_of_the_public_surface() -> None:
    b = mb.MultiTaskBandit(arms=ARMS, metadata="age + C(country)", model=mb.LinearMixedModel(), seed=7)
    d = b.decide("user-42", {"age": 31, "country": "NO"})
    assert d.task == "user-42"
    assert d.arm in ARMS
    assert 0.0 < d.probability < 1.0
    b.learn(d, 1.3)
    assert b.belief.n_observations == 1


def test_same_seed_same_decisions_and_another_seed_others() -> None:
    def arms(seed: int) -> list[str]:
        b = bandit(seed=seed)
        return [b.decide(f"t{j}").arm for j in range(40)]

    assert arms(1) == arms(1)
    assert arms(1) != arms(2)


def test_deciding_alone_and_in_a_batch_is_the_same_to_the_last_bit() -> None:
    one, many = bandit(), bandit()
    metadata = [{"age": float(j)} for j in range(20)]
    names = [f"t{j}" for j in range(20)]
    for b in (one, many):
        for name, record in zip(names, metadata, strict=True):
            b.add_task(name, record)
        b.learn_many({"task": names, "arm": ARMS * 6 + ARMS[:2], "reward": np.linspace(-1, 1, 20)})
    alone = [one.decide(name) for name in names]
    assert list(many.decide_many(names)) == alone


def test_a_reward_counts_once_however_often_it_comes() -> None:
    one, often = bandit(), bandit()
    d, e = one.decide("a"), often.decide("a")
    one.learn(d, 2.0)
    for reward in (e, e.id, int(e.id)):
        often.learn(reward, 2.0)
    often.learn_many([e.id, e.id], [2.0, 2.0])
    same_belief(one, often, 0.0)


def test_a_conflicting_reward_is_an_error_and_changes_nothing() -> None:
    b = bandit()
    d = b.decide("a")
    b.learn(d, 2.0)
    before = b.belief.coef.mean.copy()
    with pytest.raises(mb.ConflictingReward, match=r"reward: got 3\.0; accepted: 2\.0"):
        b.learn(d, 3.0)
    with pytest.raises(mb.ConflictingReward):
        b.learn_many({"decision": [d.id, b.decide("b").id], "reward": [3.0, 1.0]})
    with pytest.raises(mb.ConflictingReward):
        b.learn_many({"decision": [1, 1], "reward": [3.0, 1.0]})
    assert (b.belief.coef.mean == before).all()
    assert b.belief.n_observations == 1


@pytest.mark.parametrize("task_cov", [0.5, np.array([[1.0, 0.3, 0], [0.3, 1.0, 0], [0, 0, 0.5]])])
def test_an_amended_reward_is_as_if_it_had_been_right_at_once(task_cov: object) -> None:
    model = mb.LinearMixedModel(coef_cov=1.0, task_cov=task_cov, noise_var=1.0)
    wrong, right = bandit(model=model), bandit(model=model)
    made = [[b.decide("a", {"age": 1.0}), b.decide("b", {"age": 2.0}), b.decide("a")] for b in (wrong, right)]
    wrong.learn_many(made[0], [9.0, 1.0, -9.0])
    wrong.learn(made[0][0], 2.0, amend=True)
    wrong.learn_many([made[0][2].id], [0.5], amend=True)
    right.learn_many(made[1], [2.0, 1.0, 0.5])
    same_belief(wrong, right)


def test_a_forgotten_reward_can_be_learned_again() -> None:
    b, never = bandit(), bandit()
    d, e = b.decide("a"), b.decide("b")
    never.decide("a"), never.decide("b")
    b.learn(d, 5.0)
    b.learn(e, 1.0)
    b.forget(d)
    b.forget(d)
    never.learn(1, 1.0)
    same_belief(b, never)
    b.learn(d, 4.0)
    never.learn(0, 4.0)
    same_belief(b, never)


def test_late_out_of_order_and_batched_rewards_give_the_same_belief() -> None:
    rewards = np.random.default_rng(0).standard_normal(30)
    in_order, shuffled, batched = bandit(), bandit(), bandit()
    for b in (in_order, shuffled, batched):
        made = b.decide_many([f"t{j % 7}" for j in range(30)])
        assert len(made) == 30
    for j in range(30):
        in_order.learn(j, rewards[j])
    for j in np.random.default_rng(1).permutation(30):
        shuffled.learn(int(j), rewards[j])
    batched.learn_many(pd.DataFrame({"decision": range(30), "reward": rewards}))
    same_belief(in_order, shuffled)
    same_belief(in_order, batched)


def test_an_id_of_ones_own_gives_the_same_decision_again() -> None:
    b = bandit()
    first = b.decide("a", {"age": 3.0}, id="request-1")
    b.learn("request-1", 1.0)
    assert b.decide("a", id="request-1") == first
    with pytest.raises(mb.InvalidInput, match="belongs to a decision for task 'a'"):
        b.decide("b", id="request-1")
    with pytest.raises(mb.InvalidInput, match="belongs to a decision for task 'a'"):
        b.decide_many(["new", "b"], ids=["request-2", "request-1"])
    with pytest.raises(mb.InvalidInput, match="2 ids, 1 of them different"):
        b.decide_many(["new", "new"], ids=["request-2", "request-2"])
    assert b.tasks == ["a"]


def test_a_repeat_is_checked_and_learns_nothing() -> None:
    b = mb.MultiTaskBandit(ARMS, metadata={"age": "number", "country": "category"}, model=KNOWN, seed=7)
    first = b.decide("a", {"age": 3.0, "country": "NO"}, eligible=["urgent", "short"], id="r")
    b.add_task("a", {"age": 5.0, "country": "NO"})
    before = (repr(b), b.belief.version, b.features.spec())
    other = ({"urgent", "short"} - {first.arm}).pop()
    for refused, words in (
        ({"eligible": ["nothing"]}, "arm: got 'nothing'"),
        ({"eligible": ["friendly", other]}, f"eligible: got <arms without '{first.arm}'>"),
        ({"metadata": {"age": "old"}}, "got 'old'"),
        ({"metadata": {"agee": 1.0}}, "'agee'"),
    ):
        with pytest.raises(mb.InvalidInput, match=words):
            b.decide("a", id="r", **refused)  # type: ignore[arg-type]
        many = {name: [value] for name, value in refused.items()}
        with pytest.raises(mb.InvalidInput, match=words):
            b.decide_many(["a"], ids=["r"], **many)  # type: ignore[arg-type]
    for metadata in (None, {"age": 3.0, "country": "NO"}, {"age": 9.0, "country": "SE"}):
        assert b.decide("a", metadata, eligible=[first.arm], id="r") == first
        assert list(b.decide_many(["a"], [metadata], ids=["r"])) == [first]
    assert (repr(b), b.belief.version, b.features.spec()) == before


def test_a_repeat_after_its_arm_was_retired_gives_the_decision_that_was_made() -> None:
    b = bandit(policy=mb.Floored(mb.Thompson(), 0.1, 0.6))
    first = b.decide("a", {"age": 3.0}, eligible=["short", "urgent"], id="r")
    b.retire_arm(first.arm)
    assert b.decide("a", {"age": 3.0}, eligible=["short", "urgent"], id="r") == first
    assert b.decide_many(["a"], eligible=[["short", "urgent"]], ids=["r"])[0] == first


def test_a_batch_with_ids_used_before_gives_those_decisions_and_makes_the_new_ones() -> None:
    b, calm = bandit(), bandit()
    frame = pd.DataFrame({"task": ["u", "v", "w"], "age": [1.0, 2.0, 3.0], "id": ["1", "2", "3"]})
    first = [list(one.decide_many(frame[:2])) for one in (b, calm)]
    for one in (b, calm):
        one.learn("1", 2.0)
    again = list(b.decide_many(frame[::-1]))
    assert again[1:] == first[0][::-1]
    assert again[0] == calm.decide("w", {"age": 3.0}, id="3")
    assert again[0].version > again[1].version
    assert list(b.decide_many(frame[::-1])) == again
    assert b.decide("v", id="2") == again[1]
    assert (b.tasks, len(b.decide_many([]))) == (["u", "v", "w"], 0)
    half = b.decide_many(["u", "x"], eligible=[[again[2].arm], ["urgent"]], ids=["1", "4"])
    assert list(half) == [again[2], b.decide("x", id="4")]


def test_a_decision_depends_on_its_id_not_on_what_was_decided_before() -> None:
    b, c = bandit(), bandit()
    for _ in range(5):
        c.decide("t")
    one, other = b.decide("t", id="x"), c.decide("t", id="x")
    assert (one.arm, one.probability) == (other.arm, other.probability)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_in_and_columns_out(frame: type) -> None:
    b = mb.MultiTaskBandit(ARMS, metadata={"age": "number", "country": "category"}, model=KNOWN, seed=3)
    data = {"task": ["u", "v", "w"], "age": [20.0, 30.0, None], "country": ["NO", None, "SE"]}
    made = b.decide_many(frame(data))
    assert made.task == ["u", "v", "w"]
    b.learn_many(frame({"decision": list(made.id), "reward": [1.0, 2.0, 3.0]}))
    out = frame(made.columns())
    assert len(out) == 3
    other = mb.MultiTaskBandit(ARMS, metadata={"age": "number", "country": "category"}, model=KNOWN, seed=3)
    for task, age, country in zip(*data.values(), strict=True):
        other.add_task(task, {"age": age, "country": country})
    other.learn_many({"task": made.task, "arm": made.arm, "reward": [1.0, 2.0, 3.0]})
    same_belief(b, other)
    assert b.belief.features.rows[0].tolist() == other.belief.features.rows[0].tolist()


def test_a_dict_of_columns_is_decided_for_as_a_frame_is() -> None:
    data = {"task": ["u", "v"], "age": [20.0, None], "id": ["one", "two"]}
    of_columns, of_frame = bandit(), bandit()
    assert list(of_columns.decide_many(data)) == list(of_frame.decide_many(pd.DataFrame(data)))
    same_belief(of_columns, of_frame, 0.0)
    assert of_columns.decide_many({"task": np.array([1, 2])}).task == [1, 2]


def test_a_row_of_a_data_frame_is_a_record() -> None:
    b = mb.MultiTaskBandit(ARMS, metadata={"age": "number", "country": "category"}, model=KNOWN, seed=3)
    frame = pd.DataFrame({"age": [20, 31], "country": ["NO", "SE"]})
    b.decide("u", frame.iloc[1])
    version = b.belief.version
    b.decide("u", {"age": 31, "country": "SE"})
    assert b.belief.version == version  # the same metadata
    b.decide_many(["v"], [frame.iloc[0]])
    assert b.belief.features.rows[:2].tolist() == [[1.0, 31.0, 1.0, 0.0], [1.0, 20.0, 0.0, 1.0]]


def test_a_decision_and_an_id_that_are_not_the_same_are_refused() -> None:
    b = bandit()
    made = b.decide_many(["u", "v"])
    with pytest.raises(mb.InvalidInput, match="'decision' and 'id' that contradict"):
        b.learn_many({"decision": [0, 1], "id": [1, 0], "reward": [1.0, 2.0]})
    b.learn_many({"decision": made, "id": [0, 1], "reward": [1.0, 2.0]})
    assert b.belief.n_observations == 2


def test_no_metadata_is_the_average_task_and_missing_is_no_error() -> None:
    b = bandit()
    b.add_task("a", {"age": 10.0})
    b.add_task("b", {"age": 30.0})
    b.add_task("c")
    b.add_task("d", {"age": None})
    assert b.belief.features.rows[2].tolist() == [1.0, 20.0] == b.belief.features.rows[3].tolist()


@pytest.mark.parametrize(
    "model",
    [
        KNOWN,
        mb.LinearMixedModel(0.0, 1.0, np.array([[1.0, 0.3, 0], [0.3, 1.0, 0], [0, 0, 0.5]]), 1.0),
        mb.LinearMixedModel(learning="full"),
        mb.GaussianProcessModel(mb.SquaredExponential(1.0), 0.5, 1.0),
        mb.BetaLogisticModel(0.0, 1.0, 0.1),
        mb.GammaLogModel(0.0, 1.0, 0.1),
    ],
    ids=["diagonal", "full", "particles", "process", "beta", "gamma"],
)
def test_new_metadata_replaces_the_old_as_if_it_had_always_been_so(model: object) -> None:
    changed, right = bandit(model=model), bandit(model=model)
    changed.add_task("a", {"age": 1.0})
    right.add_task("a", {"age": 5.0})
    for b in (changed, right):
        b.learn_many({"task": ["a", "a"], "arm": ["short", "urgent"], "reward": [1.0, 0.0]})
    version = changed.belief.version
    changed.decide("a", {"age": 1.0})
    assert changed.belief.version == version  # the same metadata: nothing to do
    changed.decide("a", {"age": 5.0})
    same_belief(changed, right)


def test_a_new_category_becomes_a_new_column_and_changes_nobodys_posterior() -> None:
    b = mb.MultiTaskBandit(ARMS, metadata={"country": "category"}, model=KNOWN, seed=3)
    b.learn_many(
        {"task": ["u", "v"], "arm": ["short", "short"], "reward": [1.0, 2.0], "country": ["NO", "SE"]}
    )
    before = b.belief.posterior(0)
    b.decide("w", {"country": "DK"})
    assert "country[DK]" in b.features.columns
    np.testing.assert_allclose(b.belief.posterior(0).mean, before.mean, atol=1e-12)
    np.testing.assert_allclose(b.belief.posterior(0).cov, before.cov, atol=1e-12)
    assert len(b.belief.coef.mean) == 3 * len(b.features.columns)


@pytest.mark.parametrize("metadata", [["age"], None])
def test_arms_come_and_go(metadata: object) -> None:
    b = bandit(metadata=metadata)
    b.learn_many({"task": ["u", "v"], "arm": ["short", "urgent"], "reward": [1.0, 2.0]})
    before = b.belief.posterior(0)
    b.add_arm("new")
    np.testing.assert_allclose(b.belief.posterior(0).mean[:3], before.mean, atol=1e-12)
    b.retire_arm("short")
    arms = {b.decide("u").arm for _ in range(200)}
    assert arms == {"friendly", "urgent", "new"}
    b.restore_arm("short")
    assert "short" in {b.decide("u").arm for _ in range(200)}
    with pytest.raises(mb.InvalidInput, match="a name not in use"):
        b.add_arm("new")


def test_an_arm_added_to_features_given_per_arm_has_its_own_intercept() -> None:
    b = mb.MultiTaskBandit(ARMS, metadata=PerArm(["z"]), model=KNOWN, seed=3)
    b.add_task("u", {"short": [1.0], "friendly": [2.0], "urgent": [3.0]})
    b.add_arm("new")
    row = b.belief.features.phi(0)[3]
    names = b.features.columns
    assert row[names.index("new")] == 1.0 if "new" in names else row[-1] == 1.0
    b.learn_many({"task": ["u"] * 50, "arm": ["new"] * 50, "reward": [9.0] * 50})
    assert b.belief.posterior(0).mean[3] > 7.0


def test_late_rewards_of_a_retired_arm_still_count() -> None:
    b = bandit()
    d = b.decide("u", eligible=["short"])
    b.retire_arm("short")
    b.learn(d, 3.0)
    assert b.belief.n_observations == 1


def test_eligibility() -> None:
    b = bandit()
    assert {b.decide("u", eligible=["short", "urgent"]).arm for _ in range(100)} == {"short", "urgent"}
    assert b.decide("u", eligible=["short"]).probability == pytest.approx(1.0)
    made = b.decide_many(["u", "v"], eligible=[["short"], None])
    assert made.arm[0] == "short"
    masked = b.decide_many(["u", "v"], eligible=np.array([[True, False, False], [False, False, True]]))
    assert masked.arm == ["short", "urgent"]
    with pytest.raises(mb.InvalidInput, match="eligible"):
        b.decide("u", eligible=[])
    with pytest.raises(mb.UnknownName, match="arm: got 'nothing'"):
        b.decide("u", eligible=["nothing"])


def test_data_that_were_not_decided_here() -> None:
    b, c = bandit(), bandit()
    b.learn_many({"task": ["u", "u"], "arm": ["short", "urgent"], "reward": [1.0, 2.0], "age": [5.0, 5.0]})
    c.add_task("u", {"age": 5.0})
    c.belief.observe([0, 0], [0, 2], [1.0, 2.0])
    same_belief(b, c, 0.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda b: mb.MultiTaskBandit([]), "arms"),
        (lambda b: mb.MultiTaskBandit("abc"), "arms: got 'abc'; accepted: a list"),
        (lambda b: mb.MultiTaskBandit(["a", "a"]), "arms: got 'a'; accepted: different"),
        (lambda b: mb.MultiTaskBandit(["a"], seed=-1), "seed: got -1"),
        (lambda b: mb.MultiTaskBandit(["a"], refresh="daily"), "refresh: got 'daily'"),
        (lambda b: mb.MultiTaskBandit(["a"], refresh=("every", 0)), "amount"),
        (lambda b: mb.MultiTaskBandit(["a"], policy="best"), "policy"),
        (lambda b: mb.MultiTaskBandit(["a"], model="linear"), "model"),
        (lambda b: b.decide(3.5), "task: got 3.5"),
        (lambda b: b.decide(True), "task: got True"),
        (lambda b: b.decide("u", {"age": "old"}), "age"),
        (lambda b: b.decide("u", {"age": float("inf")}), "age"),
        (lambda b: b.decide("u", id=""), "id"),
        (lambda b: b.decide(""), "task: got ''; accepted: a text that is not blank"),
        (lambda b: b.decide_many(["u", " "]), "task: got ' '"),
        (lambda b: b.add_arm(" "), "arms: got ' '"),
        (lambda b: mb.MultiTaskBandit(["a", ""]), "arms: got ''"),
        (lambda b: mb.MultiTaskBandit(["a"], metadata=""), "formula: got ''"),
        (lambda b: mb.MultiTaskBandit(["a"], metadata=" "), "formula: got ' '"),
        (lambda b: b.save(""), "path: got ''; accepted: the name of a file"),
        (lambda b: b.to_arviz(draws=10, seed=-1), "seed: got -1"),
        (lambda b: b.learn(99, 1.0), "decision: got 99"),
        (lambda b: b.learn("x", 1.0), "decision: got 'x'"),
        (lambda b: b.learn(None, 1.0), "decision: got None"),
        (lambda b: b.learn(0, float("nan")), "reward: got nan"),
        (lambda b: b.learn(0, "good"), "reward: got 'good'"),
        (lambda b: b.learn(0, 1.0, exposure=2.0), "exposure"),
        (lambda b: b.learn_many({"decision": [0, 7], "reward": [1.0, 2.0]}), "decision: got 7"),
        (lambda b: b.learn_many({"decision": [0], "reward": [1.0, 2.0]}), "reward: got <2 rewards>"),
        (lambda b: b.learn_many({"reward": [1.0]}), "rewards"),
        (
            lambda b: b.learn_many({"task": ["u"], "arm": ["short"], "reward": [np.nan]}),
            "reward: got <nan in row 0>",
        ),
        (lambda b: b.learn_many(5), "rewards"),
        (lambda b: b.decide_many(["u", 2.5]), "task: got 2.5"),
        (lambda b: b.decide_many(["u"], eligible=[["short"], None]), "eligible"),
        (
            lambda b: b.decide_many(["u", "v"], eligible=["short", "urgent"]),
            "eligible: got ['short', 'urgent']; accepted: a list of arms for each task, such as [['short', 'fri",
        ),
        (
            lambda b: b.decide_many(["u"], eligible=np.ones((1, 2), bool)),
            "eligible: got <bool array of shape (1, 2)>; accepted: a list of arms for each task, such as",
        ),
        (
            lambda b: b.decide_many(["u"], eligible=np.ones((1, 3))),
            "eligible: got <float64 array of shape (1, 3)>",
        ),
        (
            lambda b: b.decide_many(["u"], eligible=np.zeros((1, 3), bool)),
            "eligible: got <a row without an arm>",
        ),
        (
            lambda b: b.decide("u", eligible=np.ones(3, bool)),
            "eligible: got array([ True,  True,  True]); acc",
        ),
        (lambda b: b.decide_many(["u", "v"], ids=["x", " "]), "ids: got ' '"),
        (lambda b: b.decide_many(pd.DataFrame({"age": [1.0]})), 'accepted: a column named "task"'),
        (lambda b: b.decide_many(["u", "v"], [{"age": 1.0}]), "metadata"),
        (lambda b: b.decide_many(b.decide_many([])), "tasks: got Decisions"),
        (lambda b: b.decide_many(LAZY), "tasks: got <a lazy data frame>; accepted: one whose data are there"),
        (lambda b: b.decide_many(["u"], LAZY), "metadata: got <a lazy data frame>"),
        (lambda b: b.decide_many({"age": [1.0]}), 'a column named "task"'),
        (
            lambda b: b.decide_many({"task": ["u", "v"], "age": [1.0]}),
            "tasks: got <a column 'age' of another",
        ),
        (lambda b: b.decide_many({"task": "u"}), "tasks: got <a column 'task' that is 'u'>"),
        (lambda b: b.decide_many({"task": ["u"]}, [{"age": 1.0}]), "metadata: got <list>; accepted: None"),
        (lambda b: b.decide_many(["u"], {"age": [1.0]}), "metadata: got {'age': [1.0]}"),
        (lambda b: b.decide_many(["u"], 5), "metadata: got 5"),
        (lambda b: b.decide("u", pd.DataFrame({"age": [1.0]})), "metadata: got"),
        (
            lambda b: b.decide("u", pd.Series({"agee": 1.0})),
            "metadata: got <a record with the keys ['agee']>",
        ),
        (
            lambda b: b.learn_many(b.decide_many([])),
            "rewards: got <Decisions>; accepted: a data frame or a dict",
        ),
        (lambda b: b.learn_many(LAZY), "rewards: got <a lazy data frame>"),
        (lambda b: b.learn_many([0], pd.DataFrame({"r": [1.0]})), "reward: got <a DataFrame that is no list"),
        (lambda b: b.learn_many([0], [[1.0], [1.0, 2.0]]), "reward: got <a list that is no list of numbers>"),
        (
            lambda b: b.learn_many(pd.DataFrame({"decision": [0]}), [1.0]),
            "rewards: got <a DataFrame and reward=>",
        ),
        (lambda b: b.learn_many({"decision": [0]}, [1.0]), "rewards: got <a dict and reward=>"),
        (
            lambda b: b.learn_many([0, 0], ["1", "2.5"]),
            "reward: got <'1' in row 0>; accepted: finite numbers, not",
        ),
        (lambda b: b.learn_many([0, 0], np.array(["1", "2.5"])), "reward: got <np.str_('1') in row 0>"),
        (lambda b: b.learn_many([0, 0], [1.0, b"1"]), "reward: got <b'1' in row 1>"),
        (lambda b: b.learn_many([0, 0], [1.0, 10**400]), "reward: got <a number too large in row 1>"),
        (lambda b: b.learn_many([0, 0], [1.0, None]), "reward: got <None in row 1>"),
        (lambda b: b.learn_many([0, 0], [1.0, pd.NA]), "reward: got <<NA> in row 1>"),
        (lambda b: b.learn_many([0, 0], pd.array([1, None], "Int64")), "in row 1>; accepted: finite numbers"),
        (
            lambda b: b.learn_many({"decision": [0], "reward": [1.0], "exposure": ["2"]}),
            "exposure: got <'2' in",
        ),
        (lambda b: b.learn(0, b"1"), "reward: got b'1'; accepted: a number, not a text"),
        (
            lambda b: b.learn_many({"decision": [0], "id": ["x"], "reward": [1.0]}),
            "decision: got 'x'",
        ),
        (lambda b: b.retire_arm("none"), "arm: got 'none'"),
        (lambda b: b.explain("stranger"), "task: got 'stranger'"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(call: object, words: str) -> None:
    b = bandit()
    b.decide("known", {"age": 4.0})
    before = (repr(b), b.belief.version, b.tasks, b.features.spec())
    with pytest.raises(mb.MetabanditError) as caught:
        call(b)  # type: ignore[operator]
    assert words in str(caught.value)
    assert (repr(b), b.belief.version, b.tasks, b.features.spec()) == before


def test_the_last_active_arm_cannot_be_retired() -> None:
    b = mb.MultiTaskBandit(["a", "b"], seed=1)
    b.retire_arm("a")
    with pytest.raises(mb.InvalidInput, match="last active"):
        b.retire_arm("b")


@pytest.mark.parametrize(
    "refresh", ["task", "round", ("every", 5), ("information", 0.5), mb.Refresh("every", 5, per_task=True)]
)
def test_draws_in_force_change_when_the_rule_says(refresh: object) -> None:
    b = bandit(metadata=Arrays(2), refresh=refresh)
    rng = np.random.default_rng(0)
    for j in range(60):
        d = b.decide(f"t{j % 3}", rng.standard_normal(2) if j < 3 else None)
        b.learn(d, float(rng.standard_normal()))
    made = sum(b._draws.made.values())
    rule = mb.Refresh.of(refresh)
    if rule.rule == "task":
        assert made == 3
    elif rule.rule == "round":
        assert made == 20
    elif rule.rule == "every":
        assert made == (30 if rule.per_task else 12)  # a task comes every 3 rewards
    else:
        assert 3 <= made <= b.belief.information / 0.5 + 1


def test_binary_rewards_need_a_binary_model() -> None:
    b = mb.MultiTaskBandit(["a", "b"], model=mb.BetaLogisticModel(0.0, 1.0, 0.1), seed=1)
    d = b.decide("u")
    with pytest.raises(mb.InvalidInput, match="reward"):
        b.learn(d, 0.5)
    b.learn(d, 1.0)
    assert b.belief.n_observations == 1


def test_counts_have_an_exposure() -> None:
    b = mb.MultiTaskBandit(["a", "b"], model=mb.GammaLogModel(0.0, 1.0, 0.5), seed=1)
    d, e = b.decide("u"), b.decide("v")
    b.learn(d, 3, exposure=2.0)
    b.learn(d, 3, exposure=2.0)
    with pytest.raises(mb.ConflictingReward):
        b.learn(d, 3, exposure=1.0)
    b.learn_many({"decision": [e.id], "reward": [1], "exposure": [0.5]})
    assert b.belief.n_observations == 2


def test_greedy_policies_do_not_need_a_draw() -> None:
    b = bandit(policy=mb.Greedy())
    b.learn_many({"task": ["u"] * 20, "arm": ["urgent"] * 20, "reward": [3.0] * 20})
    d = b.decide("u")
    assert (d.arm, d.probability) == ("urgent", 1.0)


def test_floors_hold() -> None:
    b = bandit(policy=mb.Floored(mb.Thompson(), 0.1))
    b.learn_many({"task": ["u"] * 90, "arm": ["urgent"] * 90, "reward": [9.0] * 90})
    made = [b.decide("u") for _ in range(300)]
    assert min(d.probability for d in made) >= 0.1 - 1e-12
    assert len({d.arm for d in made}) == 3


def full_state(b: mb.MultiTaskBandit, folder: object) -> bytes:
    b.save(folder / "state.mb")  # type: ignore[operator]
    return (folder / "state.mb").read_bytes()  # type: ignore[operator]


def test_an_amendment_does_not_trigger_learning_on_the_reward_it_takes_back() -> None:
    b, clean = mb.MultiTaskBandit(["a", "b"], seed=1), mb.MultiTaskBandit(["a", "b"], seed=1)
    for one in (b, clean):
        one.decide_many([f"t{i}" for i in range(8)])
        one.learn_many(list(range(7)), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    b.learn(6, 1000.0, amend=True)
    b.learn(6, 0.0, amend=True)
    for one in (b, clean):
        one.learn(7, 1.0)
    np.testing.assert_allclose(b.belief.variances.noise, clean.belief.variances.noise, rtol=1e-6)


TYPED = {
    "known": mb.LinearMixedModel(0.0, 1.0, 0.5, 1.0),
    "learned": mb.LinearMixedModel(),
    "between arms": mb.LinearMixedModel(0.0, 1.0, mb.CompoundSymmetric(1.0, 0.5), [0.5, 1.0, 2.0]),
    "learned between arms": mb.LinearMixedModel(task_cov="full"),
    "particles": mb.LinearMixedModel(learning="full"),
    "process": mb.GaussianProcessModel(mb.SquaredExponential(1.0), task_cov=0.5, noise_var=1.0),
}


@pytest.mark.parametrize("typo", [1e8, 1e12, 1e50])
@pytest.mark.parametrize("model", TYPED.values(), ids=TYPED)
def test_no_rounding_of_a_typo_stays_behind(model: object, typo: float) -> None:
    b, clean = (mb.MultiTaskBandit(["a", "b", "c"], model=model, seed=3) for _ in range(2))
    rewards = np.random.default_rng(0).standard_normal(60)
    for one in (b, clean):
        one.decide_many([f"t{i % 5}" for i in range(60)])
        one.learn_many(list(range(60)), rewards)
    b.learn(30, typo, amend=True)
    b.learn(30, float(rewards[30]), amend=True)
    same_belief(b, clean)
    assert b.belief.log_evidence == pytest.approx(clean.belief.log_evidence, abs=1e-8)
    if isinstance(b.belief, LinearBelief):
        assert b.belief.scale.variance() == pytest.approx(clean.belief.scale.variance(), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "call"),
    [
        (
            {"model": mb.LinearMixedModel(0.0, 1.0, 0.5, 1.0, drift=0.9)},
            lambda b: b.learn(0, 2.0, amend=True),
        ),
        ({"model": mb.LinearMixedModel(0.0, 1.0, 0.5, 1.0, drift=0.9)}, lambda b: b.forget(0)),
        (
            {"model": mb.LinearMixedModel(0.0, 1.0, 0.5, 1.0, drift=0.9)},
            lambda b: b.decide_many(["new", "t"], [{"age": 1.0}, {"age": 9.0}]),
        ),
        (
            {"model": mb.BetaLogisticModel(0.0, 1.0, 0.1)},
            lambda b: b.learn_many({"decision": [0, 1], "reward": [0.0, 7.0]}, amend=True),
        ),
        (
            {},
            lambda b: b.learn_many(
                {"decision": [1, 0], "reward": [1.0, 2.0], "exposure": [1.0, 2.0]}, amend=True
            ),
        ),
        ({}, lambda b: b.learn_many({"task": ["z"], "arm": ["short"], "reward": [1.0], "exposure": [2.0]})),
        ({}, lambda b: b.learn(1, 1e101)),
        ({}, lambda b: b.learn(1, 10**400)),
        ({}, lambda b: b.learn(1, "1.5")),
        ({}, lambda b: b.decide("\ud800")),
        ({}, lambda b: b.decide("z", id="\ud800")),
        ({}, lambda b: b.decide_many(["z"], ids=["\ud800"])),
        ({}, lambda b: b.decide_many(["z"], ids=5)),
        ({}, lambda b: b.add_arm("\ud800")),
        ({}, lambda b: b.decide("z", eligible=5)),
        ({}, lambda b: b.decide_many(["z"], eligible=5)),
        ({}, lambda b: b.decide_many(5)),
        ({}, lambda b: b.decide_many([["u"]])),
        ({}, lambda b: b.learn_many(3.5, 1.0)),
        ({}, lambda b: b.learn_many({"decision": [1], "reward": [1.0], "exposure": [1.0, 1.0]})),
        ({}, lambda b: b.learn_many({"decision": [1], "reward": [1.0], "arm": ["nothing"]})),
        ({}, lambda b: b.learn_many({"decision": [1], "reword": [1.0]})),
        ({}, lambda b: b.learn_many({"task": 5, "arm": 3, "reward": [1.0]})),
        ({"policy": mb.Floored(mb.Thompson(), 0.3)}, lambda b: b.add_arm("one too many")),
        ({"policy": mb.Floored(mb.Thompson(), 0.1, 0.6)}, lambda b: b.decide("z", eligible=["short"])),
    ],
)
def test_a_refused_call_leaves_the_same_bytes(
    options: dict[str, object], call: object, tmp_path: object
) -> None:
    b = bandit(**options)
    b.decide("t", {"age": 4.0})
    b.learn(0, 1.0)
    b.decide("t")
    before = full_state(b, tmp_path)
    with pytest.raises(mb.MetabanditError):
        call(b)  # type: ignore[operator]
    assert full_state(b, tmp_path) == before


@pytest.mark.parametrize(
    "options", [{"policy": mb.Thompson}, {"model": mb.LinearMixedModel}, {"model": mb.PriorAlignment}]
)
def test_a_class_is_no_policy_and_no_model(options: dict[str, object]) -> None:
    with pytest.raises(mb.InvalidInput):
        bandit(**options)


def test_a_decision_of_another_bandit_is_refused() -> None:
    one, other = mb.MultiTaskBandit(["a", "b"], seed=1), mb.MultiTaskBandit(["p", "q"], seed=1)
    d = one.decide("t")
    other.decide("t")
    with pytest.raises(mb.InvalidInput, match="a decision made here"):
        other.learn(d, 1.0)


def test_numpy_task_ids_are_the_same_tasks() -> None:
    b = bandit()
    b.decide(1)
    b.decide(np.int64(1))
    b.decide_many(np.array([1, 2]))
    b.decide_many([np.int64(1), np.str_("x")])
    assert b.tasks == [1, 2, "x"]
    with pytest.raises(mb.InvalidInput):
        b.decide(True)


def test_a_tasks_own_draw_does_not_depend_on_who_asked_before() -> None:
    made = []
    for first in (["u"], []):
        b = bandit(refresh="task", metadata=None)
        b.learn_many({"task": ["u", "v"], "arm": ["short", "urgent"], "reward": [1.0, 1.0]})
        for task in first:
            b.decide(task, id=f"first-{task}")
        made.append(b.decide("v", id="2"))
    assert made[0] == made[1]


def test_ctrl_c_while_variances_are_learned_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from metabandit.models import linear_belief

    b, calm = mb.MultiTaskBandit(["a", "b"], seed=1), mb.MultiTaskBandit(["a", "b"], seed=1)
    rewards = np.random.default_rng(0).standard_normal(30)
    for one in (b, calm):
        one.decide_many([f"t{i % 6}" for i in range(30)])
    learn, calls = linear_belief.maximise, []

    def interrupted(belief: object, *rest: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            belief.set_variances(belief.variances)  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        return learn(belief, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(linear_belief, "maximise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        b.learn_many(list(range(30)), rewards)
    b.learn_many(list(range(30)), rewards)  # they are all there: no effect
    calm.learn_many(list(range(30)), rewards)
    assert b.belief.n_observations == 30
    b.belief.set_variances(calm.belief.variances)
    same_belief(b, calm)
