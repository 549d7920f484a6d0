"""Felt ground: what lies where, what is observed of it, and who can walk on it."""

import gymnasium
import numpy as np
import pytest

import envs  # noqa: F401 - registers SteppingStones-v0
from envs.settings import read_settings
from envs.stepping_stones import SteppingStonesConfig
from envs.stepping_stones.felt_config import FIRST_M
from envs.stepping_stones.felt_ground import draw_felt_ground
from envs.stepping_stones.felt_textures import TEXTURES, textures

WORLDS = {
    "vectors": {},
    "pictures": {},
    "conjunctions": {"kinds": 16},
    "smooth": {"strip_tiles": 24},
}
WRONG = [
    (
        {"world": "conjunctions", "kinds": 17},
        "kinds must be at most the 16 appearances of conj.*17",
    ),
    ({"world": "vectors", "kinds": 20}, "strip_tiles must be at least 20, as all 20 k.*got 16"),
    ({"world": "vectors", "strip_tiles": 80}, r"row_m must be at least 16.26 for 80 tiles.*got 12"),
    ({"world": "pictures", "kinds": 25}, "kinds must be at most the 24 appearances of pict.*25"),
    (
        {"world": "vectors", "strip_tiles": 15, "labels_change": True},
        "strip_tiles must be at least 16, as all 8 kinds lie on each half of the .*, got 15",
    ),
    ({"tile_m": (0.2, 0.1)}, r"tile_m must be .*got \[0.2, 0.1\]"),
]


def config_of(world, **settings):
    felt = {"world": world, **WORLDS[world], **settings}
    return read_settings(SteppingStonesConfig, {"felt_ground": felt})


def make(world, **settings):
    felt = {"world": world, **WORLDS[world], **settings.pop("felt", {})}
    front = {"cameras": ("front",), "front_camera": {"pitch_deg": 45}}
    return gymnasium.make("SteppingStones-v0", felt_ground=felt, **front, **settings)


@pytest.mark.parametrize("world", WORLDS)
def test_a_row_has_a_trial_strip_and_then_holes_apart(world):
    config = config_of(world)
    felt = config.felt_ground
    rows = [draw_felt_ground(config, np.random.default_rng(seed)) for seed in range(20)]
    for row in rows:
        np.testing.assert_allclose(row.tiles_m[1:, 0], row.tiles_m[:-1, 1])
        strip = slice(1, 1 + felt.strip_tiles)
        assert row.tiles_m[strip][-1, 1] == pytest.approx(row.strip_end_m)
        assert set(row.tops_m[strip].tolist()) <= {0.0, -felt.sink_m}
        beyond = row.tops_m[strip.stop :]
        assert np.isnan(beyond[beyond != 0]).all()
        assert (np.diff(np.flatnonzero(np.isnan(beyond))) > felt.firm_between).all()
        middles = row.tiles_m.mean(1)
        np.testing.assert_array_equal(row.margin_m(middles) > 0, ~np.isnan(row.tops_m))
    share = np.mean([row.false[1 : 1 + felt.strip_tiles].mean() for row in rows])
    assert abs(share - 0.5) < 0.15  # of smooth, 480 tiles: 6 standard deviations


def test_kinds_change_their_meaning_between_episodes_and_conjunctions_need_both_parts():
    config = config_of("conjunctions", tile_noise=0.0)
    for seed in range(5):
        row = draw_felt_ground(config, np.random.default_rng(seed))
        kinds, at = np.unique(row.looks[1:17], axis=0, return_index=True)
        assert len(kinds) == 16
        assert row.false[1:][at].sum() == 8
        assert len(np.unique(kinds[:, :8].round(9), axis=0)) == 4
        assert len(np.unique(kinds[:, 8:].round(9), axis=0)) == 4


def test_labels_change_half_way_along_the_strip():
    config = config_of("vectors", tile_noise=0.0, strip_tiles=20, labels_change=True)
    changed = 0
    for seed in range(20):
        row = draw_felt_ground(config, np.random.default_rng(seed))
        _, kinds = np.unique(row.looks[1:], axis=0, return_inverse=True)
        pairs = [*zip(kinds.tolist(), row.false[1:].tolist(), strict=True)]
        before, after = dict(pairs[:10]), dict(pairs[10:20])
        assert [len(part) for part in (before, after)] == [8, 8]
        assert [sum(part.values()) for part in (before, after)] == [4, 4]
        assert all(after[kind] == gave for kind, gave in pairs[10:])
        changed += sum(before[kind] != after[kind] for kind in before)
    assert 50 < changed < 110  # of 160, half on average; 4 standard deviations


def test_pixels_show_the_tile_that_their_ray_meets():
    with make("vectors", sensor_noise=0.0, felt={"pixel_noise": 0.0}) as env:
        seen, _ = env.reset(seed=3)
        for _ in range(20):
            seen = env.step(env.unwrapped.expert_action())[0]
        own = env.unwrapped
        looks, depth = seen["appearance"][0], seen["depth"][0]
        assert env.observation_space["appearance"].shape == (1, 24, 32, 16)
        optic = own._state.position_m + own._state.rotation @ own.geometry.positions_m["depth"][0]
        points = depth[..., None] * (own.geometry.rays["depth"][0] @ own._state.rotation.T) + optic
        ground = (np.abs(points[..., 2]) < 0.01) & (np.abs(points[..., 1]) < 0.25)
        row = own._stones
        np.testing.assert_array_equal((looks != 0).any(-1) & ground,
                                      ground & (points[..., 0] > FIRST_M))  # fmt: skip
        x = points[..., 0][ground]
        np.testing.assert_allclose(looks[ground], row.looks[row.index(x)], atol=1e-6)
        assert not looks[~ground].any()


@pytest.mark.parametrize(
    ("world", "knows"), [*((world, True) for world in WORLDS), ("vectors", False)]
)
def test_only_who_knows_the_tiles_walks_on_them(world, knows):
    with make(world) as env:
        _, info = env.reset(seed=1)
        done = False
        while not done:
            action = env.unwrapped.expert_action()
            action[:4] *= knows
            _, _, terminated, truncated, info = env.step(action)
            done = terminated or truncated
        assert (info["success"], info["fell"]) == (knows, not knows)


@pytest.mark.parametrize(("felt", "message"), WRONG)
def test_bad_settings_get_one_sentence(felt, message):
    with pytest.raises(ValueError, match=f"felt_ground.{message}") as error:
        read_settings(SteppingStonesConfig, {"felt_ground": felt})
    assert "\n" not in str(error.value)


def test_tiles_need_a_straight_path_and_disable_the_stones_settings():
    with pytest.raises(ValueError, match="needs a straight path without the way back, got path_tu"):
        read_settings(
            SteppingStonesConfig, {"felt_ground": {"world": "vectors"}, "path_turn": "left"}
        )
    assert config_of("vectors").without_effect["gap_m"] == "felt_ground.world"
    assert SteppingStonesConfig().without_effect["felt_ground.kinds"] == "felt_ground.world"


def test_pictures_show_textures_of_their_set_and_need_opencv(monkeypatch):
    sets = [textures(name).reshape(TEXTURES, -1) for name in ("training", "unseen")]
    assert len(np.unique(np.concatenate(sets), axis=0)) == 2 * TEXTURES
    with make("pictures", felt={"textures": "unseen"}) as env:
        seen, _ = env.reset(seed=0)
        space = env.observation_space["appearance"]
        assert (space.shape, space.dtype) == ((1, 24, 32, 3), np.uint8)
        assert space.contains(seen["appearance"])
        assert len(np.unique(seen["appearance"].reshape(-1, 3), axis=0)) > 100
    monkeypatch.setattr("envs.stepping_stones.felt_config.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="world = pictures needs OpenCV: pip install"):
        config_of("pictures")
