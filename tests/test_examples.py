"""The example package with a custom environment, as described on its page."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import venv
from importlib import import_module
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from tests.helpers import metrics

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "follow_light"
PAGE = (ROOT / "examples" / "README.md").read_text()
BLOCKS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SCRIPT, *OTHERS = (re.sub(r"\\\n\s*", "", block) for block in BLOCKS)
COMMANDS = [shlex.split(line)[2:] for line in SCRIPT.splitlines() if "-m training." in line]
FEWER = {
    "iterations=15": ["iterations=1", "popsize=4", "terrains=1", "center_terrains=1", "workers=1"],
    "iterations=20": ["iterations=2"],
    "--workers": ["--episodes", "2", "--workers"],
    "2": ["1"],
}
"""Replacements in the page's commands that make the test quick."""


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Its module can be imported, and the working directory is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    sys.modules.pop("follow_light", None)
    gymnasium.registry.pop("FollowLight-v0", None)


def files():
    """Names and contents of what git knows or would know of this checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if (ROOT / name).is_file()]
    return {name: (ROOT / name).read_bytes() for name in names}


def evaluated(root):
    return json.loads((root / "runs/light/evaluation/evaluation.json").read_text())


def test_it_is_a_sound_environment(example):
    import_module("follow_light")
    with gymnasium.make("FollowLight-v0", render_mode="rgb_array") as env:
        check_env(env.unwrapped)
        seen = []
        for looks in range(2):
            env.reset(seed=0)
            for _ in range(looks):
                env.render()
            seen.append(env.step(env.action_space.low)[0])
    assert (seen[0] == seen[1]).all()  # whoever watches changes nothing


def test_it_learns_from_the_terms_that_it_declares(example):
    """The page's command, with smaller images and fewer steps."""
    pytest.importorskip("stable_baselines3")
    module, *words = shlex.split(next(b for b in OTHERS if "training.ppo" in b))[2:]
    fewer = [*words, "steps=300", "episodes=6", "iterations=8", "env.side=16", "workers=1"]
    only = {word.partition("=")[0]: word for word in fewer if "=" in word[1:]}
    assert import_module(module).main([*words[:3], *only.values()]) == 0
    rewards = [float(row["center_reward"]) for row in metrics(Path("runs/terms"))]
    assert rewards[-1] > rewards[0] + 15


@pytest.mark.slow
def test_every_command_of_its_page_runs(example, capsys):
    """Shortened versions of all commands, in order."""
    for module, *words in COMMANDS:
        fewer = [part for word in words for part in FEWER.get(word, [word])]
        assert import_module(module).main(fewer) == 0, capsys.readouterr()
    assert [module for module, *_ in COMMANDS] == [
        f"training.{name}" for name in ("es", "es", "evaluate", "rollout", "flops", "sight")
    ]
    assert Path("light.mp4").stat().st_size > 1000
    assert [one["name"] for one in evaluated(Path())] == ["light", "random"]
    assert "FLOPs" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_in_a_fresh_environment_it_learns_and_nothing_of_ours_changes(tmp_path):
    """The page's commands as they stand. pip needs a network; the rest is to take ten minutes."""
    here = tmp_path / "checkout"
    before = files()
    for name in before:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, here / name)
    venv.create(tmp_path / "venv", with_pip=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    path = os.pathsep.join([str(tmp_path / "venv" / "bin"), os.environ["PATH"]])
    lines = SCRIPT.splitlines()
    assert lines[0].startswith("pip install ")
    seconds = []
    for line in lines:
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", line], cwd=here, env={**kept, "PATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds.append(time.monotonic() - began)
        print(f"{seconds[-1]:.0f} s: {line}\n{done.stdout[-1500:]}")
        assert done.returncode == 0, done.stderr[-3000:]
    light, random = (one["success_interval_95"] for one in evaluated(here))
    assert light[0] > random[1]
    assert sum(seconds[1:4]) < 600
    assert {name: (here / name).read_bytes() for name in before} == before
