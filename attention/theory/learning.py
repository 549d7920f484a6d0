"""Effect of the errors of trig and trig_phase features on ridge regression, SVMs and MMD.

These bounds are announced in On the Error of Random Fourier Features and derived here, for a kernel
with 0 <= k <= 1 and k(x, x) = 1.
"""

import math

from attention.options import check_positive
from attention.theory.uniform import check_name

_LARGEST_SQUARE = {"trig": 1.0, "trig_phase": 2.0}
"""Largest squared length of a feature vector: sin^2 + cos^2, and 2 cos^2."""


def ridge_prediction_bound(epsilon: float, target_rms: float, penalty: float) -> float:
    """Bound on the change of a kernel ridge prediction: (penalty + 1) / penalty^2 rms epsilon.

    h(x) = k_x^T (K + n penalty I)^-1 t with n training points and targets t, no offset. The two
    terms are due to k_x and to the inverse.

    Args:
        epsilon: largest error of an estimated kernel value, as bounded by `uniform_bound`.
        target_rms: root mean square of the targets.
        penalty: regularisation per training point.

    Raises ValueError for arguments that are not positive.
    """
    check_positive(epsilon=epsilon, target_rms=target_rms, penalty=penalty)
    return (penalty + 1) / penalty**2 * target_rms * epsilon


def svm_prediction_bound(name: str, spectral_error: float, c: float) -> float:
    """Bound on the change of the output of a support vector machine, where w minimises

        |w|^2/2 + c mean_i max(0, 1 - t_i w.phi(x_i)),   labels t_i, no offset.

    With delta = sqrt(spectral_error): c (sqrt(2 delta) + delta) for trig, and c (sqrt(2 (1 + sqrt
    2) delta) + delta) for trig_phase, whose features may have length sqrt 2. Columns of the square
    roots of the kernel matrices serve as features: they differ by at most delta, |w| is at most c
    times their length, and the objective is strongly convex.

    Args:
        spectral_error: |K^ - K|_2 over the n training points and the test point; at most n + 1
            times the largest error of an entry.
        c: weight of the mean loss.

    Raises ValueError for other names and arguments that are not positive.
    """
    check_name(name)
    check_positive(spectral_error=spectral_error, c=c)
    delta = math.sqrt(spectral_error)
    square = _LARGEST_SQUARE[name]
    return c * (math.sqrt((1 + math.sqrt(square)) * square * delta) + delta)


def mmd_tail_bound(name: str, rows: int, epsilon: float) -> float:
    """Bound on P(|squared MMD of features - that of the kernel| >= epsilon).

    For two samples, squared MMD is |mean phi(x) - mean phi(y)|^2: an unbiased mean over independent
    frequencies of F/2 terms in [0, 4] (trig) or F terms in [0, 8] (trig_phase). Hoeffding's
    inequality gives 2 exp(-F eps^2/16) and 2 exp(-F eps^2/32) for any samples.

    Raises ValueError for other names and arguments that are not positive.
    """
    check_name(name)
    check_positive(rows=rows, epsilon=epsilon)
    return 2 * math.exp(-rows * epsilon**2 / (16 if name == "trig" else 32))
