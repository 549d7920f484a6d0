"""Tokens of images."""

import pytest
import torch

from policies.implicit_attention.tokens import PatchTokens, grid_of


def images_of(*shape, batch=3):
    return torch.rand(batch, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("patch", [(4, 4), (1, 1), (3, 8)])
def test_patches_and_back(patch):
    depth = images_of(2, 1, 24, 32)
    tokens = PatchTokens([(2, (1, 24, 32))], patch)
    values = tokens([depth])
    rows, columns = patch
    assert values.shape == (3, tokens.count, tokens.size)
    assert (tokens.count, tokens.size) == (2 * 24 * 32 // (rows * columns), rows * columns)
    (again,) = tokens.to_images(values)
    assert torch.equal(again, depth)
    across = 32 // columns
    camera, row, column = 1, 2, 1
    index = camera * (24 // rows) * across + row * across + column
    block = depth[:, 1, 0, row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
    assert torch.equal(values[:, index], block.flatten(1))


@pytest.mark.parametrize(
    ("sides", "patch", "stride", "edges", "expected"),
    [
        ((96, 96), (7, 7), (4, 4), "auto", (23, 23)),  # as AttentionAgent: 529
        ((96, 96), (7, 7), (2, 2), "auto", (45, 45)),
        ((96, 96), (7, 7), (1, 1), "auto", (90, 90)),
        ((96, 96), (7, 7), (4, 4), "pad", (24, 24)),
        ((30, 40), (7, 9), None, "auto", (5, 5)),
        ((30, 40), (7, 9), None, "drop", (4, 4)),
        ((5, 4), (7, 9), None, "drop", (1, 1)),
        ((5, 4), (7, 9), (3, 3), "auto", (1, 1)),
        ((10, 10), (2, 2), (5, 5), "auto", (2, 2)),
    ],
)
def test_patches_of_any_size_at_any_stride(sides, patch, stride, edges, expected):
    grid = grid_of(1, (3, *sides), patch, stride, edges)
    assert (grid.rows, grid.columns) == expected
    tokens = PatchTokens([(1, (3, *sides))], patch, stride, edges)
    seen = images_of(1, 3, *sides)
    values = tokens([seen])
    assert values.shape == (3, expected[0] * expected[1], 3 * patch[0] * patch[1])
    down, across = stride or patch
    filled = torch.nn.functional.pad(seen, (0, 20, 0, 20))
    index = values.shape[1] - 1  # the last row and column
    row, column = (expected[0] - 1) * down, (expected[1] - 1) * across
    block = filled[:, 0, :, row : row + patch[0], column : column + patch[1]]
    assert torch.equal(values[:, index], block.flatten(1))
    (again,) = tokens.to_images(values)
    assert again.shape == seen.shape
    (kept,) = tokens.gates(torch.ones(3, tokens.count))
    covered = kept.expand_as(seen) == 1
    torch.testing.assert_close(again[covered], seen[covered])
    assert (again[~covered] == 0).all()


def test_a_pixel_is_kept_where_one_of_its_patches_is():
    tokens = PatchTokens([(1, (1, 10, 10))], (4, 4), (2, 2))
    gate = torch.zeros(1, 16)
    gate[0, [5, 6]] = 1
    (kept,) = tokens.gates(gate)
    expected = torch.zeros(10, 10)
    expected[2:6, 2:8] = 1
    assert torch.equal(kept[0, 0, 0], expected)


def test_images_of_several_sizes_make_tokens_of_one_length():
    parts = [(2, (1, 8, 12)), (1, (3, 10, 6))]
    tokens = PatchTokens(parts, (4, 4))
    seen = [images_of(count, *shape) for count, shape in parts]
    values = tokens(seen)
    assert values.shape == (3, 2 * 2 * 3 + 3 * 2, 48)
    assert (values[:, :12, 16:] == 0).all()
    for again, before in zip(tokens.to_images(values), seen, strict=True):
        assert torch.equal(again, before)
    assert len(tokens.places.unique(dim=0)) == tokens.count


def test_every_place_has_a_code_of_its_own():
    for patch in [(4, 4), (1, 1)]:
        tokens = PatchTokens([(2, (1, 24, 32))], patch)
        assert len(tokens.places.unique(dim=0)) == tokens.count
        assert tokens.places.abs().max() <= 1
        with_places = tokens.with_places(tokens([torch.zeros(2, 2, 1, 24, 32)]))
        assert with_places.shape == (2, tokens.count, tokens.num_features)
        assert tokens.where().shape == (tokens.count, 3)
    assert PatchTokens([(1, (1, 24, 32))], (4, 4)).where().shape == (48, 2)


def test_standardised_pixels_have_mean_0_and_variance_1():
    """Tokens use given statistics; before that, and without the option, they are unscaled."""
    generator = torch.Generator().manual_seed(0)
    depth = 0.3 + torch.rand(3000, 2, 1, 24, 32, generator=generator) * torch.linspace(0.1, 1, 32)
    depth[:, 0, 0, 0, 0] = 0.5  # never varies
    plain = PatchTokens([(2, (1, 24, 32))], (4, 4))
    tokens = PatchTokens([(2, (1, 24, 32))], (4, 4), standardise=True)
    tokens.start_statistics([(0.5, 0.3)])
    assert torch.equal(tokens.standardised([depth])[0], (depth - 0.5) / 0.3)
    plain.set_statistics([depth])
    tokens.set_statistics([depth.half()])  # as demonstrations hold them
    values = tokens(tokens.standardised([depth]))
    assert values.mean(0).abs().max() < 0.01
    spread = values.std(0)
    assert spread.min() == 0
    assert ((spread - 1).abs() < 0.01).sum() == 2 * 24 * 32 - 1
    assert tokens.unit_m.min() == torch.tensor(0.01)
    assert not plain.state_dict()
    again = PatchTokens([(2, (1, 24, 32))], (4, 4), standardise=True)
    again.load_state_dict(tokens.state_dict())
    assert torch.equal(again.standardised([depth])[0], tokens.standardised([depth])[0])
