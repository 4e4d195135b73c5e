"""Simulations: every policy on the same tasks and the same potential rewards."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy
from metabandit.lab import compiled, orders, players, processes
from metabandit.lab.agents import Agent, agent_of, check_ready, name_of
from metabandit.lab.environment import Environment, World
from metabandit.lab.result import Part, Result
from metabandit.lab.runs import Run, Runs, key_of

_play: Any = Lazy("play")
Array = np.ndarray[Any, Any]
Tick = Callable[[int], None]

MOST_SEEDS = 100_000  # worlds of one setting: every one of them is held in memory until all are averaged
MOST_SEED = (1 << 63) - 1  # what a store can hold
WARM = 64  # interactions that are played to have everything compiled


@dataclass(frozen=True, eq=False)
class Setting:
    """One environment met in one order by some policies."""

    environment: Environment
    policies: tuple[Any, ...]
    order: orders.Order = "concurrent"
    horizon: int = 200
    label: str = ""

    def key(self, policy: Any) -> str | None:
        """What the runs of a policy are kept under; None where nothing says all that they depend on."""
        spec = getattr(policy, "spec", None)
        if not callable(spec) or callable(self.order):
            return None
        made = [f"{type(x).__module__}.{type(x).__qualname__}" for x in (self.environment, policy)]
        return key_of(made, self.environment.spec(), spec(), self.order, self.horizon)


def simulate(
    environment: Environment, policies: Iterable[Any], order: orders.Order = "concurrent", horizon: int = 200,
    seeds: int | Iterable[int] = 20, jobs: int = 1, keep: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Result:  # fmt: skip
    """Let policies play the same worlds, one a seed, and count their regret.

    policies : names ("mtts", "mtts-approx", "oracle-ts", "linear-ts", "glb-ts", "meta-ts", "individual-ts", "osfa"),
        `Agent`s, or objects of your own with decide(task) and learn(task, arm, reward); a fresh copy plays every seed.
        With "oracle-ts" among them the result has multi-task regrets.
    order : "concurrent", "sequential", "random", "arriving", or a function (n_tasks, horizon, rng) -> tasks.
    horizon : interactions with each task. seeds : how many, or which.
    jobs : processes. With more than one, objects of your own must be importable: defined in a module, not typed in.
    keep : a file in which finished runs are kept; the next call with the same settings goes on from there.

    >>> from metabandit import lab
    >>> env = lab.GaussianTasks(n_tasks=20, n_arms=3, n_features=5)
    >>> result = lab.simulate(env, ["mtts", "oracle-ts", "individual-ts"], horizon=20, seeds=3)
    >>> [row["policy"] for row in result.rows()]
    ['mtts', 'oracle-ts', 'individual-ts']
    """
    setting = Setting(
        environment, checked_policies(policies), orders.check_order(order), count("horizon", horizon)
    )
    if not isinstance(environment, Environment):
        raise InvalidInput("environment", environment, "an environment such as lab.GaussianTasks()")
    numbers, jobs = checked_seeds(seeds), count("jobs", jobs)
    store = None if keep is None else Runs(keep, "keep")
    try:
        parts = run([setting], numbers, jobs, store, progress)
    finally:
        if store is not None:
            store.close()
    return Result(parts)


def run(
    settings: Sequence[Setting], seeds: list[int], jobs: int, store: Runs | None, progress: bool | None = None
) -> list[Part]:
    """Every policy of every setting on every seed; what the store has is not done again."""
    for setting in settings:
        check_ready(setting.policies)
    parts = [
        Part(s.label, orders.order_name(s.order), name_of(p), s.environment.reward, p, s) for s in settings
        for p in s.policies
    ]  # fmt: skip
    units = list(_missing(settings, parts, seeds, store))
    processes.check_importable(list({id(unit.setting): unit for unit in units}.values()), jobs)
    with _progress(len(units), progress) as tick, closing(processes.finished(units, jobs)) as finished:
        for done, runs in finished:
            unit = units[done]
            mine = [part for part in parts if part.setting is settings[unit.setting_number]]
            for number, made in zip(unit.places, runs, strict=True):
                _check_length(mine[number], made)
                mine[number].runs[unit.seed] = made
                key = None if store is None else mine[number].setting.key(mine[number].policy)
                if store is not None and key is not None:
                    store.put(key, unit.seed, made)
            tick(1)
    return parts


def _check_length(part: Part, made: Run) -> None:
    """Refuse what could not be averaged over seeds."""
    for other in part.runs.values():
        if other.curves.shape != made.curves.shape:
            given = f"<{part.order}, whose length depends on the random numbers>"
            raise InvalidInput("order", given, "as many interactions with every seed")
        return


@dataclass(frozen=True, eq=False)
class Unit:
    """One world and the policies that have not played it yet."""

    setting: Setting
    setting_number: int
    places: tuple[int, ...]
    seed: int

    def __call__(self) -> list[Run]:
        """Play."""
        policies = [self.setting.policies[place] for place in self.places]
        return play_world(self.setting, policies, self.seed)


def _missing(
    settings: Sequence[Setting], parts: list[Part], seeds: list[int], store: Runs | None
) -> Iterator[Unit]:
    for number, setting in enumerate(settings):
        mine = [part for part in parts if part.setting is setting]
        for part in mine:
            key = None if store is None else setting.key(part.policy)
            if store is not None and key is not None:
                part.runs.update(store.get(key, seeds))
        for seed in seeds:
            places = tuple(j for j, part in enumerate(mine) if seed not in part.runs)
            if places:
                yield Unit(setting, number, places, seed)


def play_world(setting: Setting, policies: Sequence[Any], seed: int) -> list[Run]:
    """The policies, one after the other, on one world."""
    check_ready(policies)  # also loads other libraries, before any clock runs
    world = setting.environment.world(seed)
    n_tasks, order = world.problem.n_tasks, orders.order_name(setting.order)
    tasks = orders.made(setting.order, n_tasks, setting.horizon, seed)
    visits = np.empty(len(tasks), np.int64)
    _play.count_visits(tasks, n_tasks, visits)
    per_point = orders.per_point(setting.order, n_tasks, setting.horizon)
    runs = []
    for policy in policies:
        try:
            _warm(policy, world, order, tasks, visits)
            start = time.perf_counter()
            player = players.player_of(policy, world, order, seed)
            play = compiled.play if compiled.can_compile(player, world) else players.play
            chosen = play(player, world, tasks, visits)
        except Exception as error:
            error.add_note(f"while {name_of(policy)} played seed {seed}")
            raise
        seconds = time.perf_counter() - start
        runs.append(Run(world.judge(tasks, visits, chosen, per_point), seconds))
    return runs


_warmed: set[str] = set()


def _warm(policy: Any, world: World, order: str, tasks: Array, visits: Array) -> None:
    """Play a few interactions of what this process has not played yet: compiling is no policy's time."""
    if isinstance(policy, Agent) and (what := f"{policy!r} {world.problem.model!r} {order}") not in _warmed:
        _warmed.add(what)
        player = players.player_of(policy, world, order, 0)
        if compiled.can_compile(player, world):
            compiled.play(player, world, tasks[:WARM], visits[:WARM])


@contextmanager
def _progress(total: int, wanted: bool | None) -> Iterator[Tick]:
    """A bar with the time left, on stderr where that is a terminal."""
    from tqdm import tqdm

    disable = not (sys.stderr.isatty() if wanted is None else wanted)
    with tqdm(total=total, desc="simulating", unit="world", leave=False, disable=disable, delay=1.0) as bar:
        yield lambda n: bar.update(n) and None


# -- checks --------------------------------------------------------------------------------------------------------


def checked_policies(policies: Any) -> tuple[Any, ...]:
    """Agents and objects, each under a name of its own."""
    if isinstance(policies, str) or not isinstance(policies, Iterable):
        raise InvalidInput("policies", policies, "a list of policies")
    made = tuple(agent_of(policy) for policy in policies)
    names = [name_of(policy) for policy in made]
    if not made or len(set(names)) < len(names):
        raise InvalidInput("policies", names, "at least one policy, each with a name of its own")
    return made


def checked_seeds(seeds: Any) -> list[int]:
    """The seeds, as a list of different whole numbers."""
    if isinstance(seeds, (int, np.integer)) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_SEEDS:
            raise InvalidInput("seeds", seeds, f"a whole number from 1 to {MOST_SEEDS:,}, or a list of seeds")
        return list(range(seeds))
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise InvalidInput("seeds", seeds, "a number of seeds >= 1, or a list of them")
    made = [count("seeds", seed, least=0) for seed in seeds]
    if not made or len(set(made)) < len(made) or max(made) > MOST_SEED:
        raise InvalidInput("seeds", made, "at least one seed, none twice, none above 2^63 - 1")
    return made
