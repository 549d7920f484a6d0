"""Reference values of kernels, trig, positive and hyperbolic features and the angular hybrid."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import attention
from attention import theory
from tests.attention.reference import Computation, Entry, estimate, pair, tensor


def mse(
    name: str, count: str, kernel: str = "softmax", **options: Any
) -> Callable[[Entry], Tensor]:
    """Closed form whose number of projections is the parameter `count` ('D' counts pairs)."""

    def compute(entry: Entry) -> Tensor:
        params = entry["params"]
        m = params["D"] // 2 if count == "D" else params[count]
        return theory.mse(name, *pair(entry), m, kernel=kernel, **options)

    return compute


def gap(name: str) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        iid = mse(name, "m", "gaussian")(entry)
        return iid - mse(name, "m", "gaussian", projection="orthogonal")(entry)

    return compute


def angular(shared: bool) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        m, n = entry["params"]["m"], entry["params"]["n"]
        options = {"num_lambda_features": n, "shared_projections": shared}
        return theory.mse("angular_hybrid", *pair(entry), m, **options)

    return compute


def moment(index: int) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        return theory.lambda_moments(theory.angle(*pair(entry)), entry["params"]["n"])[index]

    return compute


def cross_moment(entry: Entry) -> Tensor:
    """E[SM++ SM^trig] through the errors: the shared hybrid's covariance term, plus SM^2."""
    (x, y), m = pair(entry), entry["params"]["m"]
    n = 8
    shared, independent = (
        theory.mse("angular_hybrid", x, y, m, num_lambda_features=n, shared_projections=value)
        for value in (True, False)
    )
    mixed = theory.lambda_moments(theory.angle(x, y), n)[2]
    return attention.kernels.softmax(x, y) ** 2 + (shared - independent) / (2 * mixed)


def conformity(entry: Entry) -> Tensor:
    v = tensor(entry["inputs"]["v2"]).sqrt()
    return theory.rf_conformity("orthogonal", v, entry["inputs"]["d"])


def relative_maximum(name: str) -> Callable[[Entry], Tensor]:
    """Largest relative error on the sphere of radius r, over a grid refined once."""

    def compute(entry: Entry) -> Tensor:
        r, m = entry["inputs"]["r"], entry["params"]["m"]
        options = {"num_lambda_features": entry["params"]["n"]} if "n" in entry["params"] else {}

        def error(theta: Tensor) -> Tensor:
            x = r * tensor([1.0, 0.0]).expand(len(theta), 2)
            y = r * torch.stack((theta.cos(), theta.sin()), -1)
            return theory.mse(name, x, y, m, **options).sqrt() / attention.kernels.softmax(x, y)

        grid = torch.linspace(0, math.pi, 20001, dtype=torch.float64)[1:]
        best = grid[error(grid).argmax()]
        fine = torch.linspace(-1, 1, 20001, dtype=torch.float64) * 2e-4 + best
        return error(fine.clamp(max=math.pi)).max()

    return compute


CLOSED_FORMS: dict[str, Computation] = {
    **dict.fromkeys(
        ("kernel.gauss.P2a", "kernel.gauss.P4", "kernel.gauss.P8", "kernel.gauss.sigma1.5.P4"),
        lambda entry: attention.kernels.gaussian(*pair(entry), sigma=entry["params"]["sigma"]),
    ),
    "kernel.softmax.P64": lambda entry: attention.kernels.softmax(*pair(entry)),
    "trig.var_phi.P2a": mse("trig", "D", "gaussian"),
    "trig.var_phi.P64": mse("trig", "D", "gaussian"),
    "trig.mse_softmax.P8": mse("trig", "m"),
    "trig.mse_softmax.P64": mse("trig", "m"),
    **dict.fromkeys(
        ("pos.mse_softmax.P2a", "pos.mse_softmax.P4", "pos.mse_softmax.P64"), mse("positive", "m")
    ),
    **dict.fromkeys(
        ("pos.var_gauss.P2a", "pos.var_gauss.P4", "pos.var_gauss.P64"),
        mse("positive", "M", "gaussian"),
    ),
    "hyp.mse_softmax.P4": mse("hyperbolic", "m"),
    "hyp.mse_softmax.P8": mse("hyperbolic", "m"),
    "prf.mse.iid.P8": mse("positive", "m", "gaussian"),
    "prf.mse.iid.P64": mse("positive", "m", "gaussian"),
    "prf.mse.orf.P2a": mse("positive", "m", "gaussian", projection="orthogonal"),
    "gap.prf.P64": gap("positive"),
    "gap.rff.P64": gap("trig"),
    "conf.orf.d2.v2_1.0": conformity,
    "ang.lambda.P4": lambda entry: theory.angle(*pair(entry)) / math.pi,
    "ang.lambda2.P4": moment(0),
    "ang.lambda2.P64": moment(0),
    "ang.one_minus2.P4": moment(1),
    **dict.fromkeys(
        ("hrf.ang.indep.P2a", "hrf.ang.indep.P4", "hrf.ang.indep.P8"), angular(shared=False)
    ),
    **dict.fromkeys(
        ("hrf.ang.shared.P2a", "hrf.ang.shared.P8", "hrf.ang.shared.P64"), angular(shared=True)
    ),
    "hrf.crossmoment.P4": cross_moment,
    "relerr.max.trig.r1.5": relative_maximum("trig"),
    **dict.fromkeys(
        ("relerr.max.ang.r1.0.n8", "relerr.max.ang.r1.5.n8", "relerr.max.ang.r2.0.n1"),
        relative_maximum("angular_hybrid"),
    ),
}


def positive_estimate(entry: Entry) -> Tensor:
    omega = tensor(entry["params"]["omega"])
    return estimate(attention.feature_map("positive", 2, 3, projection=omega), entry)


def hybrid(entry: Entry) -> attention.FeatureMap:
    params = entry["params"]
    return attention.feature_map(
        "angular_hybrid",
        2,
        3,
        projection=tensor(params["omega"]),
        num_lambda_features=3,
        lambda_projection=tensor(params["tau"]),
    )


def lambda_estimate(entry: Entry) -> Tensor:
    """The coefficient alone, read off the map: its first base's features set to 1, the other's 0.

    The map's products of features with signs, times C, are what multiplies each base.
    """
    tau = tensor(entry["params"]["tau"])
    fm = attention.feature_map(
        "angular_hybrid", 2, 1, projection=0 * tau[:1], num_lambda_features=3, lambda_projection=tau
    )
    x, y = pair(entry)
    products = (fm.queries(x) * fm.keys(y)).unflatten(-1, (4, 4))
    # With omega = 0 the first base (two columns) gives exp(-(|x|^2+|y|^2)/2), times lambda.
    return products[:, :2].sum() * (0.5 * (x.square().sum() + y.square().sum())).exp()


def scaled_attention(entry: Entry) -> tuple[Tensor, Tensor, Tensor]:
    """x = d^-1/4 q, y = d^-1/4 k, v."""
    q, k, v = (tensor(entry["inputs"][name]) for name in "QKV")
    return q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25, v


def hybrid_attention(entry: Entry) -> Tensor:
    x, y, v = scaled_attention(entry)
    fm = hybrid(entry)
    stabilised = fm.attend(x, y, v)
    torch.testing.assert_close(
        attention.linear_attention(fm.queries(x), fm.keys(y), v), stabilised, rtol=1e-12, atol=0
    )
    return stabilised


def exact_attention(entry: Entry) -> Tensor:
    x, y, v = scaled_attention(entry)
    return attention.ExactSoftmax(2).attend(x, y, v)


FIXED_PROJECTIONS: dict[str, Computation] = {
    "pos.est.P2a": positive_estimate,
    "ang.est.P2a": lambda_estimate,
    "hrf.est.ang.P2a": lambda entry: estimate(hybrid(entry), entry),
    "attn.exact.bidir": exact_attention,
    "attn.anghyb.bidir": hybrid_attention,
}
