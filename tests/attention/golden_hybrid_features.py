"""Reference values of the general Gaussian coefficient with fixed taus."""

from collections.abc import Callable

from torch import Tensor

from attention.hybrid import GaussianCoefficient
from tests.attention.reference import Computation, Entry, pair, tensor


def coefficient(features: str) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        params = entry["params"]
        tau = tensor(params["tau"])
        module = GaussianCoefficient(
            2,
            len(tau),
            M=tensor(params["M"]),
            c=params["c"],
            lambda_features=features,
            projection=tau,
        )
        x, y = pair(entry)
        return module.estimate(x.unsqueeze(0), y.unsqueeze(0)).squeeze()

    return compute


CLOSED_FORMS: dict[str, Computation] = {}
FIXED_PROJECTIONS: dict[str, Computation] = {
    "lam.gaussgen.est_pos.P2a": coefficient("positive"),
    "lam.gaussgen.est_trig.P2a": coefficient("trig"),
}
