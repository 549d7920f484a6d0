"""The Implicit Attention Policy in any spaces: it acts, learns, and says what it cannot."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

from policies import build
from policies.common.geometry import Footholds
from policies.common.heads import FootholdHead, head_for
from policies.common.observation import Observations, flat, layout_of
from tests.policies.cases import assert_gradients


def box(*shape, low=0.0, high=1.0, dtype=np.float32):
    return spaces.Box(low, high, shape, dtype)


def pixels(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


OBSERVATIONS = {
    "grey": pixels(20, 24),
    "colours last": pixels(20, 24, 3),
    "colours first": pixels(3, 20, 24),
    "one channel last": box(20, 24, 1),
    "floats": box(17, 23, low=-2.0, high=3.0),
    "unbounded floats": box(2, 20, 24, low=-np.inf, high=np.inf),
    "grey frames": pixels(4, 20, 24),
    "colour frames": pixels(4, 20, 24, 3),
    "double": box(16, 16, 3, dtype=np.float64),
    "words": spaces.Box(0, 4095, (16, 18), np.uint16),
    "smaller than a patch": pixels(3, 3),
    "vector": box(5, low=-np.inf, high=np.inf),
    "one number": box(),
    "choice": spaces.Discrete(4, start=2),
    "choices": spaces.MultiDiscrete([3, 2, 4]),
    "switches": spaces.MultiBinary(6),
    "image and vector": spaces.Dict({"camera": pixels(20, 24, 3), "speed": box(2)}),
    "many": spaces.Dict(
        {
            "front": pixels(20, 24, 3),
            "back": box(12, 30),
            "speed": box(2),
            "gear": spaces.Discrete(5),
            "arm": spaces.Dict({"camera": pixels(3, 16, 16), "angles": box(3, low=-9, high=9)}),
        }
    ),
    "tuple": spaces.Tuple((pixels(16, 16), spaces.Discrete(3))),
}
ACTIONS = {
    "bounded": box(2, low=-0.4, high=1.5),
    "matrix": box(2, 3, low=-1.0, high=2.0),
    "unbounded": box(2, low=-np.inf, high=np.inf),
    "half bounded": spaces.Box(np.float32([0.0, -np.inf]), np.float32([np.inf, 3.0])),
    "double": box(3, low=-1.0, high=1.0, dtype=np.float64),
    "whole": spaces.Box(-3, 5, (2,), np.int64),
    "discrete": spaces.Discrete(5),
    "discrete from": spaces.Discrete(3, start=-1),
    "several": spaces.MultiDiscrete([3, 4]),
    "grid": spaces.MultiDiscrete([[3, 4], [2, 2]]),
    "switches": spaces.MultiBinary(3),
}
KINDS = [
    {},
    {"patch": (7, 5), "stride": (4, 3), "keep_tokens": 3},
    {"patch": (3, 3), "edges": "drop", "selection": "random"},
    {"patch": (5, 5), "stride": (2, 2), "edges": "pad", "variant": "trans"},
    {"patch": (5, 5), "stride": (3, 3), "variant": "rank", "rank_with": "places",
     "keep_tokens": 2, "score_step": 0.01, "hidden": ()},
    {"variant": "rank", "rank_with": "values", "image_scaling": "running"},
    {"selection": "all", "image_px": (8, 8), "grey": False},
    {"image_crop": (1, 0, 1, 1), "standardise": True},
]  # fmt: skip


def drawn(space, count=3):
    space.seed(0)
    return [space.sample() for _ in range(count)]


def stacked(observations):
    parts = [flat(one) for one in observations]
    return {key: torch.as_tensor(np.stack([one[key] for one in parts])) for key in parts[0]}


def settings_for(space, settings):
    """One token alone cannot be chosen from."""
    few = space is OBSERVATIONS["smaller than a patch"] and settings.get("selection") is None
    return (
        {**settings, "selection": "all", "variant": "masking", "rank_with": "both"}
        if few
        else settings
    )


def check(observations, actions, settings):
    policy = build(settings_for(observations, settings), observations, actions)
    seen, wanted = drawn(observations), drawn(actions)
    for one in seen:
        given = policy.act(one)
        assert actions.contains(given), given
        policy.reset()
        np.testing.assert_array_equal(policy.act(one), given)
        assert policy.measured(one).shape == policy.normaliser.mean.shape
    batch = stacked(seen)
    policy.set_statistics(batch)
    policy.fit_attention(batch)
    for one in seen:
        assert actions.contains(policy.act(one))
        masks = policy.attention_masks(one)
        shown = {p.key: p for p in policy.inputs.observations.image_parts}
        assert masks.keys() == shown.keys()
        assert all(
            mask.shape[-2:] == (shown[k].height, shown[k].width) for k, mask in masks.items()
        )
    loss = policy.loss(batch, torch.as_tensor(np.stack(wanted)))
    loss.backward()
    assert loss.isfinite()
    assert_gradients(policy)
    assert policy.controller.layers[0].weight.grad.abs().max() > 0
    return policy


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_it_acts_and_learns_whatever_is_seen(name):
    place = list(OBSERVATIONS).index(name)
    for i in (0, 1 + place % 7, 1 + (place + 3) % 7):  # the default and two others of `KINDS`
        check(OBSERVATIONS[name], list(ACTIONS.values())[(place + i) % len(ACTIONS)], KINDS[i])


@pytest.mark.parametrize("name", ACTIONS)
def test_it_acts_and_learns_whatever_is_done(name):
    check(OBSERVATIONS["image and vector"], ACTIONS[name], {})
    check(OBSERVATIONS["vector"], ACTIONS[name], {"hidden": ()})


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((24, 32), "HW"), ((24, 32, 3), "HWC"), ((3, 24, 32), "CHW"), ((4, 84, 84), "CHW"),
        ((84, 84, 12), "HWC"), ((5, 5, 5), "HWC"), ((24, 32, 1), "HWC"), ((1, 24, 32), "CHW"),
        ((4, 96, 96, 3), "THWC"), ((4, 3, 96, 96), "TCHW"), ((8, 64, 64, 1), "THWC"),
    ],
)  # fmt: skip
def test_which_axis_is_the_channel(shape, layout):
    assert layout_of(shape) == layout


def test_a_layout_says_how_axes_are_meant():
    """The same numbers, however their axes lie; frames of one place are its channels."""
    rng = np.random.default_rng(0)
    for layout in ("HWC", "CHW", "NHW", "THWC", "TCHW", "NHWC", "NCHW", "vector"):
        sizes = {"N": 2, "T": 3, "C": 4, "H": 5, "W": 6}
        letters = "HW" if layout == "vector" else layout
        shape = tuple(sizes[letter] for letter in letters)
        seen = Observations(box(*shape), {"observation": layout})
        if layout == "vector":
            assert (seen.image_parts, seen.vector_size) == ([], 30)
            continue
        (pictures,) = seen.image_parts
        values = rng.random(shape).astype(np.float32)
        read = pictures.read(torch.as_tensor(values)[None])[0].numpy()
        assert read.shape[0] == (2 if "N" in layout else 1)
        axes = [letters.index(letter) for letter in "NTCHW" if letter in letters]
        np.testing.assert_array_equal(read.reshape(-1), values.transpose(axes).reshape(-1))
    with pytest.raises(
        ValueError, match=r"layout of observation must be of the 2 axes that \(5, 6\)"
    ):
        Observations(box(5, 6), {"observation": "HWC"})
    with pytest.raises(ValueError, match=r"layout names camera, but the parts .* are observation"):
        Observations(box(5, 6), {"camera": "HW"})


def test_without_geometry_two_frames_are_channels_and_two_cameras_are_not():
    stones = spaces.Dict({"depth": box(2, 24, 32, high=1.5), "proprio": box(45)})
    other = spaces.Dict({"depth": box(2, 24, 32, high=1.5), "speed": box(45)})
    both = [build({}, space, box(9, low=-1.0)) for space in (stones, other)]
    assert [policy.tokens.count for policy in both] == [96, 48]
    assert [policy.tokens.size for policy in both] == [16, 32]


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [("auto", (100 - 127.5) / 127.5), ("space", (100 - 127.5) / 127.5), ((90.0, 20.0), 0.5),
     ({"observation": (0.0, 255.0)}, 100 / 255), ({"observation": (100.0, 1.0)}, 0.0)],
)  # fmt: skip
def test_the_scale_of_an_image_is_as_its_setting_says(scaling, expected):
    policy = build({"image_scaling": scaling}, pixels(8, 8), ACTIONS["bounded"])
    seen = torch.full((1, 8, 8), 100, dtype=torch.uint8)
    values = policy.attended_tokens({"observation": seen})[..., :16]
    torch.testing.assert_close(values, torch.full_like(values, expected))


def test_running_statistics_bring_each_channel_to_mean_0_and_variance_1():
    rng = np.random.default_rng(0)
    policy = build({"image_scaling": "running"}, pixels(3, 8, 8), ACTIONS["bounded"])
    seen = rng.normal(
        [[[[40.0]], [[120.0]], [[200.0]]]], [[[[5.0]], [[10.0]], [[1.0]]]], (200, 3, 8, 8)
    )
    seen = seen.round().astype(np.uint8)
    total = policy.normaliser.statistics
    for one in seen:  # as a search does, episode by episode
        total = total.merge(type(total).empty(6).update(policy.measured(one)[None]))
    policy.normaliser.statistics = total
    batch = {"observation": torch.as_tensor(seen)}
    (scaled,) = policy._scaled_images(batch)
    assert scaled.mean((0, 1, 3, 4)).abs().max() < 0.01
    assert (scaled.std((0, 1, 3, 4)) - 1).abs().max() < 0.02
    twin = build({"image_scaling": "running"}, pixels(3, 8, 8), ACTIONS["bounded"])
    twin.set_statistics(batch)
    torch.testing.assert_close(twin._scaled_images(batch)[0], scaled)


def test_a_scale_that_nothing_tells_is_refused():
    unbounded = box(8, 8, low=-np.inf, high=np.inf)
    with pytest.raises(ValueError, match=r"image_scaling must be running or .* for observation"):
        build({"image_scaling": "space"}, unbounded, ACTIONS["bounded"])
    with pytest.raises(ValueError, match="grey must be false for observation, whose images have 1"):
        build({"grey": True}, unbounded, ACTIONS["bounded"])
    with pytest.raises(ValueError, match="crop must leave something of the 8 x 8 pixels of obs"):
        build({"image_crop": (4, 4, 0, 0)}, unbounded, ACTIONS["bounded"])


def test_a_smaller_grey_image_is_its_means():
    """The control of the driving task: 8 x 8 grey, no attention."""
    policy = build(
        {"image_px": (8, 8), "grey": True, "selection": "all", "hidden": (), "patch": (1, 1),
         "image_scaling": (0.0, 255.0)},
        pixels(96, 96, 3), ACTIONS["bounded"],
    )  # fmt: skip
    seen = np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)
    (scaled,) = policy._scaled_images({"observation": torch.as_tensor(seen)[None]})
    expected = (seen @ [0.299, 0.587, 0.114]).reshape(8, 12, 8, 12).mean((1, 3)) / 255
    np.testing.assert_allclose(scaled.numpy()[0, 0, 0], expected, atol=1e-5)
    assert sum(p.numel() for p in policy.parameters()) == 64 * 2 + 2


def test_places_alone_are_row_and_column_of_the_best():
    """The policy of AttentionAgent's task: 7 x 7 at stride 4 of 96 x 96 colours, top ten."""
    settings = {"patch": (7, 7), "stride": (4, 4), "keep_tokens": 10, "variant": "rank",
                "rank_with": "places", "hidden": (), "score_step": 0.001}  # fmt: skip
    policy = build(settings, pixels(96, 96, 3), ACTIONS["bounded"])
    assert policy.tokens.count == 529
    assert policy.controller.layers[0].in_features == 20
    assert sum(p.numel() for p in policy.parameters()) == 2 * 4 * (147 + 6) + 21 * 2
    seen = {"observation": torch.as_tensor(drawn(pixels(96, 96, 3), 2)[0])[None]}
    best = policy.selection.best(policy.selection.scores(policy.attended_tokens(seen)))[0]
    outputs = policy._attended(policy.tokens, seen)[0].view(10, 2)
    expected = torch.stack([best // 23, best % 23], -1)
    torch.testing.assert_close(outputs, (2 * expected + 1) / 23 - 1)


def test_equal_scores_are_in_the_order_of_the_tokens():
    settings = {"keep_tokens": 5, "score_step": 0.5, "variant": "rank"}
    policy = build(settings, pixels(16, 16), ACTIONS["bounded"])
    scores = torch.tensor([[1.0, 1.1, 5.0, 0.9, 1.05, 5.1, 0.95, 1.0]])
    assert policy.selection.best(scores)[0].tolist() == [2, 5, 0, 1, 3]


REMEMBERING = [
    {"controller": "lstm"}, {"controller": "gru"}, {"controller": "gru", "hidden": (7, 5)},
    {"controller": "lstm", "last_action": True}, {"last_action": True, "hidden": ()},
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "actions"),
    [*zip(REMEMBERING, itertools.cycle(["bounded", "discrete from", "grid", "switches"]))],
)
def test_steps_in_a_row_are_the_same_as_one_by_one(settings, actions):
    """Two episodes, one behind the other, and beside them the other way round."""
    space = OBSERVATIONS["image and vector"]
    policy = build(settings, space, ACTIONS[actions])
    seen, made, taken = drawn(space, 7), [], []
    for step, one in enumerate(seen):
        if step in (0, 4):
            policy.reset()
        taken.append(np.asarray(policy.act(one)))
        made.append(policy._memory.state)
    starts = torch.zeros(7, dtype=torch.bool)
    starts[[0, 4]] = True
    orders = torch.stack([torch.arange(7), torch.tensor([4, 5, 6, 0, 1, 2, 3])])
    batch = {key: part[orders] for key, part in stacked(seen).items()}
    actions_taken = torch.as_tensor(np.stack(taken))[orders]
    memory, found = policy.start(2), []
    for part in (slice(0, 3), slice(3, 7)):  # it goes on from what was carried
        decision, memory = policy.unroll(
            {key: values[:, part] for key, values in batch.items()},
            actions_taken[:, part], starts[orders][:, part], memory,
        )  # fmt: skip
        found.append(decision.action().unflatten(0, (2, -1)))
    given = torch.cat(found, 1).float()
    torch.testing.assert_close(given, actions_taken.float().view_as(given), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(memory.state[1], made[3][0])
    decision.loss(actions_taken[:, 3:].flatten(0, 1)).backward()
    assert_gradients(policy)


@pytest.mark.parametrize("settings", [{}, {"hidden": ()}, {"controller": "gru"}])
def test_a_policy_can_begin_in_the_middle_of_its_actions(settings):
    space = OBSERVATIONS["image and vector"]
    usual = build(settings, space, ACTIONS["bounded"])
    still = build({**settings, "init_output": 0}, space, ACTIONS["bounded"])
    bounds = ACTIONS["bounded"]
    for seen in drawn(space, 3):
        np.testing.assert_allclose(still.act(seen), (bounds.low + bounds.high) / 2, atol=1e-6)
        assert not np.allclose(usual.act(seen), still.act(seen))
    half = build({**settings, "init_output": 0.5}, space, ACTIONS["bounded"])
    assert torch.equal(half.controller.output.weight, usual.controller.output.weight / 2)


@pytest.mark.parametrize("bins", [2, 3, 4, 25, (7, 0, 4)])
def test_equal_votes_mean_the_middle_and_others_the_largest(bins):
    """With zero weights an action is no correction, whatever the number of bins."""
    space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    head = head_for(space, None, bins)
    assert torch.equal(head(torch.zeros(2, head.size)).action(), torch.zeros(2, 3))
    numbers = torch.randn(50, head.size, generator=torch.Generator().manual_seed(0))
    decision = head(numbers)
    chosen = torch.stack([one.argmax(-1) for one in decision.choices()], -1)
    assert torch.equal(decision.action(), head.explored(chosen, decision.means()))
    assert float(decision.right(decision.action())) == 1.0


def test_equal_votes_of_feet_mean_no_correction():
    head = FootholdHead(Footholds())
    assert head(torch.zeros(1, head.size)).action().numpy() == pytest.approx(0, abs=1e-7)


def test_text_beside_other_parts_is_left_out():
    space = spaces.Dict({"word": spaces.Text(9), "arm": spaces.Dict({"said": spaces.Text(5)}),
                         "speed": box(2)})  # fmt: skip
    policy = build({}, space, ACTIONS["bounded"])
    assert policy.inputs.observations.keys == ["speed"]
    seen = {"word": "left", "arm": {"said": "no"}, "speed": np.zeros(2, np.float32)}
    assert policy.act(seen) in ACTIONS["bounded"]


def test_parts_that_cannot_be_read_are_refused_with_the_remedy():
    space = spaces.Dict({"list": spaces.Sequence(spaces.Discrete(3)), "speed": box(2)})
    with pytest.raises(ValueError, match=r"observation_keys=\{drop: \[list\]\} leaves it out"):
        build({}, space, ACTIONS["bounded"])
