"""Choosing which pixels of a frame are written: by attention, with gradients, or by chance."""

from contextlib import closing

import gymnasium
import pytest
import torch

import envs  # noqa: F401 - registers SteppingStones-v0
from policies.implicit_attention.selection import straight_through
from tests.policies.walks import FRONT, build
from training.analysis.step_cost import count

RANDOM = {"write_choice": "random"}


@pytest.fixture(scope="module")
def stones():
    with closing(
        gymnasium.make("SteppingStones-v0", episode_s=1.0, depth_dropped_blocks=0.1, **FRONT)
    ) as made:
        yield made


def written(policy, parts, starts):
    """The tokens of a walk that are written, each (steps, tokens), and all of them."""
    seen = policy.ground(parts)
    begins = starts.unsqueeze(0)
    chosen = policy._tokens(parts, begins, policy._nothing(1))[0]
    return chosen, (seen.forward_m, seen.holes, seen.weights)


def test_the_best_by_score_of_those_that_count_are_written(stones, walk):
    policy = build(stones, write_tokens=12)
    _, parts, _, starts = walk
    with torch.no_grad():
        chosen, every = written(policy, parts, starts)
        described = policy.choice.described(parts, policy.ground(parts), every[2])
        scores = policy.choice.selection.scores(described)
    for step in range(len(starts)):
        counting = every[2][step].nonzero().flatten()
        best = counting[scores[step, counting].argsort(descending=True)[:12]]
        expected = every[0][step, best].sort().values
        assert torch.equal(chosen[0][step].sort().values, expected)
    assert (chosen[2] == 1).all()
    assert described.isfinite().all()
    assert described.std((0, 1))[:-1].min() > 0.05  # none but the last is the same everywhere


def test_the_choice_is_as_hard_in_training_and_gradients_reach_the_scores(stones, walk):
    """Also those of pixels that are not written."""
    policy = build(stones, write_tokens=12)
    _, parts, actions, starts = walk
    chosen, _ = written(policy, parts, starts)
    with torch.no_grad():
        hard, _ = written(policy, parts, starts)
    assert set(chosen[2].unique().tolist()) == {0.0, 1.0}
    for step in range(len(starts)):
        kept = chosen[2][step] == 1
        assert torch.equal(chosen[0][step, kept].sort().values, hard[0][step].sort().values)
    query, left_out = policy.choice.selection.query, chosen[2] == 0
    chosen[2][left_out].sum().backward()
    assert query.grad.abs().sum() > 0
    query.grad = None
    made, _ = policy.unroll(
        {key: part[None] for key, part in parts.items()}, actions[None], starts[None],
        policy.start(1),
    )  # fmt: skip
    made.loss(actions).backward()
    assert query.grad.abs().sum() > 0
    assert policy.choice.selection.key.grad.abs().sum() > 0


def test_gradients_are_those_of_soft_weights():
    """A sigmoid of the distance to the last score kept, a quarter of the deviation wide."""
    scores = torch.tensor([[0.3, 2.0, -1.0, 0.9, 1.4]], requires_grad=True)
    best = torch.tensor([[1, 4]])
    worth = torch.tensor([[0.5, -1.0, 2.0, 3.0, -4.0]])
    gate = straight_through(scores, best, scores.take_along_dim(best, -1))
    assert gate.tolist() == [[0, 1, 0, 0, 1]]
    (gate * worth).sum().backward()
    again = scores.detach().clone().requires_grad_()
    scale = 0.25 * again.std(-1, keepdim=True).detach()
    (((again - again[:, 4:]) / scale).sigmoid() * worth).sum().backward()
    torch.testing.assert_close(scores.grad, again.grad)


@pytest.mark.parametrize("choice", ["learned", "random"])
def test_a_frame_with_fewer_pixels_that_count_is_written_whole(stones, walk, choice):
    """As by the memory that writes all; and training takes it."""
    _, parts, actions, starts = walk
    everything = build(stones)
    most = int(everything.ground(parts).weights.sum(-1).max())
    policy = build(stones, write_tokens=most + 5, write_choice=choice)
    policy.controller.load_state_dict(everything.controller.state_dict())
    found = []
    for one in (everything, policy):
        one.set_statistics(parts)
        begun = {key: part.unsqueeze(0) for key, part in parts.items()}
        made, _ = one.unroll(begun, actions[None], starts[None], one.start(1))
        found.append(made.action())
    torch.testing.assert_close(*found)
    made.loss(actions).backward()
    assert all(parameter.grad.isfinite().all() for parameter in policy.parameters())


def test_pixels_of_several_cameras_are_chosen_among():
    two = gymnasium.make("SteppingStones-v0")
    observation, _ = two.reset(seed=1)
    policy = build(two, write_tokens=40)
    parts = {key: torch.from_numpy(part)[None].repeat(2, *[1] * part.ndim)
             for key, part in observation.items()}  # fmt: skip
    seen = policy.ground(parts)
    described = policy.choice.described(parts, seen, seen.weights)
    assert described.shape == (2, 2 * 768, 10)
    assert torch.equal(described[0], described[1])
    row_column = described[0, :, :2].view(2, 24, 32, 2)
    assert torch.equal(row_column[0], row_column[1])
    assert policy.act(observation).shape == (9,)
    two.close()


def test_a_random_choice_is_the_same_again_and_another_at_each_step(stones, walk):
    _, parts, _, starts = walk
    policy, again, other = (
        build(stones, write_tokens=12, init_seed=seed, **RANDOM) for seed in (0, 0, 1)
    )
    same = {key: part[:1].expand(len(starts), *part.shape[1:]) for key, part in parts.items()}
    chosen = [written(one, same, starts)[0][0] for one in (policy, again, other)]
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])
    second = int(starts.nonzero()[1])
    assert torch.equal(chosen[0][0], chosen[0][second])  # the first steps of two episodes
    assert not torch.equal(chosen[0][0], chosen[0][1])
    assert (written(policy, parts, starts)[0][2] == 1).all()


def test_scoring_is_counted_and_fewer_tokens_are_cheaper_to_write(stones, walk):
    """The state is the same, but for a random choice's count of steps."""
    seen, costs, carried = walk[0][0], {}, {}
    for name, settings in {
        "all": {}, "random 8": {"write_tokens": 8, **RANDOM},
        "random 64": {"write_tokens": 64, **RANDOM}, "learned 8": {"write_tokens": 8},
    }.items():  # fmt: skip
        policy = build(stones, **settings)
        policy.act(seen)
        costs[name] = count(lambda policy=policy: policy.act(seen)).by_component
        carried[name] = policy.carried
    assert costs["random 8"]["score"] < costs["random 64"]["score"] < costs["all"]["score"]
    features = policy.choice.selection.features
    pixels = sum(policy.ground.pixels)
    extra = costs["learned 8"]["score"] - costs["random 8"]["score"]
    # Sums of the queries' features, a product with each key's.
    assert extra >= 3 * pixels * features.output_dim
    assert costs["learned 8"]["projection"] - costs["random 8"]["projection"] >= 2 * 2 * pixels * 40
    assert carried["learned 8"] == carried["all"] == carried["random 8"] - 1


def test_more_than_a_frame_has_is_refused(stones):
    with pytest.raises(ValueError, match="write_tokens must be at most the 768 pixels of a frame"):
        build(stones, write_tokens=769)
