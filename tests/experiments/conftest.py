"""Small data sets of our own, in the files that the real ones have."""

import gzip

import numpy as np
import pytest


def write_idx(path, array):
    """An IDX file of unsigned bytes, packed."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


@pytest.fixture(scope="session")
def clothes(tmp_path_factory):
    """A folder with the four files of Fashion-MNIST: 90 and 30 pictures, the brighter by class."""
    folder = tmp_path_factory.mktemp("data") / "fashion_mnist"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for part, count in (("train", 90), ("t10k", 30)):
        labels = np.arange(count) % 10
        images = labels[:, None, None] * 25 + draw.integers(0, 20, (count, 28, 28))
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    return str(folder.parent)
