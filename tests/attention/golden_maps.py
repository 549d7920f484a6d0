"""Reference values of phase, generalised exponential and discrete features, and of couplings."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attention import theory
from tests.attention.reference import Computation, Entry, pair, tensor


def mse(name: str, kernel: str = "gaussian", **options: Any) -> Callable[[Entry], Tensor]:
    """Closed form at the entry's m, M or D (features of trig_phase) and its parameters."""

    def compute(entry: Entry) -> Tensor:
        params = entry["params"]
        m = next(params[count] for count in ("m", "M", "D") if count in params)
        given: dict[str, Any] = {}
        if isinstance(params.get("A"), (list, float)):
            given["A"] = complex(*params["A"]) if isinstance(params["A"], list) else params["A"]
        for theirs, ours in (("s", "s"), ("lambda", "lam"), ("p", "p"), ("sigma", "sigma")):
            if theirs in params:
                given[ours] = params[theirs]
        if "c" in params:
            given["shift"] = tensor(params["c"])
        return theory.mse(name, *pair(entry), m, kernel=kernel, **given, **options)

    return compute


def squared_sum(entry: Entry) -> Tensor:
    x, y = pair(entry)
    return (x + y).square().sum()


def shifted(entry: Entry) -> Tensor:
    """Products of the coordinates of x - c and y - c."""
    (x, y), c = pair(entry), tensor(entry["params"].get("c", 0.0))
    return (x - c) * (y - c)


def oprf_rho(entry: Entry) -> Tensor:
    return theory.oprf_rho(squared_sum(entry), entry["inputs"]["d"])


def oprf_parameter(entry: Entry) -> Tensor:
    return theory.oprf_parameter(squared_sum(entry), entry["inputs"]["d"])


def gerf_parameter(entry: Entry) -> Tensor:
    x, y = pair(entry)
    return theory.gerf_parameter((x - y).square().sum(), entry["inputs"]["d"])


def averaged_square(entry: Entry) -> Tensor:
    x, y = (tensor(entry["inputs"][name]) for name in "XY")
    return theory.mean_square_of_sums(x, y, entry["params"]["s"])


def tail_bound(entry: Entry) -> Tensor:
    params = entry["params"]
    return theory.oprf_tail_bound(
        *pair(entry), params["M"], params["eps"], params["A"], kernel="gaussian"
    )


def conformity(name: str) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        v = tensor(entry["inputs"]["v2"]).sqrt()
        return theory.rf_conformity(name, v, entry["inputs"]["d"])

    return compute


def conformity_at_angle(entry: Entry) -> Tensor:
    v = tensor(entry["inputs"]["v2"]).sqrt()
    return theory.conformity_at_angle(entry["params"]["cos_theta"], v, entry["inputs"]["d"])


def gap(name: str) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        m = entry["params"]["m"]
        return theory.coupling_gap(name, *pair(entry), m, "orthogonal", kernel="gaussian")

    return compute


def prefactor(entry: Entry) -> Tensor:
    d = entry["inputs"]["d"]
    return theory.small_sum_factor("simplex", d, d, dtype=torch.float64)


CLOSED_FORMS: dict[str, Computation] = {
    **dict.fromkeys(
        (
            "trig.var_psi.P2a",
            "trig.var_psi.P4",
            "trig.var_psi.P8",
            "trig.var_psi.P64",
            "trig.var_psi.sigma1.5.P4",
        ),
        mse("trig_phase"),
    ),
    "trig.var_psi_softmax.P4": mse("trig_phase", "softmax"),
    **dict.fromkeys(
        (
            "gerf.var.realA.s1.P2a",
            "gerf.var.realA.s1.P4",
            "gerf.var.realA.s1.P64",
            "gerf.var.cplxA.s1.P4",
            "gerf.var.cplxA.s1.P64",
            "gerf.var.cplxA.s-1.P2a",
            "gerf.var.cplxA.s-1.P4",
            "gerf.var.cplxA.s-1.P64",
            "gerf.var.s-1.opt.P4",
        ),
        mse("gerf"),
    ),
    **dict.fromkeys(("oprf.var.P2a", "oprf.var.P4", "oprf.var.P64"), mse("oprf")),
    **dict.fromkeys(("oprf.orf_var.P4", "oprf.orf_var.P64"), mse("oprf", projection="orthogonal")),
    **dict.fromkeys(("oprf.rho.P2a", "oprf.rho.P4", "oprf.rho.P64"), oprf_rho),
    **dict.fromkeys(("oprf.A.P2a", "oprf.A.P4"), oprf_parameter),
    "gerf.Astar.s-1.P4": gerf_parameter,
    "oprf.tail.P4": tail_bound,
    "crt.avg_sq.s1": averaged_square,
    **dict.fromkeys(("pois.var_opt.P2pos", "pois.var_opt.P4pos", "pois.var.P4"), mse("poisson")),
    **dict.fromkeys(("geom.var_opt.P2pos", "geom.var.P2pos", "geom.var.P4"), mse("geometric")),
    "geomplus.var.P4": mse("geometric_plus"),
    **dict.fromkeys(
        ("pois.lambda.P4pos", "poisplus.lambda.P4"),
        lambda entry: theory.poisson_parameter(shifted(entry).square()),
    ),
    **dict.fromkeys(
        ("geom.p.P2pos", "geom.p.P4pos", "geomplus.p.P4"),
        lambda entry: theory.geometric_parameter(shifted(entry).abs()),
    ),
    "conf.sim.d6.v2_1.0": conformity("simplex"),
    "conf.sim.d64.v2_4.0": conformity("simplex"),
    "conf.theta.d5": conformity_at_angle,
    **dict.fromkeys(
        ("prf.mse.sim.P4", "prf.mse.sim.P64", "prf.mse.sim.blocks.P4"),
        mse("positive", projection="simplex"),
    ),
    "rff.mse.sim.P4": mse("trig", projection="simplex"),
    "hyp.mse.sim.P4": mse("hyperbolic", projection="simplex"),
    "gap.prf.P64": gap("positive"),
    "gap.rff.P64": gap("trig"),
    "sim.v2prefactor.d64": prefactor,
}

FIXED_PROJECTIONS: dict[str, Computation] = {}
