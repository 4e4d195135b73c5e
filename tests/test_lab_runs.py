"""Runs that are kept: reused, never confused, resumed after whatever stopped them; and the workers that make them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metabandit as mb
from metabandit import lab
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.lab import simulation
from metabandit.lab.agents import AGENTS, Agent, name_of
from metabandit.lab.runs import Run, Runs
from metabandit.lab.simulation import Setting

ENV = lab.GaussianTasks(n_tasks=8, n_arms=3, n_features=5)
ROOT = Path(__file__).resolve().parent.parent


def simulate(keep: Path | None, **changed: Any) -> lab.Result:
    given: dict[str, Any] = {"environment": ENV, "policies": ["mtts", "osfa"], "horizon": 5, "seeds": 4}
    return lab.simulate(**(given | changed), keep=keep)


def curves(result: lab.Result) -> dict[str, list[Any]]:
    return {p.name: [(seed, p.runs[seed].curves.tolist()) for seed in p.seeds] for p in result.parts}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], int]]:
    """Which policies played which seed."""
    calls: list[tuple[tuple[str, ...], int]] = []
    whole = simulation.play_world

    def counted(setting: Setting, policies: Any, seed: int) -> list[Run]:
        calls.append((tuple(map(name_of, policies)), seed))
        return whole(setting, policies, seed)

    monkeypatch.setattr(simulation, "play_world", counted)
    return calls


# -- reuse ---------------------------------------------------------------------------------------------------


def test_kept_runs_are_not_played_again(tmp_path: Path, played: list[Any]) -> None:
    first = simulate(tmp_path / "kept")
    assert played == [(("mtts", "osfa"), seed) for seed in range(4)]
    played.clear()
    again = simulate(tmp_path / "kept")
    assert not played
    assert curves(again) == curves(first) == curves(simulate(None))
    assert again.rows() == first.rows()  # the seconds too are those of then


def test_only_what_is_missing_is_played(tmp_path: Path, played: list[Any]) -> None:
    simulate(tmp_path / "kept", seeds=[1, 3])
    played.clear()
    more = simulate(tmp_path / "kept", seeds=[3, 4], policies=["mtts", "meta-ts"])
    assert played == [(("meta-ts",), 3), (("mtts", "meta-ts"), 4)]
    assert more.part("mtts").seeds == [3, 4]


class Kept:
    """A policy of one's own that says all that it depends on."""

    def __init__(self, arm: int) -> None:
        self.arm = arm

    def decide(self, task: int) -> int:
        return self.arm

    def learn(self, task: int, arm: int, reward: float) -> None:
        pass

    def spec(self) -> dict[str, Any]:
        return {"arm": self.arm}


class Likewise(Kept):
    """Another policy that says the same."""

    def decide(self, task: int) -> int:
        return (self.arm + 1) % 3


class Unkept:
    name = "unkept"
    decide, learn = Kept.decide, Kept.learn
    arm = 0


@dataclass(frozen=True)
class Warped(lab.GaussianTasks):
    """An environment of one's own with the fields of another."""


def test_policies_of_ones_own(tmp_path: Path, played: list[Any]) -> None:
    for _ in range(2):
        simulate(tmp_path / "kept", policies=[Kept(1), Unkept()], seeds=1)
    assert played == [(("Kept", "unkept"), 0), (("unkept",), 0)]


SETTING = Setting(ENV, (AGENTS["mtts"],), "concurrent", 5)
DIFFERENT: list[tuple[Setting, Any]] = [
    (SETTING, AGENTS["mtts"]),
    (replace(SETTING, horizon=6), AGENTS["mtts"]),
    *((replace(SETTING, order=order), AGENTS["mtts"]) for order in ("sequential", "random", "arriving")),
    *(
        (replace(SETTING, environment=replace(ENV, **{name: value})), AGENTS["mtts"])
        for name, value in [
            ("n_tasks", 9), ("n_arms", 4), ("n_features", 6), ("task_var", 0.5), ("noise_var", 2.0),
            ("correlation", 0.1), ("warp", "cos"), ("linear_weight", 0.5),
        ]
    ),
    (replace(SETTING, environment=Warped(n_tasks=8, n_arms=3, n_features=5)), AGENTS["mtts"]),
    (replace(SETTING, environment=lab.BernoulliTasks(n_tasks=8, n_arms=3, n_features=5)), AGENTS["mtts"]),
    *((SETTING, AGENTS[name]) for name in AGENTS if name != "mtts"),
    (SETTING, Agent("other")),
    (SETTING, Agent("mtts", refresh="always")),
    (SETTING, Agent("mtts", refresh=("every", 2))),
    (SETTING, Agent("mtts", refresh=mb.Refresh("every", 2, per_task=True))),
    (SETTING, Agent("mtts", refresh={"sequential": "task"})),
    (SETTING, Agent("mtts", policy=mb.Thompson(0.5))),
    (SETTING, Agent("mtts", policy=mb.Floored(mb.Thompson(0.5), 0.1))),
    (SETTING, Agent("mtts", policy=mb.Greedy())),
    (SETTING, Agent("mtts", changes={"task_cov": None})),
    (SETTING, Agent("mtts", changes={"task_cov": "full"})),
    (SETTING, Agent("mtts", changes={"task_cov": np.array([0.1, 0.2, 0.3])})),
    (SETTING, Agent("mtts", changes={"task_cov": np.array([0.1, 0.2, 0.4])})),
    (SETTING, Agent("mtts", changes={"task_cov": mb.CompoundSymmetric(0.25, 0.1)})),
    (SETTING, Agent("mtts", changes={"task_cov": mb.CompoundSymmetric(0.25, 0.2)})),
    (SETTING, Agent("mtts", model=mb.LinearMixedModel(0.0, 1.0, 1.0, 1.0))),
    (SETTING, Agent("mtts", model=mb.LinearMixedModel(0.0, 1.0, 1.0, 2.0))),
    (SETTING, Kept(1)),
    (SETTING, Kept(2)),
    (SETTING, Likewise(1)),
]  # fmt: skip


def test_nothing_is_taken_for_something_else() -> None:
    keys = [setting.key(policy) for setting, policy in DIFFERENT]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    again = Setting(replace(ENV), (), "concurrent", 5, label="whatever it is called")
    assert again.key(Agent("mtts")) == keys[0]  # the same, made anew


def test_what_cannot_be_told_apart_is_not_kept() -> None:
    assert SETTING.key(Unkept()) is None
    assert replace(SETTING, order=lambda n, t, rng: np.arange(n)).key(AGENTS["mtts"]) is None


# -- what stops a run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3])
def test_ctrl_c_keeps_what_is_finished(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, done = simulation.play_world, []

    def stopped(setting: Setting, policies: Any, seed: int) -> list[Run]:
        if len(done) == n:
            raise KeyboardInterrupt
        done.append(seed)
        return whole(setting, policies, seed)

    monkeypatch.setattr(simulation, "play_world", stopped)
    with pytest.raises(KeyboardInterrupt):
        simulate(tmp_path / "kept")
    assert len(done) == n
    with pytest.raises(KeyboardInterrupt):  # nothing of what is finished is played again
        simulate(tmp_path / "kept")
    monkeypatch.setattr(simulation, "play_world", whole)
    assert curves(simulate(tmp_path / "kept")) == curves(simulate(None))


SLOW = """
import os, sys, time
from pathlib import Path
from metabandit import lab

class Slow:
    def __init__(self, folder): self.folder = str(folder)
    def start(self, problem): (Path(self.folder) / f"{os.getpid()}.pid").touch()
    def decide(self, task):
        time.sleep(0.01)
        return task % 3
    def learn(self, task, arm, reward): pass
    def spec(self): return {"slow": 1}

def main(folder, jobs):
    env = lab.GaussianTasks(n_tasks=8, n_arms=3, n_features=5)
    return lab.simulate(env, [Slow(folder), "mtts"], horizon=5, seeds=60, jobs=jobs, keep=Path(folder) / "kept")

if __name__ == "__main__":
    main(sys.argv[1], 2)
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def rows_of(path: Path) -> int:
    """How many runs a store holds, while others write to it."""
    with closing(sqlite3.connect(path, timeout=10.0)) as connection:
        try:
            return int(connection.execute("select count(*) from runs").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def until(what: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who is alive")
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_a_run_that_is_stopped_from_outside(
    blow: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers in the middle of their units: they go, what is finished is kept, and the next run goes on."""
    script, kept = tmp_path / "slow_policy.py", tmp_path / "kept"
    script.write_text(SLOW)
    command = [sys.executable, str(script), str(tmp_path)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert until(lambda: kept.exists() and rows_of(kept) >= 4, 60.0)
        os.kill(run.pid, blow)
        _, errors = run.communicate(timeout=20.0)
    finally:
        run.kill()
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert len(workers) == 2
    assert run.returncode == -blow
    assert until(lambda: not any(map(alive, workers)), 5.0)
    assert errors.count("Traceback") == (blow == signal.SIGINT)
    finished = rows_of(kept)
    assert 4 <= finished < 120
    monkeypatch.syspath_prepend(tmp_path)
    import slow_policy  # type: ignore[import-not-found]

    monkeypatch.setattr(slow_policy.time, "sleep", lambda seconds: None)
    resumed = slow_policy.main(tmp_path, 1)
    env, policies = resumed.parts[0].setting.environment, resumed.parts[0].setting.policies
    assert curves(resumed) == curves(lab.simulate(env, policies, horizon=5, seeds=60))
    del sys.modules["slow_policy"]


def test_scripts_that_cannot_have_workers_are_told(tmp_path: Path) -> None:
    """Without the guard every worker would start the script again; and what is typed in cannot be imported."""
    call = "lab.simulate(lab.GaussianTasks(8, 3, 5), [{}], horizon=2, seeds=4, jobs=2)\n"
    (tmp_path / "unguarded.py").write_text("from metabandit import lab\n" + call.format("'mtts'"))
    own = "class Own:\n    def decide(self, task): return 0\n    def learn(self, *told): pass\n"
    typed = "from metabandit import lab\n" + own + call.format("Own()")
    for arguments, text in ((["unguarded.py"], None), (["-"], typed)):
        command = [sys.executable, *arguments]
        made = subprocess.run(
            command, cwd=tmp_path, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert made.returncode == 1
        last = made.stderr.strip().splitlines()[-1]
        assert last.startswith("metabandit.errors.InvalidInput: jobs: got 2; accepted: 1, as a worker ended")


# -- the file ------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_ours_is_named(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(DamagedFile, match=f"^{kept}: .*; move it away to start again$"):
        simulate(kept)
    kept.unlink()
    with closing(sqlite3.connect(kept)) as other, other:
        other.execute("create table runs (distance real, shoes text)")
    with pytest.raises(DamagedFile, match="a table of runs that is not ours"):
        simulate(kept)


def test_a_number_that_changed_on_the_disk_is_noticed(tmp_path: Path) -> None:
    """Wherever one byte is flipped: the same results, or an error that names the file; never others."""
    kept, rng = tmp_path / "kept", np.random.default_rng(3)
    expected = curves(simulate(kept))
    sound, noticed = kept.read_bytes(), 0
    assert not (tmp_path / "kept-wal").exists()  # all of it is in the one file
    places = [*range(100), *rng.integers(0, len(sound), 200)]
    for place in places:
        damaged = bytearray(sound)
        damaged[place] ^= 1 << int(rng.integers(8))
        kept.write_bytes(bytes(damaged))
        got, error = outcome(kept)
        assert got == expected or str(kept) in error, place
        noticed += got is None
        for rest in tmp_path.glob("kept-*"):
            rest.unlink()
    assert noticed > 20


def outcome(kept: Path, **changed: Any) -> tuple[Any, str]:
    """What comes of it: curves, or the message of an error that was meant."""
    try:
        return curves(simulate(kept, **changed)), ""
    except (DamagedFile, InvalidInput) as error:
        return None, str(error)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_short(share: float, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    expected = curves(simulate(kept, seeds=40))
    kept.write_bytes(kept.read_bytes()[: int(share * kept.stat().st_size)])
    got, error = outcome(kept, seeds=40)
    assert got == expected or str(kept) in error


def test_two_who_write_to_one_file(tmp_path: Path) -> None:
    with Runs(tmp_path / "kept") as first, Runs(tmp_path / "kept") as second:
        for seed in range(5):
            first.put("a", seed, Run(np.full((4, 2), seed), 0.5))
            second.put("a", seed, Run(np.full((4, 2), seed), 0.25))
        found = first.get("a", [1, 2, 9])
        assert sorted(found) == [1, 2]
        assert (found[2].curves.tolist(), found[2].seconds) == ([[2.0, 2.0]] * 4, 0.25)
        assert second.get("b", [1]) == {}
