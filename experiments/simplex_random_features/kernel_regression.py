"""Classes predicted by kernel regression (Nadaraya-Watson), exactly and with random features.

The score of class c at x is sum_i K(x, x_i) [y_i = c]; the largest one wins, so the denominator
that all classes share is left out and signed features are allowed (Chefs' Random Tables,
section 5.2). With features the training rows of a class are summed first: O(L F) once, then
O(F classes) a row to predict.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import attention

BLOCK = 2**18
"""Entries of a block of features, which then fits the cache."""


def exact_accuracy(
    x_train: Tensor, y_train: Tensor, x_test: Tensor, y_test: Tensor, classes: int
) -> float:
    """Share of test rows predicted right with the exact Gaussian kernel exp(-|x-y|^2/2).

    x_train (L, d), y_train (L,) class indices, x_test (T, d), y_test (T,).
    """
    one_hot = torch.nn.functional.one_hot(y_train, classes).to(x_train)
    right = 0
    for x, y in zip(x_test.split(64), y_test.split(64), strict=True):
        squared = (
            x.square().sum(-1, keepdim=True) + x_train.square().sum(-1) - 2 * x @ x_train.mT
        ).clamp_min(0)
        scores = (-0.5 * squared).exp() @ one_hot
        right += int((scores.argmax(-1) == y).sum())
    return right / len(y_test)


def accuracies(
    fm: attention.FeatureMap,
    draws: int,
    x_train: Tensor,
    y_train: Tensor,
    x_test: Tensor,
    y_test: Tensor,
    classes: int,
) -> NDArray[np.float64]:
    """Accuracy of each of several draws of the features, (draws,).

    `fm` holds the projections of all draws, one draw after the other, so that one matrix product
    serves all; its constant 1/sqrt(m) is common to all classes. Shapes as in `exact_accuracy`.
    """
    width = fm.output_dim
    sums = x_train.new_zeros(classes, width)
    rows = max(1, BLOCK // width)
    for c in range(classes):
        for part in x_train[y_train == c].split(rows):
            sums[c] += fm.keys(part).sum(0)
    # (draws, classes, F of a draw) whatever functions a map stacks: they are the slower index
    per_draw = sums.view(classes, -1, draws, fm.num_features // draws)
    right = x_train.new_zeros(draws)
    for x, y in zip(x_test.split(rows), y_test.split(rows), strict=True):
        phi = fm.queries(x).view(len(x), -1, draws, fm.num_features // draws)
        scores = torch.einsum("tfbm,cfbm->btc", phi, per_draw)
        right += (scores.argmax(-1) == y).sum(-1)
    return (right / len(y_test)).numpy()
