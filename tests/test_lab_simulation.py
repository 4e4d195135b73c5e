"""The laboratory's core: compiled loops, common random numbers, policies of one's own, regret, orders, refusals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import metabandit as mb
from metabandit import lab
from metabandit.errors import InvalidInput
from metabandit.lab import agents, compiled, orders, players
from metabandit.lab.agents import AGENTS, Agent
from metabandit.lab.environment import POISSON, Environment, Problem, Rewards, World
from metabandit.lab.environments import paper
from metabandit.lab.players import ModelPlayer
from metabandit.laws import Normal
from tests.statistics import FAR, P_LEAST, frequencies

Array = np.ndarray[Any, Any]

GAUSSIAN = lab.GaussianTasks(n_tasks=21, n_arms=3, n_features=5)
BERNOULLI = lab.BernoulliTasks(n_tasks=21, n_arms=3, n_features=5)
RULES: dict[str, Any] = {
    "default": None, "always": "always", "task": "task", "round": "round", "every 7": ("every", 7),
    "every 2.5": ("every", 2.5), "information": ("information", 1.0),
}  # fmt: skip
COMPILED_SHAPES = (
    "default",
    "task",
    "round",
    "every 7",
    "every 2.5",
)  # the others draw at every decision anyway


@dataclass(frozen=True)
class Counts(Environment):
    """r_ia ~ Gamma(1 / psi, mean exp(phi' theta)), rewards Poisson: with the test of GammaLogModel in mind."""

    dispersion: float = 0.3
    reward: ClassVar[str] = "count"

    @property
    def model(self) -> mb.GammaLogModel:
        return mb.GammaLogModel(0.0, 0.2, self.dispersion, refit=0.5)

    def world(self, seed: int) -> World:
        phi = paper.world_features(seed, 21, 3, 5)
        mean = np.exp(phi @ paper.coefficients(seed, 5, 0.2))
        rng = np.random.default_rng([seed, 77])
        truth = mean * rng.gamma(1.0 / self.dispersion, self.dispersion, mean.shape)
        problem = Problem(phi, "count", self.model, phi, phi.reshape(21, -1)[:, :0])
        return World(problem, truth, mean, Rewards(POISSON, np.zeros(3)), seed)


def course(world: World, order: orders.Order, horizon: int) -> tuple[Array, Array]:
    """The tasks as they are met, and how often each was met before."""
    tasks = orders.made(order, world.problem.n_tasks, horizon, world.seed)
    visits, seen = np.empty_like(tasks), np.zeros(world.problem.n_tasks, np.int64)
    for j, i in enumerate(tasks):
        visits[j] = seen[i]
        seen[i] += 1
    return tasks, visits


# -- compiled and not ----------------------------------------------------------------------------------------


def check_the_same_arms(environment: Environment, agent: Agent, horizon: int, seed: int = 3) -> None:
    """In every order, as the compiled loop and one decision at a time."""
    world = environment.world(seed)
    for order in orders.NAMED:
        tasks, visits = course(world, order, horizon)
        fast, slow = (agent.player(world, order, seed) for _ in range(2))
        assert compiled.can_compile(fast, world)
        arms = compiled.play(fast, world, tasks, visits)
        assert arms.tolist() == players.play(slow, world, tasks, visits).tolist(), order
        assert len(set(arms.tolist())) > 1  # else nothing was tested


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", AGENTS)
def test_gaussian_agents(name: str, rule: str) -> None:
    agent = AGENTS[name] if rule == "default" else replace(AGENTS[name], refresh=RULES[rule])
    check_the_same_arms(GAUSSIAN, agent, horizon=8)


@pytest.mark.parametrize("rule", COMPILED_SHAPES)
@pytest.mark.parametrize("name", [name for name in AGENTS if name != "linear-ts"])
def test_bernoulli_agents(name: str, rule: str) -> None:
    if (name, rule) == ("osfa", "task"):
        return  # a draw for each of many tasks that are one: see NOT_COMPILED
    agent = AGENTS[name] if rule == "default" else replace(AGENTS[name], refresh=RULES[rule])
    check_the_same_arms(BERNOULLI, agent, horizon=8 if rule == "default" else 4)


@pytest.mark.parametrize("rule", COMPILED_SHAPES)
@pytest.mark.parametrize("name", ["mtts", "oracle-ts"])
def test_count_agents(name: str, rule: str) -> None:
    check_the_same_arms(Counts(), Agent(name, name, refresh=RULES[rule]), horizon=4)


LEARNED: dict[str, dict[str, Any]] = {
    "task": {"task_cov": None},
    "noise": {"noise_var": None},
    "coefficients": {"coef_cov": None},
    "all": {"task_cov": None, "noise_var": None, "coef_cov": None},
    "per arm": {"task_cov": "per_arm", "noise_var": "per_arm"},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("which", LEARNED)
def test_tempered_agents_that_learn_variances(which: str, rule: str) -> None:
    agent = Agent("x", changes=LEARNED[which], policy=mb.Thompson(0.6), refresh=RULES[rule])
    check_the_same_arms(GAUSSIAN, agent, horizon=10)


@pytest.mark.parametrize("dispersion", [None, "drawn", 0.0])
@pytest.mark.parametrize("rule", ["task", "round", "every 7"])
def test_tempered_agents_that_learn_the_dispersion(rule: str, dispersion: Any) -> None:
    agent = Agent("x", changes={"dispersion": dispersion}, policy=mb.Thompson(0.6), refresh=RULES[rule])
    check_the_same_arms(BERNOULLI, agent, horizon=5)


NOT_COMPILED = {
    "policy": (GAUSSIAN, {"policy": mb.Greedy()}),
    "floors": (GAUSSIAN, {"policy": mb.Floored(mb.Thompson(), 0.05)}),
    "covariance": (GAUSSIAN, {"changes": {"task_cov": "full"}}),
    "unknown noise": (GAUSSIAN, {"changes": {"noise_var": mb.InverseGamma(3.0, 2.0)}}),
    "all variances": (GAUSSIAN, {"changes": {"learning": "full", "noise_var": None, "task_cov": None}}),
    "own rounds": (GAUSSIAN, {"refresh": mb.Refresh("every", 3, per_task=True)}),
    "a draw a decision": (BERNOULLI, {"refresh": "always"}),
    "one task of many": (BERNOULLI, {"preset": "osfa", "refresh": "task"}),
    "filter": (BERNOULLI, {"changes": {"sampler": "filter"}}),
}


@pytest.mark.parametrize("case", NOT_COMPILED)
def test_what_has_no_compiled_loop_is_played_all_the_same(case: str) -> None:
    environment, fields = NOT_COMPILED[case]
    agent = Agent("x", **fields)
    world = environment.world(1)
    assert not compiled.can_compile(agent.player(world, "concurrent", 1), world)
    small = replace(environment, n_tasks=3)
    assert lab.simulate(small, [agent], horizon=2, seeds=1).rows()[0]["seeds"] == 1


# -- the lab calls exactly what everybody calls --------------------------------------------------------------


class Named:
    """A player that is a MultiTaskBandit, which numbers its decisions 0, 1, 2 ... from the same seed."""

    def __init__(self, agent: Agent, world: World, order: str) -> None:
        phi = world.problem.phi
        refresh = agent.player(world, order, world.seed).draws.refresh
        self.bandit = mb.MultiTaskBandit(
            arms=list("abc"), metadata=mb.features.PerArm(phi.shape[2] - 3), policy=agent.policy,
            model=replace(world.problem.model, **agent.changes), refresh=refresh, seed=world.seed,
        )  # fmt: skip
        for i, own in enumerate(phi[:, :, 3:]):
            self.bandit.add_task(i, own)
        assert np.array_equal([self.bandit.belief.features.phi(i) for i in range(len(phi))], phi)

    def decide(self, task: int) -> int:
        self.made = self.bandit.decide(task)
        return "abc".index(self.made.arm)

    def learn(self, task: int, arm: int, reward: float) -> None:
        self.bandit.learn(self.made, reward)


BANDITS = {
    "gaussian": (GAUSSIAN, AGENTS["mtts"]),
    "gaussian approx": (GAUSSIAN, AGENTS["mtts-approx"]),
    "gaussian learned": (GAUSSIAN, Agent("x", changes={"task_cov": None, "noise_var": None})),
    "gaussian information": (GAUSSIAN, Agent("x", refresh=("information", 1.0), policy=mb.Thompson(0.5))),
    "gaussian greedy": (GAUSSIAN, Agent("x", policy=mb.Greedy())),
    "bernoulli": (BERNOULLI, AGENTS["mtts"]),
    "bernoulli approx": (BERNOULLI, AGENTS["mtts-approx"]),
    "counts": (Counts(), Agent("mtts")),
}


@pytest.mark.parametrize("case", BANDITS)
def test_the_same_arms_as_a_named_bandit(case: str) -> None:
    environment, agent = BANDITS[case]
    world = environment.world(5)
    for order in ("concurrent", "random"):
        tasks, visits = course(world, order, 6)
        player = agent.player(world, order, 5)
        play = compiled.play if compiled.can_compile(player, world) else players.play
        arms = play(player, world, tasks, visits)
        assert arms.tolist() == players.play(Named(agent, world, order), world, tasks, visits).tolist()


# -- common random numbers -----------------------------------------------------------------------------------


class Diary:
    """A policy that plays arms at random and writes down what came of them; copies write in the same diary."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self.rewards: dict[tuple[int, int, int], float] = {}
        self.phi: Array = np.zeros(0)

    def __deepcopy__(self, memo: Any) -> Diary:
        return self

    def start(self, problem: Problem) -> None:
        self.rng, self.visits, self.phi = np.random.default_rng(self.seed), [0] * problem.n_tasks, problem.phi
        self.n_arms = problem.n_arms

    def decide(self, task: int) -> int:
        return int(self.rng.integers(self.n_arms))

    def learn(self, task: int, arm: int, reward: float) -> None:
        self.rewards[task, self.visits[task], arm] = reward
        self.visits[task] += 1


def shared(first: Diary, second: Diary) -> list[tuple[float, float]]:
    return [
        (first.rewards[place], second.rewards[place])
        for place in first.rewards.keys() & second.rewards.keys()
    ]


@pytest.mark.parametrize("environment", [GAUSSIAN, BERNOULLI, Counts()], ids=lambda e: type(e).__name__)
def test_all_policies_face_the_same_tasks_and_rewards(environment: Environment) -> None:
    first, second, later = Diary("first", 1), Diary("second", 2), Diary("later", 3)
    model = Agent("mtts", refresh=("every", 50))
    lab.simulate(environment, [first, model, second], horizon=12, seeds=[4])
    lab.simulate(environment, [later], horizon=6, order="random", seeds=[4])
    assert np.array_equal(first.phi, second.phi)
    for other, least in ((second, 60), (later, 20)):
        pairs = shared(first, other)
        assert len(pairs) > least
        assert all(a == b for a, b in pairs)
    assert len(set(first.rewards.values())) > 1
    before = dict(first.rewards)
    lab.simulate(environment, [first], horizon=12, seeds=[5])
    differ = [before[place] != reward for place, reward in first.rewards.items() if place in before]
    assert any(differ)  # other worlds have other rewards


def curves(result: lab.Result, name: str) -> list[Any]:
    part = result.part(name)
    return [part.runs[seed].curves.tolist() for seed in part.seeds]


def test_more_policies_change_nothing_for_the_others() -> None:
    alone = lab.simulate(GAUSSIAN, ["mtts"], horizon=10, seeds=3)
    company = ["osfa", Noisy(), "mtts", Agent("learns", changes={"task_cov": None})]
    among = lab.simulate(GAUSSIAN, company, horizon=10, seeds=3)
    assert curves(alone, "mtts") == curves(among, "mtts")
    assert curves(among, "osfa") != curves(among, "mtts")


# -- policies of one's own -----------------------------------------------------------------------------------


class Noisy:
    """Epsilon-greedy on the tasks' own means."""

    def __init__(self, seed: int = 0) -> None:
        self.rng, self.decided = np.random.default_rng(seed), 0

    def start(self, problem: Problem) -> None:
        assert self.decided == 0, "a copy that has played before"
        self.sums, self.n = np.zeros(problem.phi.shape[:2]), np.full(problem.phi.shape[:2], 1e-9)

    def decide(self, task: int) -> int:
        self.decided += 1
        if self.rng.random() < 0.1:
            return int(self.rng.integers(self.n.shape[1]))
        return int(np.argmax(self.sums[task] / self.n[task]))

    def learn(self, task: int, arm: int, reward: float) -> None:
        self.sums[task, arm] += reward
        self.n[task, arm] += 1.0


class Stubborn:
    """Always the same answer, whatever it is."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def decide(self, task: int) -> Any:
        return self.answer

    def learn(self, task: int, arm: int, reward: float) -> None:
        pass


class Vandal(Stubborn):
    def start(self, problem: Problem) -> None:
        problem.phi[:] = 0.0


class Awkward(Exception):
    """An exception that cannot be made again from its arguments, as pickle would."""

    def __init__(self, what: str, where: int) -> None:
        super().__init__(f"{what} at {where}")


class Failing(Stubborn):
    """Raises what it was given, after a while."""

    def decide(self, task: int) -> int:
        if task == 2:
            raise Awkward("lost", task) if self.answer is Awkward else self.answer
        return 0


def test_one_process_or_two_and_a_fresh_copy_for_every_seed() -> None:
    own = Noisy()
    one = lab.simulate(GAUSSIAN, [own, "mtts"], horizon=5, seeds=4)
    two = lab.simulate(GAUSSIAN, [own, "mtts"], horizon=5, seeds=4, jobs=2)
    assert own.decided == 0
    for name in ("Noisy", "mtts"):
        assert curves(one, name) == curves(two, name)
    assert len({str(curve) for curve in curves(one, "Noisy")}) == 4


@pytest.mark.parametrize("arm", [3, -1, 1.0, True, "a", None, np.array([1])], ids=repr)
def test_a_bad_arm_is_refused(arm: Any) -> None:
    with pytest.raises(InvalidInput, match=r"Stubborn\.decide\(0\): got .*an arm's number from 0 to 2"):
        lab.simulate(GAUSSIAN, [Stubborn(arm)], horizon=2, seeds=1)


def test_any_whole_number_is_an_arm() -> None:
    assert lab.simulate(GAUSSIAN, [Stubborn(np.int32(2))], horizon=2, seeds=1).rows()[0]["regret"] > 0.0


def test_a_policy_cannot_change_the_problem() -> None:
    with pytest.raises(ValueError, match="read-only") as caught:
        lab.simulate(GAUSSIAN, [Vandal(0)], horizon=2, seeds=[7])
    assert caught.value.__notes__ == ["while Vandal played seed 7"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_goes_wrong_in_a_policy_is_told(jobs: int) -> None:
    with pytest.raises(ZeroDivisionError, match="my own mistake") as caught:
        lab.simulate(GAUSSIAN, [Failing(ZeroDivisionError("my own mistake"))], horizon=2, seeds=2, jobs=jobs)
    assert caught.value.__notes__[0].startswith("while Failing played seed ")
    told = str(caught.value.__cause__) if jobs == 2 else str(caught.traceback[-1])
    assert "raise Awkward" in told or "decide" in told


def test_an_exception_that_does_not_travel_is_told_as_text() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)in decide.*Awkward: lost at 2\nwhile Failing played seed"):
        lab.simulate(GAUSSIAN, [Failing(Awkward)], horizon=2, seeds=2, jobs=2)


def test_what_cannot_be_sent_to_another_process_is_refused_at_once() -> None:
    class Local(Stubborn):
        pass

    for policies, order in (([Local(0)], "concurrent"), ([Stubborn(0)], lambda n, t, rng: np.arange(n))):
        with pytest.raises(InvalidInput, match="jobs: got 2; accepted: 1 with policies, orders or"):
            lab.simulate(GAUSSIAN, policies, order=order, horizon=2, seeds=2, jobs=2)


def reachable(value: Any, seen: set[int]) -> list[Any]:
    """Everything that can be reached from an object by its attributes and items."""
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type, type(None))):
        return []
    seen.add(id(value))
    inner = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, dict):
        inner += [*value, *value.values()]
    elif isinstance(value, (list, tuple, set)):
        inner += list(value)
    elif isinstance(value, np.ndarray) and value.base is not None:
        inner.append(value.base)
    return [value, *(found for one in inner for found in reachable(one, seen))]


def leaks(problem: Problem, world: World) -> bool:
    """Whether anything reachable from a problem is the truth, the prior mean, or somebody who knows them."""
    mean = np.asarray(world.prior_mean)
    secrets = [world.truth, mean, world.truth - mean]
    theta = np.linalg.lstsq(GAUSSIAN.world(world.seed).problem.phi.reshape(-1, 5), mean.ravel(), rcond=None)[
        0
    ]
    for found in reachable(problem, set()):
        if isinstance(found, (World, Environment, Rewards, np.random.Generator)):
            return True
        if isinstance(found, np.ndarray) and any(same_numbers(found, secret) for secret in [*secrets, theta]):
            return True
    return False


def same_numbers(found: Array, secret: Array) -> bool:
    """Whether two arrays hold the same numbers, whatever their shapes."""
    return (
        found.size == secret.size and found.dtype.kind == "f" and np.allclose(found.ravel(), secret.ravel())
    )


def test_the_problem_does_not_give_away_the_truth() -> None:
    world = GAUSSIAN.world(1)
    assert not leaks(players.shown(world.problem), world)
    for planted in (
        {"metadata": world.truth},
        {"model": world},
        {"phi": np.ravel(world.prior_mean)[None, None]},
    ):
        assert leaks(replace(world.problem, **planted), world)


# -- regret --------------------------------------------------------------------------------------------------

SMALL = lab.GaussianTasks(n_tasks=20, n_arms=4, n_features=6)
NAMES = ["mtts", "mtts-approx", "oracle-ts", "linear-ts", "meta-ts", "individual-ts", "osfa"]


class ForgetfulPlayer(ModelPlayer):
    """A planted bug: what a task itself has shown is left out of its law; the coefficients are learned well."""

    def _law(self, tasks: Array, made: Array) -> Normal:
        law: Normal = self.draws.law(self.belief, tasks, made)
        belief: Any = self.belief
        phi, theta = belief.features.phi(int(tasks[0])), belief.draws(made)[0]
        return Normal((phi @ theta)[None], np.full_like(law.sd, math.sqrt(SMALL.task_var)))


class Forgetful(Agent):
    def player(self, world: World, order: str, seed: int) -> ForgetfulPlayer:
        made = super().player(world, order, seed)
        return ForgetfulPlayer(made.belief, made.policy, made.draws.refresh, seed)


@pytest.fixture(scope="module")
def small() -> lab.Result:
    return lab.simulate(SMALL, [*NAMES, Forgetful("forgetful")], horizon=30, seeds=40)


def z_score(values: Array) -> float:
    return float(values.mean() / values.std(ddof=1) * math.sqrt(len(values)))


def test_multi_task_regret_is_paired_with_the_oracle(small: lab.Result) -> None:
    oracle = small.part("oracle-ts").totals()
    for row in small.rows():
        mine = small.part(row["policy"]).totals()
        n = len(mine)
        assert (row["seeds"], row["regret"]) == (40, pytest.approx(mine.mean()))
        assert row["regret_se"] == pytest.approx(mine.std(ddof=1) / math.sqrt(n))
        assert row["multitask_regret"] == pytest.approx((mine - oracle).mean(), abs=1e-9)
        assert row["multitask_regret_se"] == pytest.approx((mine - oracle).std(ddof=1) / math.sqrt(n))
        if row["policy"] in ("mtts", "mtts-approx"):
            unpaired = math.hypot(row["regret_se"], oracle.std(ddof=1) / math.sqrt(n))
            assert row["multitask_regret_se"] < 0.5 * unpaired


def test_rows_and_frames_say_the_same(small: lab.Result) -> None:
    frame = small.frame
    last = frame[frame["point"] == 30].groupby("policy")
    for row in small.rows():
        mine = last.get_group(row["policy"])
        assert mine["interactions"].tolist() == [600] * 40
        assert mine["regret"].mean() == pytest.approx(row["regret"])
        assert mine["realised_regret"].mean() == pytest.approx(row["realised_regret"])
        assert mine["best_arm"].mean() / 600 == pytest.approx(row["best_arm_share"])
        assert row["seconds"] > 0.0


def test_realised_regret_is_expected_regret_and_noise(small: lab.Result) -> None:
    expected, realised = (
        np.concatenate([small.part(name).totals(row) for name in small.policies]) for row in (0, 1)
    )
    assert abs(z_score(realised - expected)) < 4.0
    assert abs(z_score(realised - 1.05 * expected)) > FAR  # the test can fail
    assert (realised - expected).std() > 1.0


def test_nobody_beats_the_oracle(small: lab.Result) -> None:
    against = {name: small.multitask(small.part(name)) for name in NAMES if name != "oracle-ts"}
    z = {name: z_score(difference[:, -1]) for name, difference in against.items() if difference is not None}
    assert len(z) == 6
    assert min(z.values()) > -3.0
    assert all(z[name] > FAR for name in ("linear-ts", "meta-ts", "individual-ts", "osfa"))


def test_a_planted_bug_shows_in_the_regret(small: lab.Result) -> None:
    worse = small.part("forgetful").totals() - small.part("mtts").totals()
    assert z_score(worse) > FAR


def test_regret_of_known_arms() -> None:
    """Always the same arm: its regret is in the truth, its best-arm share too, and both in every curve."""
    world = SMALL.world(9)
    gaps = world.truth.max(axis=1) - world.truth[:, 2]
    part = lab.simulate(SMALL, [Stubborn(2)], horizon=7, seeds=[9], order="sequential").part("Stubborn")
    np.testing.assert_allclose(part.runs[9].curves[0], 7.0 * gaps)
    assert part.runs[9].curves[2].tolist() == (7.0 * (gaps == 0.0)).tolist()
    part = lab.simulate(SMALL, [Stubborn(2)], horizon=7, seeds=[9]).part("Stubborn")
    np.testing.assert_allclose(part.curves(0)[0], gaps.sum() * np.arange(1, 8))


def test_without_an_oracle_there_is_no_multi_task_regret() -> None:
    row = lab.simulate(SMALL, ["mtts"], horizon=2, seeds=2).rows()[0]
    assert math.isnan(row["multitask_regret"])
    assert math.isnan(row["multitask_regret_se"])


def first_decisions(scale: float, seeds: int = 1500) -> list[tuple[Array, Array]]:
    """How often each arm was the first of each task, and how probable that exactly was : (K,) each."""
    world = SMALL.world(2)
    tasks = np.arange(4)
    counts = np.zeros((4, SMALL.n_arms))
    for seed in range(seeds):
        player = AGENTS["oracle-ts"].player(world, "concurrent", seed)
        arms = compiled.play(player, world, tasks, np.zeros(4, np.int64))
        counts[tasks, arms] += 1.0
    fresh = AGENTS["oracle-ts"].player(world, "concurrent", 0).belief
    law = fresh.law(tasks, np.ones(1))
    probabilities, _ = mb.Thompson(scale).probabilities(law, np.zeros(4, np.uint64))
    return list(zip(counts, probabilities, strict=True))


def test_the_oracle_chooses_with_exactly_the_probability_that_an_arm_is_the_best() -> None:
    assert min(frequencies(counts, p) for counts, p in first_decisions(1.0)) > P_LEAST
    assert min(frequencies(counts, p) for counts, p in first_decisions(1.3)) < P_LEAST  # the test can fail


# -- orders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", orders.NAMED)
@pytest.mark.parametrize(("n_tasks", "horizon"), [(1, 5), (7, 1), (40, 9)])
def test_every_task_has_its_horizon(order: str, n_tasks: int, horizon: int) -> None:
    tasks = orders.made(order, n_tasks, horizon, 3)
    assert np.bincount(tasks, minlength=n_tasks).tolist() == [horizon] * n_tasks
    assert tasks.tolist() == orders.made(order, n_tasks, horizon, 3).tolist()


def test_orders_are_what_they_are_called() -> None:
    assert orders.made("concurrent", 3, 2, 0).tolist() == [0, 1, 2, 0, 1, 2]
    assert orders.made("sequential", 3, 2, 0).tolist() == [0, 0, 1, 1, 2, 2]
    for name in ("random", "arriving"):
        assert orders.made(name, 40, 9, 0).tolist() != orders.made(name, 40, 9, 1).tolist()
    tasks = orders.made("arriving", 40, 9, 0)
    starts = np.unique(tasks, return_index=True)[1]
    assert (
        starts[4:] >= 9 * np.arange(1, 37)
    ).all()  # after the first four, one with every nine interactions ...
    assert starts[-1] > 320  # ... until there are no more


def doubled(n_tasks: int, horizon: int, rng: np.random.Generator) -> Array:
    """Every task twice in a row, as often as there is room."""
    return np.tile(np.repeat(np.arange(n_tasks), 2), horizon // 2)


def test_an_order_of_ones_own() -> None:
    result = lab.simulate(GAUSSIAN, ["mtts", "oracle-ts"], order=doubled, horizon=4, seeds=2, jobs=2)
    assert {row["order"] for row in result.rows()} == {"doubled"}
    assert result.part("mtts").totals(3).tolist() == [84, 84]


BAD_ORDERS: dict[str, Callable[..., Any]] = {
    "out of range": lambda n, t, rng: [0, n],
    "negative": lambda n, t, rng: [0, -1],
    "empty": lambda n, t, rng: [],
    "floats": lambda n, t, rng: np.zeros(3),
    "booleans": lambda n, t, rng: np.zeros(3, bool),
    "two dimensions": lambda n, t, rng: np.zeros((2, 2), int),
    "nothing": lambda n, t, rng: None,
    "any length": lambda n, t, rng: np.zeros(int(rng.integers(30, 300)), int),
}


@pytest.mark.parametrize("case", BAD_ORDERS)
def test_bad_orders_of_ones_own(case: str) -> None:
    with pytest.raises(InvalidInput, match=r"^order: got .*; accepted: "):
        lab.simulate(GAUSSIAN, ["osfa"], order=BAD_ORDERS[case], horizon=2, seeds=3)


# -- refusals ------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, dict[str, Any]] = {
    "unknown policy": {"policies": ["mtts", "nobody"]},
    "one name": {"policies": "mtts"},
    "no policy": {"policies": []},
    "policies None": {"policies": None},
    "twice": {"policies": ["mtts", "mtts"]},
    "a class": {"policies": [Noisy]},
    "a number for a policy": {"policies": [3]},
    "no seeds": {"seeds": 0},
    "seeds []": {"seeds": []},
    "a seed twice": {"seeds": [1, 1]},
    "a negative seed": {"seeds": [-1]},
    "a seed too large": {"seeds": [2**63]},
    "half a seed": {"seeds": 1.5},
    "seeds text": {"seeds": "3"},
    "no horizon": {"horizon": 0},
    "horizon float": {"horizon": 2.0},
    "horizon too long": {"horizon": 2**32},
    "no jobs": {"jobs": 0},
    "jobs None": {"jobs": None},
    "unknown order": {"order": "x"},
    "order None": {"order": None},
    "no environment": {"environment": 3},
    "an environment's class": {"environment": lab.GaussianTasks},
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_bad_arguments(case: str, tmp_path: Path) -> None:
    (name,) = ARGUMENTS[case]
    given: dict[str, Any] = {
        "environment": GAUSSIAN, "policies": ["osfa"], "horizon": 2, "seeds": 1, "keep": tmp_path / "kept"
    }  # fmt: skip
    with pytest.raises(InvalidInput, match=rf"^{name}: got [^\n]*; accepted: [^\n]*$"):
        lab.simulate(**(given | ARGUMENTS[case]))
    if name != "horizon":
        assert not list(tmp_path.iterdir())  # nothing half-written


@pytest.mark.parametrize("below", ["folder", "file/kept"])
def test_a_store_that_cannot_be_written(below: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"^keep: got [^\n]*; accepted: a place that can be written"):
        lab.simulate(GAUSSIAN, ["osfa"], horizon=2, seeds=1, keep=tmp_path / below)


def test_an_oracle_needs_a_prior_that_somebody_knows() -> None:
    world = dataclasses.replace(GAUSSIAN.world(1), prior_mean=None)
    with pytest.raises(InvalidInput, match="nobody knows the prior here"):
        agents.oracle_belief(world)
