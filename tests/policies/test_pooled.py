"""The pooled Vision-Performer: any images, any actions, few parameters."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

import policies
from policies import PooledPolicyConfig
from training.algorithms.workers import get_parameters

STONES = spaces.Dict(
    {
        "depth": spaces.Box(0.0, 2.0, (2, 24, 32), np.float32),
        "proprio": spaces.Box(-np.inf, np.inf, (45,), np.float32),
    }
)
FEET = spaces.Box(-1.0, 1.0, (9,), np.float32)
SPACES = {
    "colours": (spaces.Box(0, 255, (21, 30, 3), np.uint8), spaces.Discrete(4)),
    "frames": (spaces.Box(0, 255, (4, 16, 20), np.uint8), spaces.Box(-2.0, 2.0, (3, 2))),
    "stones": (STONES, FEET),
    "vector": (spaces.Box(-1.0, 1.0, (5,), np.float32), spaces.MultiDiscrete([2, 3])),
    "two": (
        spaces.Dict(
            {
                "left": spaces.Box(0.0, np.inf, (13, 11), np.float32),
                "right": spaces.Box(0, 255, (3, 8, 12), np.uint8),
                "speed": spaces.Box(-9.0, 9.0, (2,), np.float32),
            }
        ),
        spaces.MultiBinary(3),
    ),
}


def seeing(space, seed=0):
    space.seed(seed)
    return space.sample()


@pytest.mark.parametrize("controller", ["mlp", "lstm", "gru"])
@pytest.mark.parametrize("name", SPACES)
def test_it_acts_in_any_spaces_and_every_parameter_learns(name, controller):
    observed, acts = SPACES[name]
    config = PooledPolicyConfig(controller=controller, patch=(5, 4), patch_readout=2)
    policy = policies.build(config, observed, acts)
    assert acts.contains(policy.act(seeing(observed)))
    given = policy._one(seeing(observed))
    action = torch.as_tensor(np.asarray(seeing(acts)))[None]
    memory = policy.start(1)
    policy.unroll(
        {key: part[:, None].expand(-1, 3, *part.shape[1:]) for key, part in given.items()},
        action[:, None].expand(-1, 3, *action.shape[1:]), torch.zeros(1, 3, dtype=torch.bool),
        memory,
    )[0].loss(action.expand(3, *action.shape[1:])).backward()  # fmt: skip
    for key, parameter in policy.named_parameters():
        dead = parameter.grad is None or not parameter.grad.any()
        # Attention's softmax is blind to a constant that all keys share.
        assert not dead or "in_proj_bias" in key, key


def test_it_is_small():
    policy = policies.build(PooledPolicyConfig(hidden=()), STONES, FEET)
    assert len(get_parameters(policy)) < 7000
    policy = policies.build(PooledPolicyConfig(hidden=()), *SPACES["colours"])
    assert len(get_parameters(policy)) < 1100


def test_a_mapping_without_a_form_means_what_the_spaces_allow():
    made = policies.build({"name": "vision_performer"}, *SPACES["colours"])
    assert isinstance(made, policies.PooledVisionPerformer)
    sweep = spaces.Dict(
        {
            "rgb": spaces.Box(0, 255, (50, 50, 3), np.uint8),
            "pose": spaces.Box(-9.0, 9.0, (4,), np.float32),
        }
    )
    box = spaces.Box(-1.0, 1.0, (4,), np.float32)
    assert isinstance(
        policies.build({"name": "vision_performer"}, sweep, box), policies.VisionPerformerPolicy
    )
    assert isinstance(
        policies.build({"name": "vision_performer", "form": "pooled"}, sweep, box),
        policies.PooledVisionPerformer,
    )
    with pytest.raises(ValueError, match=r"form pooled takes any\), got Box"):
        policies.build({"name": "vision_performer", "head": "joint"}, *SPACES["colours"])


def test_tokens_meet_by_attention_alone():
    """Without it what one place holds does not change what is read of another."""
    observed, acts = SPACES["colours"]
    picture = seeing(observed)
    changed = picture.copy()
    changed[:5, :4] = 255 - changed[:5, :4]
    for attend in (True, False):
        config = PooledPolicyConfig(patch=(5, 4), patch_readout=1, attend=attend)
        policy = policies.build(config, observed, acts)
        outputs = [
            policy._attended(policy.tokens, policy._one(image)).detach()[0]
            for image in (picture, changed)
        ]
        moved = (outputs[0] - outputs[1]).abs() > 1e-7
        assert moved[0]
        assert bool(moved[1:].any()) == attend


def test_attention_is_an_image_that_adds_up():
    observed, acts = SPACES["colours"]
    policy = policies.build(PooledPolicyConfig(patch=(7, 6)), observed, acts)
    shares = policy.attention_map(seeing(observed))
    assert shares.shape == (21, 30)
    assert shares[::7, ::6].sum() == pytest.approx(1.0, abs=1e-5)
    two = policies.build(PooledPolicyConfig(), *SPACES["two"])
    with pytest.raises(ValueError, match="exactly one image"):
        two.attention_map(seeing(SPACES["two"][0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embed_dim": 9}, "embed_dim must be a multiple of heads = 2, got 9"),
        ({"embed_dim": 2, "projection": "iid"}, "qk_length must be null where heads have one"),
        ({"controller": "vote"}, "controller must be one of auto, mlp, lstm, gru.*got 'vote'"),
        ({"controller": "lstm", "hidden": []}, "hidden must have a width with the controller lstm"),
        ({"keep": 0.5}, "unknown key keep; the keys known there are"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        policies.build(
            {"name": "vision_performer", "form": "pooled", **settings}, *SPACES["colours"]
        )
