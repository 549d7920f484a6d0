"""Tokens of depth images."""

import pytest
import torch

from policies.tokens import PatchTokens


@pytest.fixture
def depth():
    return torch.rand(3, 2, 24, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("patch", [(4, 4), (1, 1), (3, 8)])
def test_patches_and_back(depth, patch):
    tokens = PatchTokens(2, 24, 32, patch)
    values = tokens(depth)
    rows, columns = patch
    assert values.shape == (3, tokens.count, tokens.size)
    assert (tokens.count, tokens.size) == (2 * 24 * 32 // (rows * columns), rows * columns)
    torch.testing.assert_close(tokens.image(values), (depth - 0.5) / 0.3)
    across = 32 // columns
    camera, row, column = 1, 2, 1
    index = camera * (24 // rows) * across + row * across + column
    block = depth[:, 1, row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
    torch.testing.assert_close(values[:, index], ((block - 0.5) / 0.3).flatten(1))


def test_one_number_a_token_fills_its_patch():
    tokens = PatchTokens(2, 24, 32, (4, 4))
    image = tokens.image(torch.arange(96.0).view(1, 96, 1))
    assert (image[0, 0, :4, :4] == 0).all()
    assert (image[0, 0, :4, 4:8] == 1).all()
    assert (image[0, 1, -4:, -4:] == 95).all()


def test_every_place_has_a_code_of_its_own():
    for patch in [(4, 4), (1, 1)]:
        tokens = PatchTokens(2, 24, 32, patch)
        assert len(tokens.places.unique(dim=0)) == tokens.count
        assert tokens.places.abs().max() <= 1
        with_places = tokens.with_places(tokens(torch.zeros(2, 2, 24, 32)))
        assert with_places.shape == (2, tokens.count, tokens.num_features)


def test_a_patch_must_divide_the_image():
    with pytest.raises(ValueError, match=r"divide the 24 x 32 image, got \[4, 5\]"):
        PatchTokens(2, 24, 32, (4, 5))


def test_standardised_pixels_have_mean_0_and_variance_1():
    """By the statistics given; before that, and without the option, as ever."""
    generator = torch.Generator().manual_seed(0)
    depth = 0.3 + torch.rand(3000, 2, 24, 32, generator=generator) * torch.linspace(0.1, 1, 32)
    depth[:, 0, 0, 0] = 0.5  # never varies
    plain, tokens = PatchTokens(2, 24, 32, (4, 4)), PatchTokens(2, 24, 32, (4, 4), standardise=True)
    torch.testing.assert_close(tokens(depth), plain(depth))
    plain.set_statistics(depth)
    tokens.set_statistics(depth.half())  # as demonstrations hold them
    values = tokens(depth)
    assert values.mean(0).abs().max() < 0.01
    spread = values.std(0)
    assert spread.min() == 0
    assert ((spread - 1).abs() < 0.01).sum() == 2 * 24 * 32 - 1
    assert not plain.state_dict()
    again = PatchTokens(2, 24, 32, (4, 4), standardise=True)
    again.load_state_dict(tokens.state_dict())
    assert torch.equal(again(depth), values)
