"""Environments of other packages go through every command by configuration alone.

    pip install minigrid highway-env ale-py gymnasium-robotics shimmy gym-pusht panda-gym \
        flappy-bird-gymnasium metaworld "mujoco<3.4" "dm_control<1.0.35"
    MUJOCO_GL=egl pytest -n 0 -m slow -s tests/training/test_public_environments.py

What is not installed is skipped. The table in docs/guide/environments.md has the same settings.
"""

import os
import re
from pathlib import Path

import pytest

from deploy import export, loop
from tests.helpers import run_command
from training import es, evaluate, flops, ppo, rollout, sight
from training.collect.env_settings import custom

DRAWN = {"env.max_episode_steps": 20}
CASES = {
    "minigrid": (es, "minigrid:MiniGrid-Empty-8x8-v0", {}),
    "minigrid, pixels": (
        ppo, "minigrid:MiniGrid-Empty-8x8-v0",
        {"env_wrappers": "[minigrid.wrappers.RGBImgPartialObsWrapper]",
         "observation_keys": "[image]", "policy.patch": "[8,8]"},
    ),
    "highway_env": (es, "highway_env:highway-fast-v0", {"env.config": "{duration: 4}"}),
    "highway_env, pixels": (
        es, "highway_env:highway-fast-v0",
        {"env.config": "{duration: 3, action: {type: ContinuousAction}, observation: "
         "{type: GrayscaleObservation, observation_shape: [64, 32], stack_size: 2, scaling: 1.75, "
         "weights: [0.3, 0.6, 0.1]}}", "policy.patch": "[8,8]"},
    ),
    "ale_py": (
        ppo, "ale_py:ALE/Pong-v5",
        {"env_wrappers": "[AtariPreprocessing, {FrameStackObservation: {stack_size: 4}}]",
         "env.frameskip": 1, "env.max_episode_steps": 60, "policy.patch": "[12,12]"},
    ),
    "gymnasium_robotics": (ppo, "gymnasium_robotics:FetchReach-v4", DRAWN),
    "shimmy": (es, "dm_control/cartpole-balance-v0", {"env_register": "shimmy", **DRAWN}),
    "gym_pusht": (es, "gym_pusht:gym_pusht/PushT-v0", DRAWN),
    "gym_pusht, pixels": (
        es, "gym_pusht:gym_pusht/PushT-v0",
        {"env.obs_type": "pixels_agent_pos", "policy.patch": "[12,12]", **DRAWN},
    ),
    "panda_gym": (es, "panda_gym:PandaReach-v3", DRAWN),
    "flappy_bird_gymnasium": (es, "flappy_bird_gymnasium:FlappyBird-v0", DRAWN),
    "metaworld": (es, "metaworld:Meta-World/MT1", {"env.env_name": "reach-v3", **DRAWN}),
    "mujoco": (es, "Hopper-v5", {"env.healthy_z_range": "[0.7, 2.0]", **DRAWN}),
    "Box2D": (es, "LunarLander-v3", DRAWN),
}  # fmt: skip
FEW = {
    es: {"popsize": 4, "terrains": 1, "center_terrains": 1},
    ppo: {"steps": 40, "batch_size": 20, "n_epochs": 1, "episodes": 1, "center_episodes": 1},
}


def words(settings):
    return [f"{key}={value}" for key, value in settings.items()]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_every_command_takes_it(name, tmp_path, capsys):
    pytest.importorskip(name.partition(",")[0])
    os.environ.setdefault("MUJOCO_GL", "egl")
    trainer, env_id, settings = CASES[name]
    run, exported = tmp_path / "run", tmp_path / "exported"
    few = words({"iterations": 1, "workers": 1, "fit_after": "null", **FEW[trainer]})
    begun = ["--out", run, "--set", f"env_id={env_id}", *few, *words(settings)]
    assert run_command(trainer, *begun) == 0
    assert run_command(trainer, "--resume", run, "--set", "iterations=2") == 0
    said = capsys.readouterr().out
    requests = ["--env", env_id]
    for one in custom({"env_register": settings.get("env_register", [])}):
        requests += ["--custom", one]
    played = [run, *requests]
    assert run_command(evaluate, *played, "--policy", "random", "--episodes", 2) == 0, said
    assert run_command(rollout, *played, "--video", tmp_path / "x.mp4") == 0
    assert (tmp_path / "x.mp4").stat().st_size > 1000
    assert run_command(flops, *played, "--calls", 2) == 0
    capsys.readouterr()
    status = run_command(sight, *played, "--episodes", 2)
    has_images = "policy.patch" in settings or name == "minigrid"
    assert status == (0 if has_images else 2)
    assert has_images or "has no images" in capsys.readouterr().err
    assert run_command(export, *played, "--out", exported, "--observations", 20) == 0
    assert run_command(loop, exported, "--rate", 0, "--steps", 5) == 0


def test_the_guide_has_every_environment():
    page = Path(__file__).resolve().parents[2] / "docs" / "guide" / "environments.md"
    named = re.findall(r"env_id=([^\s`]+)", page.read_text(encoding="utf-8"))
    assert {env_id for _, env_id, _ in CASES.values()} == set(named)
