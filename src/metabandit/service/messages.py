"""What clients send and what they get, as JSON. Unknown fields are refused; every error names the field."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

MOST = 1e100  # of numbers: their squares are numbers, too
MOST_NAME, MOST_ARMS, MOST_COLUMNS, MOST_BATCH = 256, 1000, 200, 10_000

Name = Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
Level = str | bool | int | float
Metadata = dict[str, Level | None]
Reward = Literal["real", "binary", "count"]
PolicyKind = Literal["thompson", "greedy", "upper-bound", "random"]
Shape = Literal["scalar", "per_arm", "compound", "full"]


class Message(Struct, forbid_unknown_fields=True, kw_only=True):
    """Anything that is sent; fields may come in any order."""


# -- a bandit ------------------------------------------------------------------------------------------------


class Column(Message, omit_defaults=True):
    """A metadata column. A missing value is not an error: it counts as the average."""

    type: Literal["number", "category"]
    low: float | None = None
    """a number below is refused"""
    high: float | None = None
    levels: Annotated[list[Name], Meta(min_length=1, max_length=1000)] | None = None
    """the categories there are; without them, categories are found as they come"""


class ModelSettings(Message):
    """The hierarchical model. Whatever is not given is learned."""

    coef_mean: Annotated[float, Meta(ge=-MOST, le=MOST)] = 0.0
    coef_cov: Annotated[float, Meta(ge=0, le=MOST)] | None = None
    task_cov: (
        Annotated[float, Meta(ge=0, le=MOST)] | list[Annotated[float, Meta(ge=0, le=MOST)]] | Shape | None
    ) = None
    """of real rewards: a number, one for each arm, or the shape in which it is learned"""
    noise_var: Annotated[float, Meta(gt=0, le=MOST)] | None = None
    """of real rewards"""
    dispersion: Annotated[float, Meta(gt=0, le=MOST)] | None = None
    """of binary rewards and counts"""


class PolicySettings(Message):
    """How an arm is chosen."""

    kind: PolicyKind = "thompson"
    scale: Annotated[float, Meta(gt=0)] = 1.0
    """of Thompson sampling: below 1 it explores less"""
    level: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    """of the upper bound"""
    floor: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """no eligible arm is less probable"""
    ceiling: Annotated[float, Meta(gt=0, le=1)] = 1.0


class PolicyChange(Message):
    """What of the policy is to be another; what is not given stays."""

    kind: PolicyKind | UnsetType = UNSET
    scale: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    level: Annotated[float, Meta(gt=0, lt=1)] | UnsetType = UNSET
    floor: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    ceiling: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET


class RefreshSettings(Message):
    """When the draw of the coefficients is renewed: for every decision; after `amount` rewards; or when their log
    precision grew by `amount`."""

    rule: Literal["always", "every", "information"]
    amount: Annotated[float, Meta(gt=0)] | None = None


class NewBandit(Message):
    """What makes a bandit."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)")]
    """letters, digits, dots, hyphens and underscores"""
    arms: Annotated[list[Name], Meta(min_length=1, max_length=MOST_ARMS)]
    metadata: dict[Name, Column] = {}
    reward: Reward = "real"
    model: ModelSettings = field(default_factory=ModelSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    refresh: RefreshSettings | None = None
    """None: for every decision with real rewards, after 100 rewards otherwise"""
    seed: Annotated[int, Meta(ge=0, lt=2**53)] | None = None
    """what all random numbers come from; None: one is made"""


class BanditChange(Message):
    """What is given is changed, under a new version."""

    policy: PolicyChange | UnsetType = UNSET
    refresh: RefreshSettings | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    """a paused bandit decides nothing; rewards are still learned"""


class ArmState(Struct, kw_only=True):
    name: str
    active: bool


class Bandit(Struct, kw_only=True):
    """A bandit as it is."""

    name: str
    arms: list[ArmState]
    metadata: dict[str, Column]
    reward: Reward
    model: ModelSettings
    policy: PolicySettings
    refresh: RefreshSettings
    seed: int
    paused: bool
    version: int
    """of the belief: the last event of the log that it knows"""
    tasks: int
    decisions: int
    rewards: int
    created: float
    """seconds since 1970"""


class NewArm(Message):
    name: Name


class ArmSwitch(Message):
    """Whether an arm can be chosen from now on."""

    name: Name
    active: bool


# -- tasks ---------------------------------------------------------------------------------------------------


class TaskMetadata(Message):
    task: Name
    metadata: Metadata


class Tasks(Message):
    tasks: Annotated[list[TaskMetadata], Meta(min_length=1, max_length=MOST_BATCH)]


class Changed(Struct, kw_only=True):
    """How many were new or different."""

    changed: int


# -- decisions and rewards -------------------------------------------------------------------------------------


class DecisionRequest(Message):
    task: Name
    id: Name | None = None
    """your request id, which is the decision's id: the same one always gives the same answer. None: one is made"""
    metadata: Metadata | None = None
    """of a new task, or news of a known one; None: what is known of it"""
    eligible: Annotated[list[Name], Meta(min_length=1, max_length=MOST_ARMS)] | None = None
    """the arms that may be chosen this time; None: every active one"""


class DecisionRequests(Message):
    decisions: Annotated[list[DecisionRequest], Meta(min_length=1, max_length=MOST_BATCH)]


class DecisionMade(Struct, kw_only=True):
    id: str
    task: str
    arm: str
    probability: float
    """of the arm, given the belief and the draw behind the decision"""
    standard_error: float
    """of the probability; 0: exact"""
    version: int
    """of the belief that decided: the last event of the log that it knew"""


class DecisionsMade(Struct, kw_only=True):
    decisions: list[DecisionMade]


class RewardMessage(Message):
    decision: Name
    """the decision's id"""
    reward: float | None
    """null, with amend: take the reward back"""
    exposure: Annotated[float, Meta(gt=0)] = 1.0
    """over how much time, or how many trials, a count was made"""
    amend: bool = False
    """replace the reward that was given before"""


class RewardMessages(Message):
    rewards: Annotated[list[RewardMessage], Meta(min_length=1, max_length=MOST_BATCH)]


RewardEffect = Literal["learned", "repeated", "amended", "retracted"]


class RewardTaken(Struct, kw_only=True):
    decision: str
    effect: RewardEffect


class RewardsTaken(Struct, kw_only=True):
    """What became of each, in the order they were sent."""

    rewards: list[RewardTaken]


class DecisionRecord(Struct, kw_only=True):
    """A decision and its reward, as the log has them."""

    id: str
    task: str
    arm: str
    probability: float
    standard_error: float
    version: int
    seq: int
    """its place in the log"""
    at: float
    """seconds since 1970"""
    eligible: list[str] | None
    reward: float | None
    exposure: float | None


# -- what was learned ------------------------------------------------------------------------------------------


class ArmWhy(Struct, kw_only=True):
    arm: str
    active: bool
    prior_mean: float
    """from the metadata and the other tasks' rewards"""
    prior_sd: float
    pulls: float
    own_mean: float | None
    own_weight: float
    """how much of the mean is the task's own rewards: 0 all prior, 1 all own"""
    prior_worth: float | None
    """how many pulls say as much as the prior; null: the prior is certain"""
    mean: float
    sd: float


class FeatureWhy(Struct, kw_only=True):
    arm: str
    column: str
    adds: float
    """to the arm's prior mean, beside the average task"""


class TaskWhy(Struct, kw_only=True):
    task: str
    weight: float


class Why(Struct, kw_only=True):
    """Why a task gets its arms."""

    task: str
    arms: list[ArmWhy]
    features: list[FeatureWhy]
    """the largest first"""
    tasks: list[TaskWhy]
    """whose rewards weigh most"""
    scale: str
    """of what features add: that of rewards (empty), logit or log"""
    unit: str
    """of pulls: pulls or exposure"""
    version: int


class ArmReport(Struct, kw_only=True):
    arm: str
    active: bool
    decisions: int
    share: float
    """of all decisions"""
    rewards: int
    mean: float | None
    """of its rewards"""


class Estimate(Struct, kw_only=True):
    value: float
    low: float
    high: float
    """a 95 % interval"""


class Gain(Struct, kw_only=True):
    """What decisions earned beyond another way to decide, by inverse-probability weighting."""

    over: str
    """uniform, or the best single arm's name"""
    earned: Estimate
    """mean reward of a decision as decided"""
    other: Estimate
    """what the other way would have earned"""
    gain: Estimate


class Coefficient(Struct, kw_only=True):
    column: str
    """of the metadata; "intercept" for the arm itself"""
    arm: str
    mean: float
    low: float
    high: float
    """a 95 % interval"""


class Variance(Struct, kw_only=True):
    name: str
    value: float
    learned: bool


class Point(Struct, kw_only=True):
    at: float
    """start of the interval, seconds since 1970"""
    decisions: list[int]
    """by arm"""
    rewards: int
    total: float
    """of rewards"""


class Report(Struct, kw_only=True):
    """What was decided and what was learned."""

    name: str
    version: int
    tasks: int
    decisions: int
    rewards: int
    arms: list[ArmReport]
    gains: list[Gain]
    """empty until enough rewards have come"""
    scale: str
    """of the coefficients: that of rewards (empty), logit or log"""
    coefficients: list[Coefficient]
    variances: list[Variance]
    seconds: float
    """the length of a timeline interval"""
    timeline: list[Point]


class TaskNames(Struct, kw_only=True):
    tasks: list[str]
    """up to 50, by name"""


class Bandits(Struct, kw_only=True):
    bandits: list[Bandit]


class Problem(Struct, kw_only=True, omit_defaults=True):
    """An error (RFC 9457): nothing was changed."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    """where in the request"""
    value: str | None = None
    """what was given, shortened"""
    accepted: str | None = None
