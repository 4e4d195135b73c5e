"""What has come by the time the desk looks is decided at once; nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from metabandit.errors import InvalidInput
from metabandit.service import desk as desks
from metabandit.service.audit import audit
from metabandit.service.engine import Engine
from metabandit.service.jobs import Decide, Wanted, together
from metabandit.service.messages import DecisionRequest
from metabandit.service.state import State
from metabandit.service.stores.base import Row
from tests.twins.service import ARMS, BANDITS, ask, bandit, pay, running


async def fed(engine: Engine) -> None:
    """Tasks with metadata and rewards."""
    tasks = [ask(f"t{j}", f"f{j}", {"age": 20.0 + j, "country": "NO" if j % 2 else "PT"}) for j in range(9)]
    made = await engine.decide("b", tasks)
    await engine.reward("b", [pay(each.id, float(j % 2)) for j, each in enumerate(made)])


def questions() -> list[DecisionRequest]:
    """Some name the arms that are eligible, most do not."""
    return [ask(f"t{j % 9}", f"q{j}", eligible=ARMS[:2] if j % 5 == 0 else None) for j in range(60)]


async def one_by_one(engine: Engine, asked: Sequence[DecisionRequest]) -> list[Any]:
    return [(await engine.decide("b", [each]))[0] for each in asked]


async def all_at_once(engine: Engine, asked: Sequence[DecisionRequest]) -> list[Any]:
    return [made[0] for made in await asyncio.gather(*(engine.decide("b", [each]) for each in asked))]


@pytest.mark.parametrize("kind", BANDITS)
def test_requests_in_one_portion_are_decided_as_one_by_one(kind: str, tmp_path: Path) -> None:
    """To the last bit."""

    async def story() -> None:
        answers = []
        for j, decide in enumerate((one_by_one, all_at_once)):
            async with running(tmp_path / f"{j}.db", bandit(kind)) as engine:
                await fed(engine)
                answers.append([(m.id, m.arm, m.probability) for m in await decide(engine, questions())])
                assert (await audit(engine.store)).clean
        assert answers[0] == answers[1]

    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_request_that_cannot_be_decided_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = desks.decided

    def decided(state: State, wanted: Wanted, at: float) -> list[Row]:
        if "q7" in wanted.ids:
            raise InvalidInput("law", "<planted>", "another")
        return real(state, wanted, at)

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await fed(engine)
            monkeypatch.setattr(desks, "decided", decided)
            asked = [engine.decide("b", [each]) for each in questions()]
            made = await asyncio.gather(*asked, return_exceptions=True)
            assert [j for j, each in enumerate(made) if isinstance(each, BaseException)] == [7]
            assert str(made[7]).startswith("law: ")
            monkeypatch.setattr(desks, "decided", real)
            again = await all_at_once(engine, questions())
            kept = [each for j, each in enumerate(made) if j != 7]
            assert [[each] for j, each in enumerate(again) if j != 7] == kept

    asyncio.run(asyncio.wait_for(story(), 60))


def test_an_id_that_comes_again_is_in_another_group() -> None:
    async def story() -> None:
        jobs = [Decide(tasks=[ask("t", id) for id in ids]) for ids in ("ab", "c", "da", "", "e", "a")]
        assert [[job.ids for job in group] for group in together(jobs)] == [
            [["a", "b"], ["c"]],
            [["d", "a"], [], ["e"]],
            [["a"]],
        ]
        assert list(together([])) == [[]]

    asyncio.run(story())


def test_the_same_id_many_times_in_one_portion_is_decided_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await fed(engine)
            made = await all_at_once(engine, [each for each in questions() for _ in range(3)])
            assert len({msgspec.json.encode(each) for each in made}) == 60
            assert engine.counters.decisions == 9 + 60

    asyncio.run(asyncio.wait_for(story(), 60))
