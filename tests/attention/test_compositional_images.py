"""Image skeletons with channels, and with the principal components of their patches."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from attention import compositional as c
from attention.compositional import Exponential, PatchComponents, ReLU
from tests.attention.cases import rejects


def pictures(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).random((n, *shape))


def test_image_skeletons():
    """A patch averages all channels; its components are the inputs of its node alone."""
    images = pictures(5, 4, 5, 3)
    skeleton = c.image_skeleton(4, 5, [(2, 1, Exponential(0.25))], ReLU(), scale=2.0, channels=3)
    assert skeleton.num_columns == len(skeleton.inputs) == 60
    angles = 2.0 * images
    cosines = np.cos(angles[:, None] - angles[None])
    patches = [
        np.exp((cosines[:, :, i : i + 2, j : j + 2].mean((2, 3, 4)) - 1) / 4)
        for i in range(3)
        for j in range(4)
    ]
    exact = ReLU().value(np.mean(patches, axis=0))
    assert_allclose(skeleton.gram(images.reshape(5, -1)), exact, atol=1e-12)
    skeleton = c.image_skeleton(
        24, 24, [(4, 2, ReLU()), (5, 2, ReLU())], ReLU(), components=10, channels=3
    )
    assert len(skeleton.nodes["layer1_10_10"].inputs) == 10
    assert len(skeleton.nodes["layer2_0_0"].inputs) == 25
    assert skeleton.num_columns == len(skeleton.inputs) == 11 * 11 * 10
    columns = [skeleton.inputs[n].columns[0] for n in skeleton.nodes["layer1_1_2"].inputs]
    assert columns == [*range(130, 140)]


def test_components_are_the_directions_of_most_variance():
    images = pictures(40, 7, 9, 2)
    found = PatchComponents.fit(images, 3, 2, 5)
    patches = np.array([
        image[i : i + 3, j : j + 3].ravel()
        for image in images for i in (0, 2, 4) for j in (0, 2, 4, 6)
    ])  # fmt: skip
    assert_allclose(found.mean, patches.mean(0), atol=1e-12)
    _, sizes, rows = np.linalg.svd(patches - patches.mean(0), full_matrices=False)
    assert_allclose(np.abs(np.sum(rows[:5] * found.directions.T, axis=1)), 1, atol=1e-9)
    projected = found.transform(images)
    assert projected.shape == (40, 12 * 5)
    assert_allclose(np.square(projected).mean(), 1)
    by_component = np.square(projected.reshape(-1, 5)).mean(0)
    assert_allclose(by_component / by_component[0], (sizes[:5] / sizes[0]) ** 2)
    assert found.transform(images.astype(np.float32)).dtype == np.float32
    one = (patches[7] - found.mean) @ found.directions / found.size
    assert_allclose(projected[0, 35:40], one)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: c.image_skeleton(4, 4, [], ReLU(), channels=0), "channels must be at least 1"),
        (lambda: c.image_skeleton(4, 4, [], ReLU(), components=2), "2 with 0 convolutions"),
        (lambda: c.image_skeleton(4, 4, [(2, 2, ReLU())], ReLU(), components=0), "got 0 with 1"),
        (lambda: PatchComponents.fit(pictures(2, 4, 4), 2, 1, 5), "1 and the 4 numbers .* got 5"),
        (lambda: PatchComponents.fit(pictures(2, 4, 4), 5, 1, 1), "window must lie between 1 and"),
        (lambda: PatchComponents.fit(pictures(2, 4), 2, 1, 1), r"images must have .*\(2, 4\)"),
        (lambda: PatchComponents.fit(np.ones((2, 4, 4)), 2, 1, 1), "got identical ones"),
        (lambda: PatchComponents.fit(pictures(2, 4, 4), 2, 1, 1).transform(pictures(1, 4, 4, 3)),
         "patches of 4 numbers, got 12"),
    ],
)  # fmt: skip
def test_bad_arguments(call, message):
    rejects(message, call)
