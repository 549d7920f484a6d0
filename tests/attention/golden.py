"""Reference values: how each is computed from its entry, by patterns of their ids."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from scipy.special import hyp1f1
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import compositional, feature_map, kernels, theory
from attention.compositional import Activation, Circle, Exponential, Internal, ReLU, Skeleton
from attention.hybrid import GaussianCoefficient
from attention.projections import FastProjection, simplex_matrix, simplex_product
from tests.attention import cases

Entry = dict[str, Any]
Computation = Callable[[Entry], Tensor]


def tensor(values: Any) -> Tensor:
    """float64 from numbers and lists, complex128 from {re, im} and lists of them."""
    if isinstance(values, dict):
        return torch.complex(tensor(values["re"]), tensor(values["im"]))
    if isinstance(values, list) and any(isinstance(value, dict) for value in values):
        return torch.stack([tensor(value) for value in values])
    return torch.tensor(values, dtype=torch.float64)


def pair(entry: Entry) -> tuple[Tensor, Tensor]:
    """x and y of an entry, given as lists or as formulas like '0.3*sin(i+1), i=0..63'."""
    return vector(entry["inputs"], "x"), vector(entry["inputs"], "y")


def vector(inputs: Entry, name: str) -> Tensor:
    if name in inputs:
        return tensor(inputs[name])
    match = re.fullmatch(r"([\d.]+)\*(sin|cos)\(i\+1\), i=0\.\.(\d+)", inputs[f"{name}_formula"])
    assert match is not None
    scale, function, last = match.groups()
    return float(scale) * getattr(torch.arange(1.0, int(last) + 2, dtype=torch.float64), function)()


def on_pair(function: Callable[..., Any], *names: str) -> Computation:
    """A function of x, y and the parameters with these names."""
    return lambda entry: tensor_of(function(*pair(entry), *(entry["params"][n] for n in names)))


def of(function: Callable[..., Any], *names: str, first: tuple[Any, ...] = ()) -> Computation:
    """A function of the inputs and parameters with these names, after the arguments `first`."""

    def compute(entry: Entry) -> Tensor:
        given = {"n": 1, **entry["inputs"], **entry["params"]}
        return tensor_of(function(*first, *(given[name] for name in names)))

    return compute


def tensor_of(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value)


def mse(name: str, entry: Entry, kernel: str = "gaussian", **options: Any) -> Tensor:
    """Closed form at the entry's m, M or D (features, of which trig has two a projection)."""
    named = {"s": "s", "lambda": "lam", "p": "p", "sigma": "sigma", "n": "num_lambda_features"}
    params = entry["params"]
    m = next(params[count] for count in ("m", "M", "D") if count in params)
    m = m // 2 if name == "trig" and "D" in params else m
    given = {ours: params[theirs] for theirs, ours in named.items() if theirs in params}
    if isinstance(params.get("A"), list | float):
        given["A"] = complex(*params["A"]) if isinstance(params["A"], list) else params["A"]
    if "c" in params:
        given["shift"] = tensor(params["c"])
    return theory.mse(name, *pair(entry), m, kernel=kernel, **given, **options)


def moment(index: int) -> Computation:
    return lambda e: theory.lambda_moments(theory.angle(*pair(e)), e["params"]["n"])[index]


def cross_moment(entry: Entry) -> Tensor:
    """E[SM++ SM^trig] through the errors: the shared hybrid's covariance term, plus SM^2."""
    (x, y), m = pair(entry), entry["params"]["m"]
    shared, independent = (
        theory.mse("angular_hybrid", x, y, m, num_lambda_features=8, shared_projections=value)
        for value in (True, False)
    )
    mixed = theory.lambda_moments(theory.angle(x, y), 8)[2]
    return kernels.softmax(x, y) ** 2 + (shared - independent) / (2 * mixed)


def conformity(projection: str) -> Computation:
    return lambda e: theory.rf_conformity(
        projection, tensor(e["inputs"]["v2"]).sqrt(), e["inputs"]["d"]
    )


def squared_sum(entry: Entry, sign: int = 1) -> Tensor:
    x, y = pair(entry)
    return (x + sign * y).square().sum()


def shifted(entry: Entry) -> Tensor:
    """Products of the coordinates of x - c and y - c."""
    (x, y), c = pair(entry), tensor(entry["params"].get("c", 0.0))
    return (x - c) * (y - c)


def gap(name: str) -> Computation:
    return lambda e: theory.coupling_gap(
        name, *pair(e), e["params"]["m"], "orthogonal", kernel="gaussian"
    )


def complex_exponential(entry: Entry) -> Tensor:
    params = entry["params"]
    if "A_diag" in params:
        A = tensor(params["A_diag"])
    else:
        A = torch.complex(tensor(params["A_re"]), tensor(params["A_im"]))
    return theory.mse("complex_exponential", *pair(entry), params["m"], A=A)


def clustered(complex_a: bool, entry: Entry) -> Tensor:
    """Off the centres, or at them where the entry has none."""
    inputs, m = entry["inputs"], entry["params"]["m"]
    centers = {
        "query_centers": tensor([inputs.get("r_i", inputs["x"])]),
        "key_centers": tensor([inputs.get("r_j", inputs["y"])]),
    }
    return theory.mse("clustered_hybrid", *pair(entry), m, complex_a=complex_a, **centers)


def bipolar_moment(entry: Entry) -> Tensor:
    n, sigma, r = (entry["params"][name] for name in ("n", "sigma", "r"))
    return theory.bipolar_moments(*pair(entry), n, sigma, float(r))[0]


def general_variance(entry: Entry) -> Tensor:
    n, M, c = (entry["params"][name] for name in "nMc")
    return theory.gaussian_coefficient_variance(*pair(entry), n, tensor(M), c, features="positive")


def mean_over_signs(name: str, x: Tensor, y: Tensor) -> Tensor:
    """E of the positive-feature estimate of the Gaussian kernel, d a power of two.

    Every value that the signs can take is one block of a projection with unit lengths. The mean
    over a length w ~ chi_d is E cosh(w a) = 1F1(d/2; 1/2; a^2/2), a the product with x + y: sinh
    cancels, because the opposite signs occur too.
    """
    d = len(x)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3 * d)), dtype=x.dtype)
    projection = FastProjection(name, d * len(signs), d, dtype=x.dtype)
    projection.signs.copy_(signs.unflatten(-1, (3, d)))
    projection.norms.fill_(1)
    moments = torch.from_numpy(hyp1f1(d / 2, 0.5, projection(x + y).square().numpy() / 2))
    return moments.mean() * (-x.square().sum() - y.square().sum()).exp()


def skeleton(entry: Entry) -> Skeleton:
    """From text such as 'inputs 1..2 on T; v3=relu_dual{1,2}; out v4=exp(2(rho-1)){3}'."""
    description = entry["inputs"]["skeleton"]
    last = re.match(r"inputs 1\.\.(\d+) on T", description)
    assert last is not None
    inputs = {str(i + 1): Circle((i,)) for i in range(int(last[1]))}
    nodes = {}
    for name, activation, sources in re.findall(r"v(\d+)=(\S+?)\{([\d,]+)\}", description):
        nodes[name] = Internal(tuple(sources.split(",")), dual(activation))
    return Skeleton(inputs, nodes)


def dual(text: str) -> Activation:
    rates = {"exp(rho-1)": 1.0, "exp(2(rho-1))": 2.0, "exp((rho-1)/4)": 0.25}
    return ReLU() if text == "relu_dual" else Exponential(rates[text])


def skeleton_variance(entry: Entry) -> Tensor:
    inputs = entry["inputs"]
    angles = inputs["angles_x"], inputs["angles_y"]
    return tensor(compositional.variance(skeleton(entry), *angles, entry["params"]["q"]))


def scaled_tokens(entry: Entry) -> tuple[Tensor, Tensor, Tensor]:
    """x = d^-1/4 q, y = d^-1/4 k, v."""
    q, k, v = (tensor(entry["inputs"][name]) for name in "QKV")
    return q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25, v


def favor_plus_plus_parameter(entry: Entry) -> Tensor:
    x, y, _ = scaled_tokens(entry)
    fm, twin = (feature_map(n, 2, 3, dtype=x.dtype).fit(x, y) for n in ("oprf", "gerf"))
    assert torch.equal(fm.A, twin.A_real)
    return fm.A


CLOSED_FORMS: dict[str, Computation] = {
    "kernel.gauss.*": on_pair(kernels.gaussian, "sigma"),
    "kernel.softmax.*": on_pair(kernels.softmax),
    "trig.var_phi.*": partial(mse, "trig"),
    "trig.mse_softmax.*": partial(mse, "trig", kernel="softmax"),
    "trig.var_psi.*": partial(mse, "trig_phase"),
    "trig.var_psi_softmax.*": partial(mse, "trig_phase", kernel="softmax"),
    "pos.mse_softmax.*": partial(mse, "positive", kernel="softmax"),
    "pos.var_gauss.*": partial(mse, "positive"),
    "hyp.mse_softmax.*": partial(mse, "hyperbolic", kernel="softmax"),
    "prf.mse.iid.*": partial(mse, "positive"),
    "prf.mse.orf.*": partial(mse, "positive", projection="orthogonal"),
    "prf.mse.sim.*": partial(mse, "positive", projection="simplex"),
    "rff.mse.sim.*": partial(mse, "trig", projection="simplex"),
    "hyp.mse.sim.*": partial(mse, "hyperbolic", projection="simplex"),
    "gap.prf.*": gap("positive"),
    "gap.rff.*": gap("trig"),
    "conf.orf.*": conformity("orthogonal"),
    "conf.sim.*": conformity("simplex"),
    "conf.theta.*": lambda e: theory.conformity_at_angle(
        e["params"]["cos_theta"], tensor(e["inputs"]["v2"]).sqrt(), e["inputs"]["d"]
    ),
    "ang.lambda.*": lambda e: theory.angle(*pair(e)) / math.pi,
    "ang.lambda2.*": moment(0),
    "ang.one_minus2.*": moment(1),
    "hrf.ang.indep.*": partial(mse, "angular_hybrid", kernel="softmax", shared_projections=False),
    "hrf.ang.shared.*": partial(mse, "angular_hybrid", kernel="softmax", shared_projections=True),
    "hrf.crossmoment.*": cross_moment,
    "hrf.gauss.rho": of(theory.bipolar_normaliser, "sigma", "r"),
    "hrf.gauss.lambda": on_pair(theory.bipolar_coefficient, "sigma", "r"),
    "hrf.gauss.l2": bipolar_moment,
    "lam.gaussgen.value.*": lambda e: theory.gaussian_coefficient(
        *pair(e), tensor(e["params"]["M"]), e["params"]["c"]
    ),
    "lam.gaussgen.var_pos.*": general_variance,
    "ce.cross.*": lambda e: theory.complex_exponential_moment(
        *pair(e), tensor(e["params"]["A_diag"]), 1j
    ),
    "ce.mse.realdiag.*": complex_exponential,
    "ce.mse.iI.*": complex_exponential,
    "ce.Aopt.complex.*": on_pair(theory.optimal_diagonal),
    "ce.lmin.real.*": on_pair(theory.least_real_loss),
    "ce.mse.*_center.complex": partial(clustered, True),
    "ce.mse.*_center.real": partial(clustered, False),
    "gerf.var.*": partial(mse, "gerf"),
    "gerf.Astar.*": lambda e: theory.gerf_parameter(squared_sum(e, -1), e["inputs"]["d"]),
    "oprf.var.*": partial(mse, "oprf"),
    "oprf.orf_var.*": partial(mse, "oprf", projection="orthogonal"),
    "oprf.rho.*": lambda e: theory.oprf_rho(squared_sum(e), e["inputs"]["d"]),
    "oprf.A.*": lambda e: theory.oprf_parameter(squared_sum(e), e["inputs"]["d"]),
    "oprf.tail.*": lambda e: theory.oprf_tail_bound(
        *pair(e), *(e["params"][name] for name in ("M", "eps", "A")), kernel="gaussian"
    ),
    "crt.avg_sq.*": lambda e: theory.mean_square_of_sums(
        tensor(e["inputs"]["X"]), tensor(e["inputs"]["Y"]), e["params"]["s"]
    ),
    "pois.var*": partial(mse, "poisson"),
    "geom.var*": partial(mse, "geometric"),
    "geomplus.var.*": partial(mse, "geometric_plus"),
    "pois*.lambda.*": lambda e: theory.poisson_parameter(shifted(e).square()),
    "geom*.p.*": lambda e: theory.geometric_parameter(shifted(e).abs()),
    "sim.v2prefactor.*": lambda e: theory.small_sum_factor(
        "simplex", e["inputs"]["d"], e["inputs"]["d"], dtype=torch.float64
    ),
    "simplex.S.*": of(simplex_matrix, "d"),
    "simplex.mul.*": lambda e: simplex_product(pair(e)[0]),
    "hd.mean.orf.*": lambda e: mean_over_signs("hadamard", *pair(e)),
    "bound.beta.*": of(theory.uniform_constant, "d", first=("trig",)),
    "bound.betap.*": of(theory.uniform_constant, "d", first=("trig_phase",)),
    "bound.sigma_w2.*": of(theory.largest_cosine_variance, "ell", "sigma"),
    "bound.unif_phi.*": of(
        theory.uniform_bound, "d", "ell", "D", "eps", "sigma", first=("trig",)
    ),
    "bound.unif_psi.*": of(
        theory.uniform_bound, "d", "ell", "D", "eps", "sigma", first=("trig_phase",)
    ),
    "bound.emax_chi.*": of(theory.expected_largest_projection, "d", "n"),
    "bound.lipschitz.*": of(theory.kernel_lipschitz, "sigma"),
    "bound.emaxerr_phi.*": lambda e: tensor(
        theory.expected_max_error_bound(
            "trig", e["inputs"]["d"], e["inputs"]["ell"], e["params"]["D"],
            gamma=e["params"]["gamma"],
        )
    ),
    "bound.bousquet_phi": of(theory.concentration_bound, "D", "E", "eps", "sw2", first=("trig",)),
    "bound.bousquet_psi": of(
        theory.concentration_bound, "D", "E", "eps", "sw2", first=("trig_phase",)
    ),
    "relerr.max.trig.*": of(theory.max_relative_error, "r", "m", "n", first=("trig",)),
    "relerr.max.ang.*": of(theory.max_relative_error, "r", "m", "n", first=("angular_hybrid",)),
    "relerr.bound.ang.*": of(theory.angular_relative_error_bound, "r", "m", "n"),
    "dual.relu.prime.*": of(ReLU().derivative, "rho"),
    "dual.relu.coefs": lambda e: tensor(ReLU().coefficients(7)[e["params"]["i"]]),
    "dual.exp.*": lambda e: tensor(Exponential(e["params"]["c"]).value(e["inputs"]["rho"])),
    "skel.C.*": lambda e: tensor(skeleton(e).complexity),
    "skel.calls.*": lambda e: tensor(skeleton(e).expected_calls),
    "skel.var.*": skeleton_variance,
    "rfs.q.hoeffding": of(compositional.sufficient_features, "eps", "delta", "C"),
    "attn.favorpp.A": favor_plus_plus_parameter,
}  # fmt: skip


def estimate(name: str, entry: Entry, options: Sequence[str] = (), **given: Any) -> Tensor:
    """The map's estimate at the pair, with the entry's omegas and the parameters `options`."""
    params = entry["params"]
    omega = params.get("omega") or params["omega_int"]
    more = {option: params[option] for option in options}
    if "tau" in params:
        more["lambda_projection"] = tensor(params["tau"])
    if name == "trig_phase":
        more["phase"] = tensor(params["b"])
    if name == "gerf":
        more["A"] = complex(*params["A"])
    if name == "poisson":
        more["lam"] = params["lambda"]
    projection = torch.tensor(omega) if name == "poisson" else tensor(omega)
    options_ = {"projection": projection, "dtype": torch.float64, **more, **given}
    return cases.estimate(feature_map(name, 2, 3, **options_), *pair(entry))


def coefficient(features: str, entry: Entry) -> Tensor:
    M, c, tau = (entry["params"][name] for name in ("M", "c", "tau"))
    options = {"M": tensor(M), "c": c, "lambda_features": features, "projection": tensor(tau)}
    x, y = pair(entry)
    return GaussianCoefficient(2, len(tau), **options).estimate(x[None], y[None]).squeeze()


def lambda_estimate(entry: Entry) -> Tensor:
    """The coefficient alone, read off the map: its first base's features set to 1, the other's 0.

    The map's products of features with signs, times C, are what multiplies each base.
    """
    tau = tensor(entry["params"]["tau"])
    fm = feature_map(
        "angular_hybrid", 2, 1, projection=0 * tau[:1], num_lambda_features=3, lambda_projection=tau
    )
    x, y = pair(entry)
    products = (fm.queries(x) * fm.keys(y)).unflatten(-1, (4, 4))
    # With omega = 0 the first base (two columns) gives exp(-(|x|^2+|y|^2)/2), times lambda.
    return products[:, :2].sum() * (0.5 * (x.square().sum() + y.square().sum())).exp()


def hybrid_attention(entry: Entry) -> Tensor:
    x, y, v = scaled_tokens(entry)
    omega, tau = (tensor(entry["params"][name]) for name in ("omega", "tau"))
    options = {"projection": omega, "num_lambda_features": 3, "lambda_projection": tau}
    fm = feature_map("angular_hybrid", 2, 3, **options)
    stabilised = fm.attend(x, y, v)
    plain = attention.linear_attention(fm.queries(x), fm.keys(y), v)
    assert_close(plain, stabilised, rtol=1e-12, atol=0)
    return stabilised


def favor_plus_plus_causal(entry: Entry) -> Tensor:
    x, y, v = scaled_tokens(entry)
    fm = feature_map("oprf", 2, 3, projection=tensor(entry["params"]["omega"])).fit(x, y)
    return attention.linear_attention(fm.queries(x), fm.keys(y), v, causal=True)


FIXED_PROJECTIONS: dict[str, Computation] = {
    "pos.est.*": partial(estimate, "positive"),
    "psi.est.*": partial(estimate, "trig_phase", kernel="gaussian"),
    "gerf.est.*": partial(estimate, "gerf", options=["s"], kernel="gaussian"),
    "pois.est.*": partial(estimate, "poisson", kernel="gaussian"),
    "hrf.est.ang.*": partial(estimate, "angular_hybrid", num_lambda_features=3),
    "ang.est.*": lambda_estimate,
    "lam.gaussgen.est_pos.*": partial(coefficient, "positive"),
    "lam.gaussgen.est_trig.*": partial(coefficient, "trig"),
    "attn.exact.bidir": lambda e: attention.ExactSoftmax(2).attend(*scaled_tokens(e)),
    "attn.anghyb.bidir": hybrid_attention,
    "attn.favorpp.causal": favor_plus_plus_causal,
}
