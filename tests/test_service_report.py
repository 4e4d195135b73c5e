"""What reports say: gains beside a slow twin, intervals that hold what they promise, sums that amendments move."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metabandit.service import desk as desks
from metabandit.service.engine import Engine
from metabandit.service.messages import DecisionRecord, PolicySettings
from metabandit.service.report import ENOUGH, Z, gains
from metabandit.service.state import State
from metabandit.service.tally import MOST_POINTS, SUMS, Tally
from tests.twins.service import ARMS, Life, ask, bandit, pay, records_of, running, settled, slow_gain


class Watched(Life):
    """Remembers among how many arms each decision was made."""

    def __init__(self, engine: Engine, seed: int) -> None:
        super().__init__(engine, seed=seed)
        self.choices: dict[str, int] = {}

    async def decide(self, n: int = 1) -> None:
        state = await settled(self.engine)
        before, active = set(self.made), set(state.arms.active_names)
        await super().decide(n)
        records = await records_of(self.engine)
        for id in set(self.made) - before:
            named = records[id].eligible
            self.choices[id] = len(active & set(named)) if named else len(active)


@pytest.mark.parametrize("kind", ["floors", "binary", "count"])
def test_gains_are_those_of_a_slow_twin(kind: str, tmp_path: Path) -> None:
    """From exported records: with some arms eligible, others retired and added, amendments and retractions."""

    async def story() -> None:
        policy = PolicySettings(floor=0.05)
        async with running(tmp_path / "s.db", bandit(kind, policy=policy)) as engine:
            life = Watched(engine, seed=6)
            await life.go(110, without=["erase", "settings"])
            report = await engine.report("b")
            records = [r for r in (await records_of(engine)).values() if r.reward is not None]
            assert report.rewards == len(records) > ENOUGH
            assert len({life.choices[record.id] for record in records}) > 1
            uniform, best = report.gains
            same(uniform, *slow_gain(records, [1.0 / (life.choices[r.id] * r.probability) for r in records]))
            same(best, *slow_gain(records, single(records, best.over)))
            others = {arm: slow_gain(records, single(records, arm))[2] for arm in tried(records)}
            assert max(others, key=others.__getitem__) == best.over

    def single(records: list[DecisionRecord], arm: str) -> list[float]:
        return [(r.arm == arm) / r.probability for r in records]

    def tried(records: list[DecisionRecord]) -> set[str]:
        arms = [record.arm for record in records]
        return {arm for arm in arms if arms.count(arm) > 1}

    def same(gain: Any, value: float, half: float, other: float) -> None:
        assert gain.gain.value == pytest.approx(value, abs=1e-9)
        assert gain.other.value == pytest.approx(other, abs=1e-9)
        assert gain.gain.high - gain.gain.low == pytest.approx(2.0 * half, rel=1e-6)

    asyncio.run(asyncio.wait_for(story(), 60))


def tally_of(rng: np.random.Generator, n: int, means: Any) -> Tally:
    """n rewarded decisions with probabilities of all sizes, none of the arms preferred."""
    k, tally = len(means), Tally(len(means))
    chances = 0.1 / k + 0.9 * rng.dirichlet(np.full(k, 0.7), n)
    arms = np.minimum((chances.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), k - 1)
    p, r = chances[np.arange(n), arms], means[arms] + rng.normal(size=n)
    tally.everything, tally.counts = [n, r.sum(), (r * r).sum()], np.bincount(arms, minlength=k).tolist()
    for arm, w in [(None, 1.0 / (k * p)), *((a, (arms == a) / p) for a in range(k))]:
        sums = [(v * r**j).sum() for v in (w, w * w) for j in range(3)]
        if arm is None:
            tally.uniform = sums
        else:
            tally.sums[arm] = sums
    return tally


@pytest.mark.slow
@pytest.mark.parametrize("n", [ENOUGH, 100, 1000])
def test_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    """Decided by chance the gain over a uniform choice is 0, over a single arm the mean less that arm's."""
    rng, means, times = np.random.default_rng(n), np.array([0.0, 0.5, 2.5]), 4000
    held = {"uniform": 0, "best": 0}
    state: Any = State.__new__(State)
    state.arms = type("Arms", (), {"names": ARMS})()
    for _ in range(times):
        state.tally = tally_of(rng, n, means)
        uniform, best = gains(state)
        truth = means.mean() - means[ARMS.index(best.over)]
        held["uniform"] += uniform.gain.low <= 0.0 <= uniform.gain.high
        held["best"] += best.gain.low <= truth <= best.gain.high
    for count in held.values():
        assert 0.935 < count / times < 0.985, held


def test_nothing_is_estimated_from_few_rewards(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            assert (await engine.report("b")).gains == []
            made = await engine.decide("b", [ask("t", f"d{j}") for j in range(ENOUGH)])
            await engine.reward("b", [pay(each.id, 1.0) for each in made[1:]])
            assert (await engine.report("b")).gains == []
            await engine.reward("b", [pay(made[0].id, 1.0)])
            report = await engine.report("b")
            assert report.gains[0].gain.value == pytest.approx(0.0)
            assert all(arm.mean in (None, 1.0) for arm in report.arms)

    asyncio.run(story())


def test_amended_rewards_move_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interval in which the reward first came, whenever it is amended: as if it had been right at once."""
    clock = [1_000_000.0]
    monkeypatch.setattr(desks.time, "time", lambda: clock[0])

    async def lived(folder: Path, corrections: bool) -> Any:
        folder.mkdir()
        async with running(folder / "s.db", bandit()) as engine:
            for j in range(60):
                clock[0] = 1_000_000.0 + 61.0 * j
                await engine.decide("b", [ask("t", f"d{j}"), ask("t", f"e{j}")])
                first = 8.0 if corrections else j % 5
                await engine.reward("b", [pay(f"d{j}", float(first))])
                if corrections:
                    await engine.reward("b", [pay(f"e{j}", 3.0)])
            if corrections:
                for j in range(60):
                    clock[0] += 100.0
                    await engine.reward("b", [pay(f"e{j}", None, True), pay(f"d{j}", 7.0, True)])
                    await engine.reward(
                        "b", [pay(f"e{j}", 2.0), pay(f"e{j}", 5.0, True), pay(f"e{j}", None, True)]
                    )
                    await engine.reward("b", [pay(f"d{j}", float(j % 5), True)])
            tally = (await settled(engine)).tally
            return await engine.report("b"), tally

    async def story() -> None:
        report, tally = await lived(tmp_path / "1", True)
        plain, _ = await lived(tmp_path / "2", False)
        assert report.rewards == 60
        seen = [point for point in report.timeline if any(point.decisions) or point.rewards]
        assert [(p.at, p.rewards, p.total) for p in seen] == [
            (p.at, p.rewards, p.total) for p in plain.timeline
        ]
        assert all(point.rewards == point.total == 0 for point in report.timeline if point not in seen)
        assert sum(point.rewards for point in report.timeline) == 60
        assert sum(point.total for point in report.timeline) == sum(j % 5 for j in range(60))
        assert sum(sum(point.decisions) for point in report.timeline) == report.decisions == 120
        assert tally.everything == [60.0, sum(j % 5 for j in range(60)), sum((j % 5) ** 2 for j in range(60))]
        assert sum(arm.mean * arm.rewards for arm in report.arms if arm.mean is not None) == pytest.approx(
            120.0
        )

    asyncio.run(asyncio.wait_for(story(), 60))


def test_the_sums_of_a_tally_are_exact_where_they_can_be() -> None:
    """With probabilities and rewards that add without rounding, taking everything back leaves nothing."""
    tally, rng = Tally(3), np.random.default_rng(0)
    data = [
        (int(a), 0.5 ** int(e), 2, float(r), float(t))
        for a, e, r, t in rng.integers(0, [3, 5, 9, 90_000], (500, 4))
    ]
    for row in data:
        tally.rewarded(*row, 1)
    for row in data:
        tally.rewarded(*row, -1)
    assert tally.sums == [[0.0] * SUMS] * 3
    assert (tally.counts, tally.totals, tally.everything, tally.uniform) == (
        [0] * 3,
        [0.0] * 3,
        [0.0] * 3,
        [0.0] * SUMS,
    )
    assert not np.array(list(tally.points.values())).any()


def test_a_timeline_never_grows_without_bound() -> None:
    """Intervals become twice as long, and what they hold stays."""
    tally, rng = Tally(2), np.random.default_rng(1)
    times = np.concatenate([rng.uniform(0, 1e5, 500), rng.uniform(0, 1e9, 500), [-1e9, 4e9, 0.0]])
    for j, at in enumerate(times.tolist()):
        tally.decided(j % 2, at)
        tally.rewarded(j % 2, 0.5, 2, 1.0, at, 1)
        assert len(tally.points) <= MOST_POINTS
    total = np.array(list(tally.points.values())).sum(axis=0)
    assert total.tolist() == [math.ceil(len(times) / 2), len(times) // 2, len(times), float(len(times))]
    assert all(int(at // tally.width) in tally.points for at in times.tolist())


def test_a_report_lists_what_the_model_learned(tmp_path: Path) -> None:
    """Coefficients by column and arm with 95 % intervals of the belief; variances and whether they are learned."""

    async def story() -> None:
        async with running(
            tmp_path / "s.db", bandit("known"), bandit("learned", "l"), bandit("binary-learned", "p")
        ) as e:
            for name in ("b", "l", "p"):
                life = Life(e, name, seed=2)
                await life.go(40, without=["erase", "settings"])
                state, report = await settled(e, name), await e.report(name)
                mean, cov = state.belief.coef
                half = Z * np.sqrt(np.diagonal(cov))
                labels = state.tasks.features.coefficient_names(state.arms.names)
                assert len(report.coefficients) == len(mean) == len(labels)
                for c, label, m, h in zip(report.coefficients, labels, mean, half, strict=True):
                    assert c.arm in label
                    assert c.column in label
                    assert (c.mean, c.low, c.high) == pytest.approx((m, m - h, m + h))
                assert {v.learned for v in report.variances} == {name != "b"}
                assert report.scale == ("logit" if name == "p" else "")

    asyncio.run(asyncio.wait_for(story(), 60))
