"""Every trainer, also one of an example, passes the contract of resuming."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from safetensors.numpy import load_file

from tests.helpers import metrics, refused, run_command, train
from tests.resume_contract import ResumeContract
from tests.training import random_search, test_bc, test_es, test_implicit_bc, test_ppo
from training import bc, es, ppo
from training.algorithms import command
from training.io import checkpoint

needs_sb3 = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="needs Stable-Baselines3"
)
SHORT = {"iterations": 2, "checkpoints_kept": 3}
PLACES = {"cameras": ["front"], "front_camera": {"pitch_deg": 45}, "episode_s": 0.4}
CLONE = {**test_bc.SMALL, **SHORT, "updates": 6, "batch_size": 16}
WALK = {"env_id": "SteppingStones-v0", "env": PLACES, "expert_episodes": 3, "episodes": 2,
        "batch_size": 12, "sequence": 4}  # fmt: skip


def evolve(**searcher):
    return {**test_es.SMALL, **SHORT, "fit_after": 2, "searcher": searcher}


def place_memory(**policy):
    return {**CLONE, **WALK, "iterations": 2, "policy": {"name": "place_memory", **policy}}


class TrainerContract(ResumeContract):
    """The contract for a trainer's command and a job."""

    job: ClassVar[dict]
    main = staticmethod(es.main)
    refusals = (
        (["seed=6"], "seed = 6 differs from 5 in"),
        (["iterations=1"], "a resumed run needs at least as many"),
        (["policy.patch=[2, 2]"], "differs from"),
    )

    def start(self, out, *, part=False):
        path = out.with_suffix(".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"seed": 5, **self.job}))
        more = ["--set", "iterations=1"] if part else []
        return run_command(self.main, "--config", path, "--out", out, *more)

    def resume(self, out, *changes):
        if not any(change.startswith("iterations=") for change in changes):
            changes = (*changes, f"iterations={self.job['iterations']}")
        return run_command(self.main, "--resume", out, "--set", *changes)

    def results(self, out):
        files = {str(p.relative_to(out)): tensors(p) for p in out.glob("*/*.safetensors")}
        return metrics(out), files, [checkpoint.load(p).state for p in checkpoint.in_run(out)]

    def checkpoints(self, out):
        return checkpoint.in_run(out)

    def test_a_run_whose_checkpoints_are_gone_is_refused(self, copy, capsys):
        shutil.rmtree(copy / "checkpoints")
        before = (copy / "metrics.csv").read_bytes()
        refused(
            capsys, lambda words: self.resume(copy), [], "has rows in metrics.csv but no checkpoint"
        )
        assert (copy / "metrics.csv").read_bytes() == before
        assert not (copy / "checkpoints").exists()

    def test_a_checkpoint_of_another_trainer_is_refused(self, copy, capsys):
        saved = checkpoint.load(checkpoint.resolve(copy))
        last = {"iteration": saved.state["progress"]["iteration"]}
        for state, sentence in (
            ({}, "holds no progress of a run, so none can be resumed from it"),
            ({"progress": {"iteration": "3"}}, "holds no progress of a run"),
            ({"progress": {**last, "other": 1}}, "may be of another trainer"),
        ):
            checkpoint.save(saved.path, saved.policy, saved.search, saved.config, state)
            refused(capsys, lambda words: self.resume(copy), [], f"{saved.path} ", sentence)


def tensors(path):
    return {name: (one.dtype, one.shape, one.tobytes()) for name, one in load_file(path).items()}


class TestEvolutionStrategies(TrainerContract):
    job = evolve(name="pgpe", sigma=0.1)


class TestDAgger(TrainerContract):
    main, job = staticmethod(bc.main), CLONE
    kills = (2, 6)


@pytest.mark.records
class TestImplicitCloning(TrainerContract):
    main = staticmethod(bc.main)
    job: ClassVar = {**test_implicit_bc.SMALL, **SHORT}
    refusals = TrainerContract.refusals[:2]

    def start(self, out, *, part=False):
        """The learning rate follows from `iterations`, so that the first part is one of all."""
        if part:
            self.start_and_kill(out, 4)  # after the first iteration's checkpoint
            return 0
        return super().start(out)

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def recording(cls, recorded):
        cls.job = {**cls.job, "demonstrations": str(recorded)}


recorded = test_implicit_bc.recorded


@needs_sb3
class TestPPO(TrainerContract):
    main, job = staticmethod(ppo.main), {**test_ppo.SMALL, **SHORT}


class TestCustomTrainer(TrainerContract):
    """In one file, tests/training/random_search.py."""

    job: ClassVar = {
        "trainer": random_search.NAME, "env_id": test_es.TOY, **SHORT, "workers": 1,
        "policy": {"controller": "mlp", "hidden": [4], "patch": [8, 8]},
    }  # fmt: skip

    @staticmethod
    def main(words):
        return command.main(random_search.NAME, words)


@needs_sb3
@pytest.mark.records
class TestReplayBuffer(TrainerContract):
    """examples/sac.py: Stable-Baselines3's SAC, whose replay buffer is in the checkpoints."""

    job: ClassVar = {
        "trainer": "sac:TRAINER", "env_id": "Pendulum-v1", **SHORT, "workers": 1, "episodes": 1,
        "updates": 4, "batch_size": 16, "buffer_size": 350,
        "policy": {"name": "sac:Actor", "options": {"hidden": [8]}},
    }  # fmt: skip
    refusals = TrainerContract.refusals[:2]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def example(cls):
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples"))
            yield

    @staticmethod
    def main(words):
        return command.main("sac:TRAINER", words)


LAST = {"patch": [4, 4], "last_action": True}
VARIANTS = {
    "cmaes": (es, evolve(name="cmaes", separable=True)),
    "ars": (es, evolve(name="ars")),
    "clone with gru": (bc, {**CLONE, "policy": {**CLONE["policy"], "controller": "gru"}}),
    "place memory": (bc, place_memory()),
    "random choice": (bc, place_memory(write_tokens=8, write_choice="random")),
    "last action": (ppo, {**test_ppo.SMALL, "env_id": test_ppo.DOT, "env": {}, "policy": LAST}),
}
SECOND = {"random choice": [pytest.mark.records], "last action": [needs_sb3, pytest.mark.records]}


@pytest.mark.parametrize("kind", [pytest.param(one, marks=SECOND.get(one, ())) for one in VARIANTS])
def test_variants_resume_bit_for_bit(kind, tmp_path):
    trainer, job = VARIANTS[kind]
    whole = train(trainer, {**job, "iterations": 2}, tmp_path / "whole")
    part = train(trainer, {**job, "iterations": 1}, tmp_path / "part")
    assert run_command(trainer, "--resume", part, "--set", "iterations=2") == 0
    assert checkpoint.resolve(part).read_bytes() == checkpoint.resolve(whole).read_bytes()
