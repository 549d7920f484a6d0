"""Reference values of the bounds on largest errors and of relative errors on a sphere."""

from collections.abc import Callable

from torch import Tensor

from attention import theory
from tests.attention.reference import Computation, Entry, tensor


def constant(name: str) -> Computation:
    return lambda entry: tensor(theory.uniform_constant(name, entry["inputs"]["d"]))


def uniform(name: str) -> Computation:
    def compute(entry: Entry) -> Tensor:
        inputs, params = entry["inputs"], entry["params"]
        rows, epsilon, sigma = params["D"], params["eps"], params["sigma"]
        return tensor(theory.uniform_bound(name, inputs["d"], inputs["ell"], rows, epsilon, sigma))

    return compute


def concentration(name: str) -> Computation:
    def compute(entry: Entry) -> Tensor:
        params = entry["params"]
        return tensor(
            theory.concentration_bound(name, params["D"], params["E"], params["eps"], params["sw2"])
        )

    return compute


def largest_projection(entry: Entry) -> Tensor:
    return tensor(theory.expected_largest_projection(entry["inputs"]["d"], entry["params"]["n"]))


def expected_maximum(entry: Entry) -> Tensor:
    inputs, params = entry["inputs"], entry["params"]
    bound = theory.expected_max_error_bound(
        "trig", inputs["d"], inputs["ell"], params["D"], gamma=params["gamma"]
    )
    return tensor(bound)


def largest_variance(entry: Entry) -> Tensor:
    return tensor(theory.largest_cosine_variance(entry["inputs"]["ell"], entry["params"]["sigma"]))


def relative_maximum(name: str) -> Callable[[Entry], Tensor]:
    def compute(entry: Entry) -> Tensor:
        params = entry["params"]
        return tensor(
            theory.max_relative_error(name, entry["inputs"]["r"], params["m"], params.get("n", 1))
        )

    return compute


def angular_bound(entry: Entry) -> Tensor:
    params = entry["params"]
    return tensor(
        theory.angular_relative_error_bound(entry["inputs"]["r"], params["m"], params["n"])
    )


CLOSED_FORMS: dict[str, Computation] = {
    **dict.fromkeys(
        ("bound.beta.1", "bound.beta.2", "bound.beta.8", "bound.beta.64"), constant("trig")
    ),
    **dict.fromkeys(("bound.betap.1", "bound.betap.64"), constant("trig_phase")),
    "bound.sigma_w2.ell6": largest_variance,
    "bound.unif_phi.d1": uniform("trig"),
    "bound.unif_psi.d1": uniform("trig_phase"),
    "bound.unif_phi.d8": uniform("trig"),
    "bound.emax_chi.d2.n500": largest_projection,
    "bound.emax_chi.d1.n250": largest_projection,
    "bound.lipschitz.gauss": lambda entry: tensor(
        theory.kernel_lipschitz(entry["params"]["sigma"])
    ),
    "bound.emaxerr_phi.d1": expected_maximum,
    "bound.bousquet_phi": concentration("trig"),
    "bound.bousquet_psi": concentration("trig_phase"),
    "relerr.max.trig.r1.5": relative_maximum("trig"),
    **dict.fromkeys(
        ("relerr.max.ang.r1.0.n8", "relerr.max.ang.r1.5.n8", "relerr.max.ang.r2.0.n1"),
        relative_maximum("angular_hybrid"),
    ),
    "relerr.bound.ang.r1.5": angular_bound,
}
FIXED_PROJECTIONS: dict[str, Computation] = {}
