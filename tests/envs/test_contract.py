"""What every environment promises: spaces, determinism, isolation, and errors of one sentence."""

import importlib.util
import multiprocessing
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, get_args

import annotated_types as at
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import envs
from envs.bimanual_sweep import BimanualSweepConfig
from envs.bimanual_sweep.config import SweepCameraConfig
from envs.cameras import CameraConfig
from envs.car_racing.config import CarRacingConfig
from envs.settings import read_settings
from envs.stepping_stones import SteppingStonesConfig
from tests.envs.episodes import expert, fingerprint, fresh_fingerprint, parts, random, still
from training.io.config import description


class World(NamedTuple):
    """An environment, cheap settings, other settings, and a part that every step changes."""

    env_id: str
    config: type
    settings: dict[str, Any]
    others: dict[str, Any]
    part: str

    def make(self, **settings: Any) -> gymnasium.Env:
        return gymnasium.make(self.env_id, disable_env_checker=True, **self.settings | settings)

    @property
    def act(self) -> Any:
        """The expert, or random actions."""
        return expert if envs.find_task(self.env_id).expert else random(7)


WORLDS = [
    World(
        envs.STEPPING_STONES, SteppingStonesConfig, {},
        {"sensor_noise": 2.0, "gap_m": (0.05, 0.15), "path_turn": "random", "clutter_per_m": 3.0,
         "front_camera_pitch_deg": (80.0, 90.0), "camera_pose_told": True,
         "depth_false_returns": 0.2, "depth_dropped_blocks": 0.2}, "proprio",
    ),
    World(
        envs.BIMANUAL_SWEEP, BimanualSweepConfig, {"image_px": 60}, {"balls": 5, "images": False},
        "pose",
    ),
]  # fmt: skip
if importlib.util.find_spec("Box2D"):
    WORLDS.append(
        World("CarRacingRepeat-v0", CarRacingConfig, {"episode_frames": 60},
              {"distraction": "colour"}, "observation")
    )  # fmt: skip
PAGES = {SteppingStonesConfig: "stepping_stones", BimanualSweepConfig: "bimanual_sweep"}
CONFIGS = (
    SteppingStonesConfig,
    BimanualSweepConfig,
    CarRacingConfig,
    CameraConfig,
    SweepCameraConfig,
)


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: world.env_id)
def world(request):
    return request.param


@pytest.fixture(scope="module")
def env(world):
    with world.make() as env:
        yield env


def test_gymnasium_checker_has_no_complaint(world):
    with world.make() as env:
        check_env(env.unwrapped, skip_render_check="Car" in world.env_id)
    with world.make(**world.others) as env:
        check_env(env.unwrapped, skip_render_check=True)


def test_every_number_is_finite_and_in_its_space(world, env):
    task = envs.find_task(world.env_id)
    observation, info = env.reset(seed=1)
    act = random(0)
    for _ in range(12):
        assert env.observation_space.contains(observation)
        assert all(np.isfinite(part).all() for part in parts(observation).values())
        assert {*(one.name for one in task.outcomes), "success"} <= info.keys()
        observation, reward, terminated, truncated, info = env.step(act(env))
        assert np.isfinite(reward)
        assert {type(terminated), type(truncated), type(info["success"])} == {bool}
        if terminated or truncated:
            break
    assert env.has_wrapper_attr("expert_action") == task.expert
    if task.camera_image is not None:
        assert task.camera_image in env.observation_space.spaces


def test_an_episode_depends_on_its_seed_alone(world, env):
    """Not on the episodes before, nor on another environment beside it."""
    first = fingerprint(env, 3, act=world.act)
    assert fingerprint(env, 4, steps=5, act=random(0)) != first
    act = world.act
    with world.make(**world.others) as other:
        changed = fingerprint(other, 3, act=world.act)
        assert fingerprint(other, 4, steps=5, act=random(0)) != changed != first
        assert fingerprint(other, 3, act=world.act) == changed
        other.reset(seed=9)

        def beside(env):
            other.step(still(other))
            return act(env)

        assert fingerprint(env, 3, act=beside) == first
    assert fingerprint(env, 3, act=world.act) == first


def test_a_process_of_its_own_gives_the_same_episodes():
    tried = [(world, settings) for world in WORLDS for settings in (world.settings, world.others)]
    calls = [
        (world.env_id, 5, settings, *([] if world.act is expert else [still]))
        for world, settings in tried
    ]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.starmap(fresh_fingerprint, calls)
    assert there == [fresh_fingerprint(*call) for call in calls]


def test_without_a_seed_every_episode_is_another(world, env):
    env.reset(seed=1)
    seen = [parts(env.reset()[0])[world.part] for _ in range(2)]
    assert not np.array_equal(*seen)


def test_arrays_are_the_callers_own(world, env):
    observations = [parts(env.reset(seed=1)[0])]
    action = still(env)
    observations += [parts(env.step(action)[0]) for _ in range(3)]
    copies = [{key: part.copy() for key, part in seen.items()} for seen in observations]
    action[:] = env.action_space.high
    env.step(action)
    for i, (seen, copy) in enumerate(zip(observations, copies, strict=True)):
        for key, part in seen.items():
            assert part.flags.writeable
            np.testing.assert_array_equal(part, copy[key])
            assert not any(np.shares_memory(part, other[key]) for other in observations[:i])


def test_actions_out_of_bounds_are_clipped(world, env):
    ends = []
    for scale in (1.0, 7.0):
        env.reset(seed=1)
        for _ in range(3):
            observation, reward, *_ = env.unwrapped.step(scale * env.action_space.high)
        ends.append((parts(observation)[world.part].tobytes(), reward))
    assert ends[0] == ends[1]


IMPOSSIBLE = [
    (lambda n: np.full(n, np.nan), r"\[nan, nan"),
    (lambda n: np.array([0.0123456789] * (n - 1) + [np.inf]), r"\[0.0123456789, .*inf\]$"),
    (lambda n: np.zeros(n + 1), r"shape \(\d+,\)$"),
    (lambda n: np.zeros((300, 3)), r"shape \(300, 3\)$"),
    (lambda n: 0.5, r"shape \(\)$"),
    (lambda n: [True] * n, r"\[True, True"),
    (lambda n: ["0"] * n, r"\['0', '0'"),
    (lambda n: np.zeros(n, complex), r"array\(\[0"),
    (lambda n: [[0.0], [0.0, 0.0]], r"\[\[0.0\], \[0.0, 0.0\]\]$"),
    (lambda n: np.zeros(n, object), r"array\(\[0"),
    (lambda n: None, "None$"),
    (lambda n: "forward", "'forward'$"),
]


def refused(message, call, *given, error=ValueError, **named):
    """The call raises that error, in one sentence."""
    with pytest.raises(error, match=message) as raised:
        call(*given, **named)
    assert type(raised.value) is error
    assert "\n" not in str(raised.value)


def test_an_impossible_action_is_one_sentence(world, env):
    env.reset(seed=1)
    (size,) = env.action_space.shape
    for make, got in IMPOSSIBLE:
        message = f"^action must be {size} finite numbers, got {got}"
        refused(message, env.unwrapped.step, make(size))
    expected = env.step(still(env))[0]
    env.reset(seed=1)  # a refused action changed nothing
    for key, part in parts(env.step(still(env))[0]).items():
        np.testing.assert_array_equal(part, parts(expected)[key])


def test_what_needs_a_reset_says_so_and_closing_twice_does_nothing(world):
    env = world.make(render_mode="rgb_array").unwrapped
    assert env.render() is None
    with pytest.raises(RuntimeError, match="reset must be called before step"):
        env.step(still(env))
    if envs.find_task(world.env_id).expert:
        with pytest.raises(RuntimeError, match="reset must be called before expert_action"):
            env.expert_action()
    env.close()
    env.close()


def test_rendering_shows_an_image_and_changes_nothing(world):
    for settings in ({}, world.others):  # the second draws clutter and turned stones
        pictures, act = [], world.act

        def shown(env, pictures=pictures, act=act):
            pictures.append(env.render())
            return act(env)

        with world.make(render_mode="rgb_array", **settings) as other:
            found = fingerprint(other, 3, steps=5, act=shown)
        with world.make(**settings) as plain:
            assert fingerprint(plain, 3, steps=5, act=world.act) == found
            assert plain.render() is None
        assert {(p.shape[2], p.dtype) for p in pictures} == {(3, np.dtype(np.uint8))}
        assert np.ptp(pictures[0], axis=(0, 1)).min() > 50
        assert (pictures[0] != pictures[-1]).any()


def test_seeds_and_options_of_reset(env):
    for seed in (True, -1, 1.0, "1", [1], np.float64(1)):
        refused(r"^seed must be an integer of at least 0, got ", env.reset, seed=seed)
    for options in (["gap_m"], "gap_m", 0):
        refused("options of reset must be a mapping or None, got", env.reset, options=options)
    unknown = r"(reset takes no options|options of reset may hold .*), got 1, gap$"
    refused(unknown, env.reset, options={1: 2, "gap": 3})
    expected = parts(env.reset(seed=3)[0])
    for key, part in parts(env.reset(seed=np.int64(3), options={})[0]).items():
        np.testing.assert_array_equal(part, expected[key])


@pytest.mark.filterwarnings("ignore:.*render_mode='film'")
def test_a_wrong_render_mode(world):
    message = "render_mode must be rgb_array, human or None, got 'film'"
    refused(message, world.make, render_mode="film")


BOUNDS = {at.Ge: ("ge", -1), at.Gt: ("gt", 0), at.Le: ("le", 1), at.Lt: ("lt", 0)}


@pytest.mark.parametrize("config", CONFIGS)
def test_a_setting_beyond_its_bounds_or_of_another_kind_is_one_sentence(config):
    """One value outside of each bound that a field declares, and values that are no number."""
    refused(f"unknown setting 'nonsense'; .*{fields(config)[0].name}", read_settings, config,
            {"nonsense": 1})  # fmt: skip
    tried = 0
    for name, field in config.__pydantic_fields__.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        for bound in field.metadata:
            if type(bound) in BOUNDS:
                attribute, step = BOUNDS[type(bound)]
                value = getattr(bound, attribute) + step
                allowed = rf"^{name} = .*, but input should be (greater|less) than"
                refused(allowed, read_settings, config, {name: value})
                tried += 1
        if float in kinds and field.annotation is float:
            wrong, kind = (True, "0.5", None, np.True_, np.array([0.5])), "valid number"
            for value in (np.nan, np.inf):
                message = f"^{name} = {value}, but .* finite number"
                refused(message, read_settings, config, {name: value})
        elif int in kinds:
            wrong, kind = (True, "3", 2.5, 3.0, np.float64(100), np.inf), "valid integer"
        elif field.annotation is bool:
            wrong, kind = ("no", 0, 1.0, None, np.array([True])), "valid boolean, True or False$"
        elif all(isinstance(one, str) for one in kinds):
            wrong, kind = (None, False, "both", 1), "should be '"
        else:
            continue
        for value in wrong:
            refused(f"^{name} = .*, but .*{kind}", read_settings, config, {name: value})
    assert tried > 3


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_is_documented_and_the_guide_gives_its_defaults(config):
    documented = config.__pydantic_fields__
    assert set(documented) == {field.name for field in fields(config)}
    assert all(description(config, name) for name in documented)
    if config in PAGES:
        guide = Path(__file__).parents[2] / "docs" / "guide" / f"{PAGES[config]}.md"
        section = guide.read_text().partition("# Settings\n")[2].partition("\n#")[0]
        rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, re.MULTILINE))
        assert len(rows) > 5
        assert rows == {name: str(getattr(config(), name)) for name in rows}
