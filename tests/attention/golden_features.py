"""Reference estimates of the maps one a file, with fixed projections, and FAVOR++ attention."""

import torch
from torch import Tensor

import attention
from tests.attention.reference import Computation, Entry, estimate, tensor


def trig_phase(entry: Entry) -> Tensor:
    omega, phase = (tensor(entry["params"][name]) for name in ("omega", "b"))
    fm = attention.feature_map("trig_phase", 2, 3, kernel="gaussian", projection=omega, phase=phase)
    return estimate(fm, entry)


def gerf(entry: Entry) -> Tensor:
    params = entry["params"]
    fm = attention.feature_map(
        "gerf",
        2,
        3,
        kernel="gaussian",
        projection=tensor(params["omega"]),
        A=complex(*params["A"]),
        s=params["s"],
    )
    return estimate(fm, entry)


def poisson(entry: Entry) -> Tensor:
    params = entry["params"]
    fm = attention.feature_map(
        "poisson",
        2,
        3,
        kernel="gaussian",
        projection=torch.tensor(params["omega_int"]),
        lam=params["lambda"],
        dtype=torch.float64,
    )
    return estimate(fm, entry)


def inputs(entry: Entry) -> tuple[Tensor, Tensor, Tensor]:
    """x = d^-1/4 q, y = d^-1/4 k, v."""
    q, k, v = (tensor(entry["inputs"][name]) for name in "QKV")
    return q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25, v


def favor_plus_plus_parameter(entry: Entry) -> Tensor:
    x, y, _ = inputs(entry)
    fm = attention.feature_map("oprf", 2, 3, dtype=torch.float64).fit(x, y)
    twin = attention.feature_map("gerf", 2, 3, dtype=torch.float64).fit(x, y)
    assert torch.equal(fm.A, twin.A_real)
    return fm.A


def favor_plus_plus_causal(entry: Entry) -> Tensor:
    x, y, v = inputs(entry)
    omega = tensor(entry["params"]["omega"])
    fm = attention.feature_map("oprf", 2, 3, projection=omega).fit(x, y)
    return attention.linear_attention(fm.queries(x), fm.keys(y), v, causal=True)


CLOSED_FORMS: dict[str, Computation] = {"attn.favorpp.A": favor_plus_plus_parameter}

FIXED_PROJECTIONS: dict[str, Computation] = {
    "psi.est.P2a": trig_phase,
    "gerf.est.cplxA.P2a": gerf,
    "pois.est.P2a": poisson,
    "attn.favorpp.causal": favor_plus_plus_causal,
}
