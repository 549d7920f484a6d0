"""Small data sets, and the experiment that a test module describes."""

import pytest

from tests.experiments.small_data import (
    packed,
    tones,
    write_clothes,
    write_recordings,
    write_stories,
)


@pytest.fixture(scope="session")
def clothes(tmp_path_factory):
    """A folder with Fashion-MNIST of 90 and 30 images."""
    folder = tmp_path_factory.mktemp("data")
    write_clothes(folder / "fashion_mnist", 90, 30)
    return str(folder)


@pytest.fixture(scope="session")
def data_sets(tmp_path_factory):
    """A folder with every data set that is not generated."""
    folder = tmp_path_factory.mktemp("data")
    write_clothes(folder / "fashion_mnist", 300, 100)
    write_recordings(folder, packed(tones(range(20))))
    write_stories(folder, 3000)
    return folder


@pytest.fixture
def experiment(request, tmp_path):
    """The file of the module's CONFIG."""
    path = tmp_path / "two.yaml"
    path.write_text(request.module.CONFIG)
    return path
