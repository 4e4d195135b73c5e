"""What is compared: a model, perhaps with something removed, a policy, and when the draw is renewed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.lab.environment import Problem, World
from metabandit.lab.players import ModelPlayer
from metabandit.learning.refresh import Refresh
from metabandit.models import model_spec, presets
from metabandit.models.base import Belief, Model
from metabandit.models.gaussian_process import GaussianProcessModel
from metabandit.models.linear import LinearMixedModel
from metabandit.models.presets import Preset
from metabandit.policies import Policy, Thompson

Array = np.ndarray[Any, Any]

ORACLE = "oracle-ts"
MOST_PRESETS = 256
KNOWN = (ORACLE, "individual-ts", "osfa")  # presets whose coefficients are known: one draw is as good as any
FOREVER = 1e12  # rewards
DEFAULT_EVERY = 100  # rewards between draws that cost milliseconds, as in MultiTaskBandit


@dataclass(frozen=True, eq=False)
class Agent:
    """A policy of a study, by name.

    preset : "mtts" for the whole model, or the name of a baseline (`metabandit.presets`).
    changes : fields of the environment's model that are set differently before anything is removed from it, for
        instance {"task_cov": None} to learn the task variance.
    model : instead of the environment's model altogether.
    policy : how arms are chosen. refresh : when draws are renewed; None: for every decision where draws are cheap,
        else after every 100 rewards; or a dict from the name of an order (and "" for all others) to that.

    >>> import metabandit as mb
    >>> from metabandit import lab
    >>> greedy = lab.Agent("greedy", policy=mb.Greedy())
    >>> env = lab.GaussianTasks(n_tasks=20, n_arms=3, n_features=5)
    >>> result = lab.simulate(env, ["mtts", greedy], horizon=10, seeds=2)
    >>> sorted(result.policies)
    ['greedy', 'mtts']
    """

    name: str
    preset: str = "mtts"
    changes: Mapping[str, Any] = field(default_factory=dict)
    model: Model | None = None
    policy: Policy = field(default_factory=Thompson)
    refresh: Any = None

    def player(self, world: World, order: str, seed: int) -> ModelPlayer:
        """A fresh player of one world. Only the oracle looks at more than the problem."""
        problem = world.problem
        belief = oracle_belief(world) if self.preset == ORACLE else self.belief(problem)
        return ModelPlayer(belief, self.policy, self._refresh(problem, order), seed)

    def belief(self, problem: Problem) -> Belief:
        """An empty belief that knows the problem's tasks."""
        model = self._model(problem)
        if problem.slopes is not None:
            return contextual_belief(model, problem, problem.slopes)
        if isinstance(model, GaussianProcessModel):
            process = model.belief(problem.n_arms, problem.metadata.shape[1])
            process.add_tasks(problem.metadata)
            return process
        made: Belief = model.belief(problem.n_arms, problem.n_features)
        made.add_tasks(problem.phi)
        return made

    def _model(self, problem: Problem) -> Any:
        model: Any = problem.model if self.model is None else self.model
        if self.changes:
            model = replace(model, **self.changes)
        return model if self.preset == "mtts" else preset_of(self.preset, model, problem)

    def _refresh(self, problem: Problem, order: str) -> Refresh:
        rule = self.refresh
        if isinstance(rule, Mapping):
            rule = rule.get(order, rule.get(""))
        if rule is None and self.preset in KNOWN:
            return Refresh("every", FOREVER)
        if rule is None:
            return Refresh("always") if problem.reward == "real" else Refresh("every", DEFAULT_EVERY)
        return Refresh.of(rule)

    def spec(self) -> dict[str, Any]:
        """The agent as plain data: what results are kept under."""
        rules = self.refresh if isinstance(self.refresh, Mapping) else {"": self.refresh}
        shown = {name: None if rule is None else _rule(Refresh.of(rule)) for name, rule in rules.items()}
        return {
            "agent": self.name,
            "preset": self.preset,
            "changes": {name: np.asarray(value).tolist() for name, value in self.changes.items()},
            "model": None if self.model is None else model_spec(self.model),
            "policy": self.policy.spec(),
            "refresh": shown,
        }


def _rule(refresh: Refresh) -> list[Any]:
    return [refresh.rule, refresh.amount, refresh.per_task]


# One preset serves all seeds of a setting: its priors integrate the metadata out, and cost more than a world.
_PRESETS: dict[tuple[Any, ...], tuple[Array, Any]] = {}


def preset_of(name: str, model: Any, problem: Problem) -> Any:
    """The model with something removed; priors by total expectation and variance over random tasks."""
    key = (
        name,
        repr(model_spec(model)),
        id(problem.sample),
    )  # the sample is kept, so that its id stays its own
    if key not in _PRESETS:
        if len(_PRESETS) >= MOST_PRESETS:
            _PRESETS.clear()
        _PRESETS[key] = problem.sample, presets.make(name, model, phi=problem.sample)
    return _PRESETS[key][1]


def oracle_belief(world: World) -> Belief:
    """The belief of one who knows E[r_i | x_i] and the variance of the effects around it: oracle-TS.

    The true prior mean, on the scale of the linear predictor, is the one feature, with coefficient 1.
    """
    if world.prior_mean is None:
        raise InvalidInput("policies", ORACLE, "policies other than the oracle: nobody knows the prior here")
    known: Any = replace(world.oracle_model or world.problem.model, coef_mean=1.0, coef_cov=0.0)
    if world.prior_slopes is not None:
        return contextual_belief(known, world.problem, world.prior_slopes[:, :, None])
    links: dict[str, Any] = {"real": lambda m: m, "binary": _logit, "count": np.log}
    phi = links[world.problem.reward](world.prior_mean)[:, :, None]
    belief: Belief = known.belief(world.problem.n_arms, 1)
    belief.add_tasks(phi)
    return belief


def contextual_belief(model: Any, problem: Problem, slopes: Array) -> Belief:
    """An empty belief over the tasks' slopes, whose means are slopes[i] theta : (N, q).

    Baselines without metadata have slopes theta for every task; where all tasks are one, no effects beside.
    """
    if isinstance(model, Preset):
        if model.keeps == "intercepts":
            slopes = np.tile(np.eye(problem.contexts), (problem.n_tasks, 1, 1))
        one = {"coef_cov": model.model.task_cov, "task_cov": 0.0} if model.pooled else {}
        model = replace(model.model, **one)
    if not isinstance(model, LinearMixedModel):
        raise InvalidInput("model", model, "a LinearMixedModel in contextual problems")
    belief = model.belief(problem.n_arms, slopes.shape[2], n_effects=problem.contexts)
    belief.add_tasks(slopes)
    return belief


def _logit(p: Array) -> Array:
    made: Array = np.log(p) - np.log1p(-p)
    return made


EVERY_ROUND = {"sequential": "task", "": "round"}

AGENTS = {
    "mtts": Agent("mtts"),
    # Algorithm 2: one draw a task where tasks follow one another; one a round where they do not.
    "mtts-approx": Agent("mtts-approx", refresh=EVERY_ROUND),
    **{name: Agent(name, name) for name in presets.NAMES["real"] if name != "mtts"},
}


def agent_of(policy: Any) -> Any:
    """An agent from its name; anything else with decide and learn stays what it is."""
    if isinstance(policy, str):
        if policy not in AGENTS:
            raise InvalidInput(
                "policies", policy, f"one of {tuple(AGENTS)}, or objects with decide and learn"
            )
        return AGENTS[policy]
    fits = isinstance(policy, Agent) or callable(getattr(policy, "player", None))
    decides = callable(getattr(policy, "decide", None)) and callable(getattr(policy, "learn", None))
    if isinstance(policy, type) or not (fits or decides):
        raise InvalidInput("policies", policy, f"one of {tuple(AGENTS)}, or objects with decide and learn")
    return policy


def check_ready(policies: Iterable[Any]) -> None:
    """Let policies that stand on other libraries refuse where those are not installed."""
    for policy in policies:
        check = getattr(policy, "check_installed", None)
        if callable(check):
            check()


def name_of(policy: Any) -> str:
    """What results call it."""
    return str(getattr(policy, "name", None) or type(policy).__name__)
