"""Balls, bowls and images of BimanualSweep-v0."""

import numpy as np
import pytest

from envs.bimanual_sweep.camera import SweepCamera
from envs.bimanual_sweep.scene import add_bowl_visual, add_table_visual
from tests.envs.episodes import expert, random, still
from tests.envs.sweeps import make


@pytest.fixture(scope="module")
def env():
    env = make()
    yield env
    env.close()


@pytest.fixture(scope="module")
def seeing():
    env = make(images=True)
    yield env
    env.close()


def put(env, places_m, seconds=1.0):
    """Let the first balls fall from these places; where they come to rest."""
    env.reset(seed=0)
    for ball, place in zip(env._scene.balls, places_m, strict=False):
        env._client.resetBasePositionAndOrientation(ball, place, [0, 0, 0, 1])
        env._client.resetBaseVelocity(ball, [0, 0, 0], [0, 0, 0])
    for _ in range(round(10 * seconds)):
        info = env.step(still(env))[4]
    return env._balls_m[: len(places_m)], info


def test_balls_stay_where_nothing_moves(env):
    env.reset(seed=5)
    before = env._balls_m
    for _ in range(20):
        env.step(still(env))
    np.testing.assert_allclose(env._balls_m, before, atol=1e-3)
    np.testing.assert_allclose(env._balls_m[:, 2], 0.015, atol=1e-3)


def test_balls_do_not_overlap_at_the_start(env):
    for seed in range(3):
        env.reset(seed=seed)
        apart = np.linalg.norm(env._balls_m[:, None] - env._balls_m, axis=-1)
        assert apart[np.triu_indices(30, 1)].min() > 0.03


def test_a_rolling_ball_slows_down_and_stops():
    env = make(balls=1)
    put(env, [[0.0, 0.0, 0.015]], 0.1)
    env._client.resetBaseVelocity(env._scene.balls[0], [0, 0.3, 0], [-0.3 / 0.015, 0, 0])
    ways = []
    for _ in range(40):
        env.step(still(env))
        ways.append(env._balls_m[0, 1])
    assert 0.2 < ways[-1] < 0.4
    assert ways[4] - ways[0] > 0.08  # it rolls
    assert ways[-1] - ways[-6] < 1e-3  # it has stopped
    env.close()


def test_only_balls_inside_a_bowl_count():
    env = make(balls=6)
    env.reset(seed=0)
    (x, y), (x2, y2) = env._scene.bowls_m
    places = [
        [x, y, 0.05],
        [x2 + 0.03, y2 - 0.03, 0.05],
        [x + 0.18, y, 0.015],  # beside
        [x2, y2 + 0.131, 0.015],  # on the table, under the rim
        [0.0, 0.0, 0.015],
        [0.0, 0.40, 0.015],
    ]
    rest, info = put(env, places)
    assert env._scene.in_bowls(rest).tolist() == [True, True, False, False, False, False]
    assert np.hypot(rest[3, 0] - x2, rest[3, 1] - y2) < env.config.bowl_rim_radius_m
    assert rest[3, 2] < 0.02
    assert env._scene.on_table(rest).tolist() == [False, False, True, False, True, True]
    assert info["in_bowls"] == pytest.approx(2 / 6)
    assert info["success"] is False
    env.close()


def test_a_heap_in_a_bowl_counts_and_a_ball_in_the_air_does_not(env):
    env.reset(seed=0)
    bowl = env._scene.bowls_m[0]
    grid = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]) * 0.035
    places = [[*(bowl + cell), 0.05 + 0.04 * layer] for layer in (0, 1, 2) for cell in grid]
    places += [[*bowl, 0.20], [*(bowl + 0.01), 0.24], [*(bowl - 0.01), 0.28]]
    assert not env._scene.in_bowls(np.array(places[-3:])).any()
    rest, info = put(env, places, 2.0)
    assert env._scene.in_bowls(rest).all()
    assert info["in_bowls"] == 1.0
    assert info["success"] is True
    assert env.step(still(env))[1] == 1.0


def test_a_ball_that_fell_off_the_table_does_not_count():
    env = make(balls=1)
    rest, info = put(env, [[0.0, 0.7, 0.1]])
    assert rest[0, 2] < -1
    assert info["in_bowls"] == 0
    assert env.expert_done  # nothing is left that it could do
    env.step(expert(env))
    assert env.expert_done
    env.close()


def test_the_cached_background_changes_no_pixel(seeing):
    """Everything drawn in one client at once is what arms and balls before a cached table are."""
    seeing.reset(seed=0)
    client, camera = seeing._client, seeing._camera
    act = random(0)
    for step in range(17):
        seeing.step(act(seeing))
        if step % 8:
            continue
        bodies = client.getNumBodies()
        picture = camera.image(client)
        add_table_visual(client, seeing.config)
        for bowl_m in seeing._scene.bowls_m:
            add_bowl_visual(client, seeing.config, bowl_m)
        whole, _ = camera._draw(client)
        for index in reversed(range(bodies, bodies + 3)):
            client.removeBody(client.getBodyUniqueId(index))
        np.testing.assert_array_equal(picture, whole)


def shades(picture):
    """Which pixels are red, and which green."""
    red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
    return (red > 2 * green) & (red > 2 * blue), (green > 2 * red) & (green > 2 * blue)


def test_every_ball_is_red_and_every_bowl_green():
    for places in ([0.1, 0.1], [-0.1, 0.15], [0.15, -0.18]):
        env = make(images=True, balls=1)
        env.reset(seed=0)
        put(env, [[*places, 0.015]], 0.1)
        red, green = shades(env.step(still(env))[0]["rgb"])
        assert 40 < red.sum() < 400
        rows, columns = np.nonzero(red)
        assert np.ptp(rows) < 30
        assert np.ptp(columns) < 30
        assert green[:250].sum() > 2000  # the bowl behind
        assert green[250:].sum() > 5000  # and the one in front
        env.close()


def test_nothing_but_balls_and_bowls_is_red_or_green():
    env = make(images=True, balls=1, bowl_x_m=0.41)
    client = env._client
    env.reset(seed=0)
    ball = env._scene.balls[0]
    client.resetBasePositionAndOrientation(ball, [0, 0, -2], [0, 0, 0, 1])
    picture, _ = env._camera._draw(client)  # arms alone
    for shade in shades(picture):
        assert not shade.any()
    env.close()


def test_without_images_none_is_drawn(env, seeing, monkeypatch):
    drawn = []
    monkeypatch.setattr(SweepCamera, "begin", lambda *_: drawn.append("the table"))
    monkeypatch.setattr(SweepCamera, "image", lambda *_: drawn.append("a picture"))
    assert not env.reset(seed=0)[0]["rgb"].any()
    assert not env.step(expert(env))[0]["rgb"].any()
    assert drawn == []
    seeing.reset(seed=0)
    seeing.step(expert(seeing))
    assert drawn == ["the table", "a picture", "a picture"]
