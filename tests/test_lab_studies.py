"""Studies, each of them whole but small: what they leave in their folder, what they refuse, what figures show."""

from __future__ import annotations

import csv
import importlib.util
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metabandit import lab
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.lab import figures, peers, studies, writing
from metabandit.lab.report import report
from metabandit.lab.result import Part, Result
from metabandit.lab.runs import Run
from metabandit.lab.simulation import Setting
from metabandit.lab.study import Case, Outcome, Study, run_study

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")
parquet = pytest.importorskip("pyarrow.parquet")

FILES = ["curves.parquet", "figure.pdf", "figure.png", "report.md", "summary.csv"]
COLUMNS = [
    "study", "variant", "reward", "order", "setting", "policy", "seeds", "regret", "regret_se", "multitask_regret",
    "multitask_regret_se", "realised_regret", "realised_regret_se", "seconds", "best_arm_share",
]  # fmt: skip
BOTH = [name for name in studies.NAMES if len(studies.study(name).variants) == 2]


def small(name: str) -> Study:
    """The study with its policies and orders, but few tasks and interactions; of many cases some."""
    found = studies.study(name)
    cases = found.cases[:: 1 if len(found.cases) < 15 else 5]
    return replace(found, cases=tuple(map(small_case, cases)), horizon=3, seeds=2)


def small_case(case: Case) -> Case:
    env: Any = case.environment
    if "n_tasks" in {field.name for field in fields(env)}:
        env = replace(env, n_tasks=6)
    installed = all(importlib.util.find_spec(module) for module in peers.MODULES.values())
    policies = [policy for policy in case.policies if installed or policy not in peers.PEERS]
    return replace(case, environment=env, policies=tuple(policies), horizon=min(case.horizon, 4))


@pytest.mark.parametrize("name", studies.NAMES)
def test_every_study_leaves_its_files(name: str, tmp_path: Path) -> None:
    found = small(name)
    for variant in found.variants:
        outcome = run_study(found, tmp_path / variant, variant=variant, progress=False)
        assert sorted(path.name for path in outcome.folder.iterdir()) == FILES
        settings = found.settings(variant)
        with (outcome.folder / "summary.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == COLUMNS
        assert len(rows) == sum(len(setting.policies) for setting in settings)
        assert {(row["study"], row["variant"], row["seeds"]) for row in rows} == {(name, variant, "2")}
        table = parquet.read_table(outcome.folder / "curves.parquet")
        assert set(table["seed"].to_pylist()) == {0, 1}
        assert np.isfinite(table["regret"].to_numpy()).all()
        assert (outcome.folder / "figure.png").read_bytes()[:4] == b"\x89PNG"
        assert (outcome.folder / "figure.pdf").read_bytes()[:4] == b"%PDF"
        said = (outcome.folder / "report.md").read_text()
        assert f"`metabandit study run {name} --variant {variant} --seeds 2`" in said
        if variant == "stated":
            assert all(f"{one} / {other}" in said for one, other in found.compare)


def test_the_studies_of_the_paper_have_both_variants() -> None:
    assert [name for name in studies.NAMES if name.startswith("figure-")] == BOTH


# -- refusals ------------------------------------------------------------------------------------------------

TINY = Study(
    name="tiny",
    title="Tiny",
    about="Is it done?",
    cases=(Case("it", lab.GaussianTasks(n_tasks=4, n_arms=2, n_features=3)),),
    policies=("mtts", "oracle-ts", "osfa"),
    horizon=4,
    seeds=2,
)


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def place(tmp_path: Path, kind: str) -> tuple[Path, type[Exception], str]:
    """A folder that cannot be used, the error, and words of it."""
    out = tmp_path / "out"
    if kind == "a file":
        out.touch()
    elif kind == "below a file":
        (tmp_path / "file").touch()
        out = tmp_path / "file" / "out"
    elif kind == "the study's folder is a file":
        out.mkdir()
        (out / "tiny").touch()
    elif kind == "a folder in a file's place":
        (out / "tiny" / "report.md").mkdir(parents=True)
        return out, InvalidInput, r"^out: got '.*; accepted: a place for a file"
    elif kind == "a store that is a folder":
        (out / "runs.sqlite").mkdir(parents=True)
    elif kind == "a store that is none":
        out.mkdir()
        (out / "runs.sqlite").write_text("nothing of ours " * 40)
        return out, DamagedFile, r"runs\.sqlite: .*; move it away"
    elif kind == "a long name":
        out = out / ("x" * 300)
    return out, InvalidInput, r"^out: got [^\n]*; accepted: a (folder|place) that can be written \([^\n]*\)$"


@pytest.mark.parametrize(
    "kind",
    [
        "a file", "below a file", "the study's folder is a file", "a folder in a file's place",
        "a store that is a folder", "a store that is none", "a long name",
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_and_nothing_left_behind(kind: str, tmp_path: Path) -> None:
    out, error, words = place(tmp_path, kind)
    before = left(tmp_path)
    with pytest.raises(error, match=words):
        run_study(TINY, out)
    assert left(tmp_path) == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seeds": 0}, "^seeds: got 0; accepted: "), ({"seeds": 10**30}, "^seeds: got 1000"),
        ({"jobs": 0}, "^jobs: got 0; accepted: "), ({"variant": "published"}, "^variant: got 'published'"),
        ({"out": ""}, "^out: got ''; accepted: a folder$"),
    ],
)  # fmt: skip
def test_bad_arguments(
    given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=words):
        run_study(TINY, **({"out": "out"} | given))
    assert not left(tmp_path)


def test_a_full_disk_is_said_in_one_line_and_nothing_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(TINY, tmp_path)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "tiny").iterdir()}

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "replace", full)
    with pytest.raises(InvalidInput, match=r"^out: got '.*; .*No space left on device"):
        run_study(TINY, tmp_path, seeds=3)
    assert {path.name: path.read_bytes() for path in (tmp_path / "tiny").iterdir()} == whole


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals are sent as they are on Unix")
def test_ctrl_c_stops_the_command_and_the_next_one_goes_on(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "metabandit",
        "study",
        "run",
        "figure-2-gaussian",
        "--jobs",
        "2",
        "--seeds",
    ]
    store, files = tmp_path / "results" / "runs.sqlite", tmp_path / "results" / "figure-2-gaussian"

    def kept() -> int:
        if not store.exists():
            return 0
        with closing(sqlite3.connect(store, timeout=10.0)) as connection:
            return int(connection.execute("select count(*) from runs").fetchone()[0])

    run = subprocess.Popen([*command, "1000"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 120.0
        while kept() < 14 and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=30.0)
    finally:
        run.kill()
    assert run.returncode == 130
    assert errors.strip().splitlines()[-1].startswith("stopped; what is finished is kept")
    assert "Traceback" not in errors
    assert not list(files.iterdir())
    before = kept()
    assert 14 <= before < 42_000
    done = subprocess.run([*command, "1"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "figure and report" in done.stdout
    assert sorted(path.name for path in files.iterdir()) == FILES
    assert kept() - before < 42  # of six worlds with seven policies some were there


# -- figures and words ---------------------------------------------------------------------------------------


def outcome_of(levels: dict[str, float], folder: Path, **changed: Any) -> Outcome:
    """Policies with a constant regret an interaction, on three seeds."""
    study = replace(TINY, orders=("concurrent",), policies=(), **changed)
    setting = Setting(TINY.cases[0].environment, (), "concurrent", 4, "it")
    parts = [Part("it", "concurrent", name, "real", name, setting) for name in levels]
    for part, level in zip(parts, levels.values(), strict=True):
        for seed in range(3):
            curves = np.array(
                [np.full(40, 4.0 * level * (1 + 0.01 * seed))] * 2 + [np.full(40, 1.0), np.full(40, 4.0)]
            )
            part.runs[seed] = Run(curves, 0.25 * level)
    return Outcome(study, "stated", Result(parts), folder)


def panel_of(outcome: Outcome) -> Any:
    return figures.study_figure(outcome).axes[0]


def test_a_policy_may_leave_a_panel_at_the_top_but_the_best_are_in_it(tmp_path: Path) -> None:
    low, high = panel_of(outcome_of({"mtts": 1.0, "meta-ts": 2.0, "osfa": 50.0}, tmp_path)).get_ylim()
    assert low < 1.0 < 2.0 < high < 50.0
    low, high = panel_of(outcome_of({"mtts": 1.0, "meta-ts": 2.0, "osfa": 0.5}, tmp_path)).get_ylim()
    assert low < 0.5 < 2.0 < high


def test_what_policies_cost_is_written_beside_their_bars(tmp_path: Path) -> None:
    levels = {"mtts": 1.0, "mtts-round": 2.0}
    outcome = outcome_of(levels, tmp_path, shape="bars", cost=True)
    panel = panel_of(outcome)
    assert [text.get_text().strip() for text in panel.texts] == ["0.25 s", "0.5 s"]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["MTTS", "MTTS-round"]
    assert "Seconds a world, concurrent, it: mtts 0.25, mtts-round 0.5." in report(outcome)
    assert not panel_of(outcome_of(levels, tmp_path, shape="bars")).texts


def sweep(folder: Path) -> Outcome:
    """A regret that grows with the square root of `at`, and one that grows with `at`."""
    cases = tuple(Case(f"n={n}", TINY.cases[0].environment, row="tasks", at=n) for n in (1, 4, 16))
    study = replace(TINY, cases=cases, shape="sweep", slopes=True, bounds={("tasks", "root"): "1/2"})
    parts = []
    for case in cases:
        setting = Setting(case.environment, (), "sequential", 4, case.label)
        for name, power in (("root", 0.5), ("linear", 1.0)):
            part = Part(case.label, "sequential", name, "real", name, setting)
            for seed in range(3):
                regret = case.at**power * (1 + 0.01 * seed)
                part.runs[seed] = Run(np.array([[regret], [regret], [1.0], [1.0]]), 0.1)
            parts.append(part)
    return Outcome(study, "stated", Result(parts), folder)


def test_slopes_stand_beside_their_bounds_and_in_words(tmp_path: Path) -> None:
    said = report(sweep(tmp_path))
    assert "| tasks | sequential | root | 0.50 ± 0.00 | 1/2 |" in said
    assert "| tasks | sequential | linear | 1.00 ± 0.00 |  |" in said
    assert "Fitted exponents of the regret in tasks: root 0.50 ± 0.00, linear 1.00 ± 0.00." in said
