"""Reference values of complex exponentials, Gaussian coefficients and their hybrids."""

from collections.abc import Callable

import torch
from torch import Tensor

from attention import theory
from tests.attention.reference import Computation, Entry, pair, tensor


def complex_exponential(entry: Entry) -> Tensor:
    params = entry["params"]
    if "A_diag" in params:
        A = tensor(params["A_diag"])
    else:
        A = torch.complex(tensor(params["A_re"]), tensor(params["A_im"]))
    return theory.mse("complex_exponential", *pair(entry), params["m"], A=A)


def clustered(complex_a: bool) -> Computation:
    """Off the centres, or at them where the entry has none."""

    def compute(entry: Entry) -> Tensor:
        inputs = entry["inputs"]
        query_centers, key_centers = (
            tensor([inputs.get(center, inputs[point])])
            for center, point in (("r_i", "x"), ("r_j", "y"))
        )
        return theory.mse(
            "clustered_hybrid",
            *pair(entry),
            entry["params"]["m"],
            query_centers=query_centers,
            key_centers=key_centers,
            complex_a=complex_a,
        )

    return compute


def bipolar_moment(index: int) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        params = entry["params"]
        moments = theory.bipolar_moments(
            *pair(entry), params["n"], params["sigma"], float(params["r"])
        )
        return moments[index]

    return compute


def bipolar_value(entry: Entry) -> Tensor:
    params = entry["params"]
    return theory.bipolar_coefficient(*pair(entry), params["sigma"], params["r"])


def general_variance(entry: Entry) -> Tensor:
    params = entry["params"]
    return theory.gaussian_coefficient_variance(
        *pair(entry), params["n"], tensor(params["M"]), params["c"], features="positive"
    )


CLOSED_FORMS: dict[str, Computation] = {
    "hrf.gauss.rho": lambda entry: theory.bipolar_normaliser(
        entry["params"]["sigma"], entry["inputs"]["r"]
    ),
    "hrf.gauss.lambda": bipolar_value,
    "hrf.gauss.l2": bipolar_moment(0),
    "lam.gaussgen.value.P2a": lambda entry: theory.gaussian_coefficient(
        *pair(entry), tensor(entry["params"]["M"]), entry["params"]["c"]
    ),
    "lam.gaussgen.var_pos.P2a": general_variance,
    "ce.cross.P2a": lambda entry: theory.complex_exponential_moment(
        *pair(entry), tensor(entry["params"]["A_diag"]), 1j
    ),
    "ce.mse.realdiag.P2a": complex_exponential,
    "ce.mse.iI.P2a": complex_exponential,
    "ce.Aopt.complex.P4": lambda entry: theory.optimal_diagonal(*pair(entry)),
    "ce.lmin.real.P4": lambda entry: theory.least_real_loss(*pair(entry)),
    "ce.mse.near_center.complex": clustered(complex_a=True),
    "ce.mse.near_center.real": clustered(complex_a=False),
    "ce.mse.at_center.real": clustered(complex_a=False),
}
FIXED_PROJECTIONS: dict[str, Computation] = {}
