"""save and load: one safe file, written atomically, that continues bit for bit."""

from __future__ import annotations

import copy
import json
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import metabandit as mb
from metabandit import features
from metabandit.bandit import saving

ARMS = ["a", "b", "c"]
FULL = np.array([[1.0, 0.4, 0.1], [0.4, 1.0, 0.2], [0.1, 0.2, 0.8]])

MODELS = {
    "known": mb.LinearMixedModel(0.1, 1.0, 0.5, 1.0),
    "learned": mb.LinearMixedModel(),
    "full": mb.LinearMixedModel(0.0, 1.0, FULL, 1.0),
    "learned full": mb.LinearMixedModel(task_cov="full"),
    "unknown noise": mb.LinearMixedModel(0.0, 1.0, 0.5, mb.InverseGamma(3.0, 2.0)),
    "compound": mb.LinearMixedModel(0.0, 1.0, mb.CompoundSymmetric(1.0, 0.3), 1.0),
    "particles": mb.LinearMixedModel(learning="full"),
    "beta": mb.BetaLogisticModel(0.0, 1.0, 0.1),
    "beta learned": mb.BetaLogisticModel(),
    "gamma learned": mb.GammaLogModel(),
    "gamma": mb.GammaLogModel(0.0, 1.0, 0.3),
    "process": mb.GaussianProcessModel(mb.SquaredExponential(1.0), 0.5, 1.0),
}
BINARY = {"beta", "beta learned", "gamma", "gamma learned"}


def play(bandit: mb.MultiTaskBandit, start: int, stop: int, binary: bool) -> list[object]:
    """Decisions and rewards number start ... stop - 1 of one fixed story, with new tasks on the way."""
    out: list[object] = []
    for j in range(start, stop):
        rng = np.random.default_rng(j)
        d = bandit.decide(f"t{int(rng.integers(8))}", {"x": float(j % 5)} if j % 3 else None)
        bandit.learn(d, float(rng.random() < 0.6) if binary else float(rng.standard_normal()))
        out.append(d)
    return out


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("refresh", [None, "task", ("every", 4)])
def test_a_loaded_bandit_continues_bit_for_bit(name: str, refresh: object, tmp_path: Path) -> None:
    bandit = mb.MultiTaskBandit(ARMS, metadata=["x"], model=MODELS[name], refresh=refresh, seed=11)
    steps = 20 if name in ("particles", "beta learned", "process", "learned full") else 40
    play(bandit, 0, steps, name in BINARY)
    bandit.save(tmp_path / "bandit.mb")
    loaded = mb.load(tmp_path / "bandit.mb")
    assert play(bandit, steps, steps + 12, name in BINARY) == play(loaded, steps, steps + 12, name in BINARY)
    bandit.save(tmp_path / "one.mb")
    loaded.save(tmp_path / "two.mb")
    assert (tmp_path / "one.mb").read_bytes() == (tmp_path / "two.mb").read_bytes()


@pytest.mark.parametrize("refresh", ["round", ("information", 0.2)])
@pytest.mark.parametrize("per_task", [False, True])
def test_draws_in_force_are_kept_under_every_rule(refresh: object, per_task: bool, tmp_path: Path) -> None:
    """Every task comes in every round, so that a forgotten round keeps a draw that is due for renewal."""
    rule = replace(mb.Refresh.of(refresh), per_task=per_task)
    bandit = mb.MultiTaskBandit(ARMS, model=MODELS["known"], refresh=rule, seed=11)

    def rounds(one: mb.MultiTaskBandit, start: int, stop: int) -> list[object]:
        made = []
        for j in range(start, stop):
            made.append(one.decide(j % 6))
            one.learn(made[-1], float(np.random.default_rng(j).standard_normal()))
        return made

    rounds(bandit, 0, 31)
    bandit.save(tmp_path / "bandit.mb")
    assert rounds(mb.load(tmp_path / "bandit.mb"), 31, 60) == rounds(bandit, 31, 60)


def test_everything_else_comes_back_too(tmp_path: Path) -> None:
    policy = mb.Floored(mb.Thompson(scale=0.5), 0.05)
    bandit = mb.MultiTaskBandit(
        ARMS, metadata={"country": "category"}, policy=policy, refresh=("information", 0.2), seed=5
    )
    bandit.decide("u", {"country": "NO"}, id="mine")
    bandit.decide(17, {"country": "SE"})
    bandit.learn("mine", 2.0)
    bandit.add_arm("d")
    bandit.retire_arm("a")
    bandit.save(tmp_path / "b.mb")
    loaded = mb.load(tmp_path / "b.mb")
    assert loaded.tasks == ["u", 17]
    assert loaded.active_arms == ["b", "c", "d"]
    assert loaded.policy.spec() == policy.spec()
    assert loaded.refresh == bandit.refresh
    assert loaded.features.columns == bandit.features.columns
    assert loaded.decide("u", id="mine") == bandit.decide("u", id="mine")
    with pytest.raises(mb.ConflictingReward):
        loaded.learn("mine", 3.0)
    version = loaded.belief.version
    loaded.decide("u", {"country": "NO"})
    assert loaded.belief.version == version  # it still knows that this is no change


@pytest.mark.parametrize("kind", [mb.LinearMixedModel, mb.BetaLogisticModel])
def test_a_bandit_that_grew_beyond_its_models_vectors_can_be_loaded(kind: type, tmp_path: Path) -> None:
    model = kind(np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]), 0.5)
    bandit = mb.MultiTaskBandit(ARMS, model=model, seed=5)
    bandit.learn(bandit.decide("u"), 1.0)
    bandit.add_arm("d")
    bandit.learn(bandit.decide("v", eligible=["d"]), 0.0)
    bandit.save(tmp_path / "b.mb")
    loaded = mb.load(tmp_path / "b.mb")
    assert [loaded.decide(task) for task in "uvw"] == [bandit.decide(task) for task in "uvw"]


def test_a_decision_can_be_replayed_from_the_file(tmp_path: Path) -> None:
    bandit = mb.MultiTaskBandit(ARMS, metadata=["x"], seed=3)
    play(bandit, 0, 30, False)
    bandit.save(tmp_path / "b.mb")
    first = bandit.decide("t1", id="request")
    play(bandit, 30, 60, False)
    again = mb.load(tmp_path / "b.mb").decide("t1", id="request")
    assert again == first  # arm, probability, version: to the last bit


def test_a_transformer_has_to_be_given_again(tmp_path: Path) -> None:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(np.arange(10.0).reshape(5, 2))
    bandit = mb.MultiTaskBandit(ARMS, metadata=scaler, seed=3)
    bandit.decide("u", np.array([1.0, 2.0]))
    bandit.save(tmp_path / "b.mb")
    with pytest.raises(mb.InvalidInput, match="metadata"):
        mb.load(tmp_path / "b.mb")
    assert mb.load(tmp_path / "b.mb", metadata=scaler).decide("u") == bandit.decide("u")


SAVED = {"age": "number", "country": "category", "plan": ["free", "paid"]}
SMOOTH = mb.SquaredExponential(1.0)


@pytest.mark.parametrize(
    ("saved", "others"),
    [
        (SAVED, [["age"], {"age": "number"}, SAVED | {"plan": ["free"]}, SAVED | {"age": "category"}, "age"]),
        (
            ["age"],
            [["wage"], ["age", "wage"], {"age": "category"}, features.Columns(["age"], intercept=False)],
        ),
        ("age + C(country)", ["age", "age + country", ["age"]]),
        (features.Arrays(2), [features.Arrays(3), features.Arrays(2, intercept=False), ["x0", "x1"]]),
        (features.PerArm(["x"]), [features.PerArm(["y"]), features.PerArm(["x"], intercepts=False)]),
        (features.RandomFourier(SMOOTH, 4, ["x"]), [features.RandomFourier(SMOOTH, 4, ["x"], seed=1), ["x"]]),
        (features.InducingPoints(SMOOTH, [[0.0]]), [features.InducingPoints(SMOOTH, [[1.0]])]),
        (
            features.Stacked([["age"], features.Arrays(["z"])]),
            [features.Stacked([["age"]]), features.Stacked([["age"], features.Arrays(["y"])])],
        ),
    ],
    ids=["dict", "list", "formula", "arrays", "per arm", "fourier", "inducing", "stacked"],
)
def test_metadata_that_do_not_describe_the_saved_columns_are_refused(
    saved: object, others: list[object], tmp_path: Path
) -> None:
    bandit = mb.MultiTaskBandit(ARMS, metadata=copy.deepcopy(saved), seed=3)
    bandit.decide("u")
    bandit.save(tmp_path / "b.mb")
    for other in others:
        with pytest.raises(mb.InvalidInput, match=r"metadata: got <.*that were saved"):
            mb.load(tmp_path / "b.mb", metadata=copy.deepcopy(other))
    loaded = mb.load(tmp_path / "b.mb", metadata=copy.deepcopy(saved))
    assert loaded.features.spec() == bandit.features.spec()


def test_refused_features_are_left_as_they_were(tmp_path: Path) -> None:
    bandit = mb.MultiTaskBandit(ARMS, metadata=features.Stacked([["age"], features.Arrays(["z"])]), seed=3)
    bandit.decide("u", {"age": 5.0, "z": 1.0})
    bandit.save(tmp_path / "b.mb")
    other = features.Stacked([["age"], features.Arrays(["y"])])
    before = other.spec()
    with pytest.raises(mb.InvalidInput):
        mb.load(tmp_path / "b.mb", metadata=other)
    assert other.spec() == before


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    bandit = mb.MultiTaskBandit(ARMS, seed=3)
    bandit.learn(bandit.decide("u"), 1.0)
    bandit.save(tmp_path / "b.mb")
    whole = (tmp_path / "b.mb").read_bytes()
    for size in np.linspace(0, len(whole) - 1, 60).astype(int):
        (tmp_path / "cut.mb").write_bytes(whole[:size])
        with pytest.raises(mb.DamagedFile):
            mb.load(tmp_path / "cut.mb")


def test_a_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    """Every part has a checksum; bits of the archive's own book-keeping may not matter."""
    bandit = mb.MultiTaskBandit(ARMS, seed=3)
    bandit.learn(bandit.decide("u"), 1.0)
    bandit.save(tmp_path / "b.mb")
    whole, expected = bytearray((tmp_path / "b.mb").read_bytes()), bandit.decide("u")
    refused = 0
    for place in range(0, len(whole), 37):
        damaged = whole.copy()
        damaged[place] ^= 1
        (tmp_path / "bad.mb").write_bytes(damaged)
        try:
            assert mb.load(tmp_path / "bad.mb").decide("u") == expected
        except mb.DamagedFile:
            refused += 1
    assert refused > 50


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "p.mb").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(mb.DamagedFile):
        mb.load(tmp_path / "p.mb")
    with zipfile.ZipFile(tmp_path / "q.mb", "w") as archive:
        archive.writestr("header.json", json.dumps({"format": "metabandit", "version": 1}))
        with archive.open("x.npy", "w") as part:
            np.lib.format.write_array(part, np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(mb.DamagedFile):
        mb.load(tmp_path / "q.mb")
    assert not (tmp_path / "sprung").exists()


def test_another_version_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "v.mb", "w") as archive:
        archive.writestr("header.json", json.dumps({"format": "metabandit", "version": 99}))
    with pytest.raises(mb.DamagedFile, match="version 99; this release reads version 1"):
        mb.load(tmp_path / "v.mb")


def test_a_failed_save_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandit = mb.MultiTaskBandit(ARMS, seed=3)
    bandit.save(tmp_path / "b.mb")
    old = (tmp_path / "b.mb").read_bytes()
    bandit.decide("u")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        bandit.save(tmp_path / "b.mb")
    assert (tmp_path / "b.mb").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["b.mb"]


def test_the_file_keeps_its_permissions_and_a_link_stays_a_link(tmp_path: Path) -> None:
    bandit = mb.MultiTaskBandit(ARMS, seed=3)
    os.umask(old := os.umask(0o022))
    bandit.save(tmp_path / "b.mb")
    assert (tmp_path / "b.mb").stat().st_mode & 0o777 == 0o666 & ~old
    (tmp_path / "b.mb").chmod(0o640)
    (tmp_path / "link.mb").symlink_to(tmp_path / "b.mb")
    bandit.decide("u")
    bandit.save(tmp_path / "link.mb")
    assert (tmp_path / "link.mb").is_symlink()
    assert (tmp_path / "b.mb").stat().st_mode & 0o777 == 0o640
    assert mb.load(tmp_path / "b.mb").tasks == ["u"]


class Own(mb.Random):
    """A policy that this library does not know."""

    def spec(self) -> dict[str, object]:
        return {"policy": "my own"}


def test_a_policy_of_ones_own_is_given_again(tmp_path: Path) -> None:
    bandit = mb.MultiTaskBandit(ARMS, policy=Own(), seed=3)
    bandit.save(tmp_path / "b.mb")
    with pytest.raises(mb.InvalidInput):
        mb.load(tmp_path / "b.mb")
    with pytest.raises(mb.InvalidInput, match="the one that was saved"):
        mb.load(tmp_path / "b.mb", policy=mb.Greedy())
    assert mb.load(tmp_path / "b.mb", policy=Own()).decide("u") == bandit.decide("u")


def mutations(value: object) -> list[object]:
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "fiu":
        floats = value.astype(float)
        return [
            value[:1][:0],
            value[:-1],
            value.reshape(-1)[:1],
            floats * np.nan,
            -1e9 - floats,
            floats + 1e9,
            value.astype(str),
        ]
    return ["text", None, -1, 1e300, []]


@pytest.mark.parametrize("name", ["known", "learned", "full", "unknown noise", "beta", "gamma", "process"])
def test_a_hostile_file_is_refused_or_harmless(name: str, tmp_path: Path) -> None:
    """Every entry of a saved state, one at a time, is made wrong in several ways."""
    bandit = mb.MultiTaskBandit(ARMS, metadata=["x"], model=MODELS[name], refresh="task", seed=11)
    play(bandit, 0, 12, name in BINARY)
    bandit.save(tmp_path / "b.mb")
    content = saving.read(tmp_path / "b.mb")
    for entry, value in content.items():
        for wrong in mutations(value):
            saving.write(tmp_path / "h.mb", {**content, entry: wrong})
            try:
                loaded = mb.load(tmp_path / "h.mb")
                loaded.decide("t1")
                loaded.learn(loaded.decide("t2"), 1.0)
            except (
                mb.MetabanditError,
                np.linalg.LinAlgError,
            ):  # well-formed numbers may still be beyond solving
                continue
            assert loaded.belief.n_observations >= 1, entry
