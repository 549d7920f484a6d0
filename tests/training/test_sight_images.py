"""Images that replace those of a policy."""

import numpy as np
import pytest
from gymnasium import spaces

from training.analysis.replacements import Altered, image_keys, recorder, substitute

RNG = np.random.default_rng(0)


class Echo:
    """Acts by what it sees."""

    def reset(self):
        self.seen = []

    def act(self, observation):
        self.seen.append(observation)
        return np.float32([0.0])


def shown(observations, kind, lent, keys=("observation",)):
    echo = Echo()
    agent = Altered(echo, keys, substitute(kind, lent, 3))
    agent.reset()
    for observation in observations:
        agent.act(observation)
    return echo.seen, agent


def test_images_are_the_boxes_of_two_to_four_dimensions():
    box = spaces.Box
    space = spaces.Dict({
        "eyes": spaces.Tuple([box(0, 255, (4, 5, 3), np.uint8), box(0, 1, (2, 4, 5, 3))]),
        "depth": box(0, np.inf, (4, 5)), "pose": box(-1, 1, (7,)), "gear": spaces.Discrete(3),
        "mission": spaces.Text(9),
    })  # fmt: skip
    assert sorted(image_keys(space)) == ["depth", "eyes.0", "eyes.1"]
    assert image_keys(box(0, 255, (3, 8, 9), np.uint8)) == ["observation"]
    assert image_keys(box(-1, 1, (5, 7))) == []
    assert image_keys(box(-1, 1, (5, 7)), tables=True) == ["observation"]
    assert image_keys(spaces.Discrete(2)) == []


def test_swap_shows_the_other_episode_and_then_its_beginning_again():
    own, other = RNG.integers(0, 255, (2, 5, 4, 6), np.uint8)
    lent = [{"observation": image} for image in other[:3]]
    seen, agent = shown(own, "swap", lent)
    assert np.array_equal(seen, other[[0, 1, 2, 0, 1]])
    assert agent.differed == 5
    assert shown(other[:3], "swap", lent)[1].differed == 0


def test_freeze_shows_the_first_image():
    own = RNG.normal(size=(4, 3, 6, 7)).astype(np.float32)
    own[0, 0, 0, 0] = np.nan
    seen, agent = shown(own, "freeze", [{"observation": own[0]}])
    assert np.array_equal(seen, own[[0] * 4], equal_nan=True)
    assert agent.differed == 3


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((6, 7), (0, 1)), ((6, 7, 3), (0, 1)), ((3, 6, 7), (1, 2)), ((2, 6, 7, 3), (1, 2))],
)
def test_blank_has_a_value_a_channel_and_shuffle_keeps_all_values(shape, axes):
    lent = [{"observation": RNG.integers(0, 255, shape, np.uint8)} for _ in range(3)]
    mean = np.mean([images["observation"] for images in lent], 0).mean(axes, keepdims=True)
    own = RNG.integers(0, 255, (4, *shape), np.uint8)
    (blank, *_), _ = shown(own, "blank", lent)
    assert blank.dtype == np.uint8
    assert np.abs(blank - np.broadcast_to(mean, shape)).max() <= 0.5

    mixed, _ = shown(own, "shuffle", lent)
    assert all(image.shape == shape for image in mixed)

    # One permutation of pixels: whole pixels stay together, at every step in the same place.
    def pixels(image):
        return np.moveaxis(image, axes, (0, 1)).reshape(42, -1)

    order = [int(np.flatnonzero((pixels(own[0]) == pixel).all(1))[0]) for pixel in
             pixels(mixed[0])] if len(shape) > 2 else None  # fmt: skip
    for before, after in zip(own, mixed, strict=True):
        assert np.array_equal(np.sort(pixels(before), 0), np.sort(pixels(after), 0))
        if order is not None:
            assert np.array_equal(pixels(before)[order], pixels(after))
    assert not np.array_equal(own[0], mixed[0])


def test_blank_takes_the_mean_of_what_is_finite():
    depth = np.float32([[1.0, np.inf], [3.0, np.nan]])
    ((blank,), _) = shown([depth], "blank", [{"observation": depth}])
    assert np.array_equal(blank, np.full((2, 2), 2.0))


def test_other_parts_stay_and_what_is_lent_is_not_written_into():
    class Writing(Echo):
        def act(self, observation):
            action = super().act(observation)
            observation["eyes"][1][:] = 0
            return action

    lent = []
    record = recorder(["eyes.1"], lent)
    there = {"eyes": (np.ones((2, 2)), np.ones((3, 3))), "pose": np.arange(2.0), "word": "go"}
    record(None, there, None, 0.0, None)
    there["eyes"][1][:] = 7
    assert (lent[0]["eyes.1"] == 1).all()
    policy = Writing()
    agent = Altered(policy, ["eyes.1"], substitute("swap", lent, 0))
    agent.reset()
    agent.act(there)
    (seen,) = policy.seen
    assert seen["eyes"][0] is there["eyes"][0]
    assert seen["pose"] is there["pose"]
    assert seen["word"] == "go"
    assert (lent[0]["eyes.1"] == 1).all()
    assert (there["eyes"][1] == 7).all()
