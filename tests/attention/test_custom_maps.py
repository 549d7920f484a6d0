"""Feature maps of a user's own: an object, a class, an entry point, or "module:Class"."""

import copy
import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attention
from attention import RandomFeatureAttention
from attention.features import PositiveFeatures
from tests.attention.cases import rejects, tokens
from tests.attention.custom_maps import Cosines, Taylor, Tempered, no_map, positive_of_seed_5

MODULE = "tests.attention.custom_maps"
SIZES = (8, 2)
"""embed_dim and heads: a map's dim is 4."""
MAPS: dict[str, Any] = {
    "object": lambda: Cosines(4, 6),
    "object with heads": lambda: Cosines(4, 6, heads=2),
    "object without buffers": lambda: Taylor(4),
    "object of ours": lambda: attention.feature_map("oprf", 4, 6, heads=2),
    "class": lambda: Cosines,
    "class without settings": lambda: Taylor,
    "function": lambda: positive_of_seed_5,
    "partial": lambda: partial(Cosines, shift=0.3),
    "typed name": lambda: f"{MODULE}:Cosines",
}


def layer(kind: str, **options: Any) -> RandomFeatureAttention:
    return RandomFeatureAttention(*SIZES, MAPS[kind](), 6, batch_first=True, **options)


def plain(features: Any, x: Tensor, y: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The quadratic form on the features."""
    kernel = features.queries(x) @ features.keys(y).mT
    kernel = kernel.tril() if causal else kernel
    return kernel @ v / kernel.sum(-1, keepdim=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("make", [Taylor, Cosines, partial(Cosines, heads=2)])
def test_attention_of_a_map_that_gives_features_alone(make: Any, causal: bool) -> None:
    features = make(4, 6)
    x, y, v = (0.3 * tokens(3, 2, 9, 4, seed=seed) for seed in range(3))
    expected = plain(features, x, y, v, causal)
    bounded = expected.clamp(-v.abs().max(), v.abs().max())
    if not features.signed:
        torch.testing.assert_close(features.attend(x, y, v, causal=causal), bounded)
    whole = torch.ones(3, 2, 9, dtype=torch.bool)
    torch.testing.assert_close(
        features.attend(x, y, v, causal=causal, key_mask=whole),
        features.attend(x, y, v, causal=causal),
    )
    scores = (features.queries(x) @ features.keys(y).mT).sum(-2)
    torch.testing.assert_close(features.token_scores(x, y), scores)
    matrix = attention.attention_matrix(features, x, y, causal=causal)
    if not features.signed:
        torch.testing.assert_close(matrix @ v, expected)
    attention.diagnose(features, x, y, causal=causal)


def test_a_signed_kernel_of_its_own_is_not_raised_to_a_bound_of_softmax() -> None:
    """Its denominators may be small and right: only those that rounding makes are raised."""
    features = Cosines(4, 6)
    with torch.no_grad():
        features.gain.mul_(1e-3)
    x, y, v = (0.05 * tokens(7, 4, seed=seed) for seed in range(3))
    for causal in (False, True):
        expected = plain(features, x, y, v, causal)
        torch.testing.assert_close(features.attend(x, y, v, causal=causal), expected)
        matrix = attention.attention_matrix(features, x, y, causal=causal)
        torch.testing.assert_close(matrix @ v, expected)


@pytest.mark.parametrize("kind", MAPS)
def test_a_layer_takes_a_custom_map_in_every_form(kind: str) -> None:
    ours = layer(kind)
    x = tokens(3, 5, 8)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    for causal in (False, True):
        out, weights = ours(x, x, x, padding, need_weights=True, is_causal=causal)
        assert out.shape == (3, 5, 8)
        assert weights is not None
        assert weights.shape == (3, 5, 5)
        out.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ours.parameters())
    whole, _ = ours(x, x, x, is_causal=True)
    first, state = ours.prefill(x[:, :2], x[:, :2], x[:, :2], ours.initial_state(3))
    torch.testing.assert_close(first, whole[:, :2], rtol=1e-4, atol=1e-5)
    for i in range(2, 5):
        out, state = ours.step(x[:, i], x[:, i], x[:, i], state)
        torch.testing.assert_close(out, whole[:, i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MAPS)
def test_it_is_copied_pickled_and_loaded_as_ours_are(kind: str) -> None:
    ours = layer(kind)
    x = tokens(3, 5, 8)
    ours.fit(x, x).redraw(torch.Generator().manual_seed(1))
    expected, _ = ours(x, x, x)
    again = layer(kind)
    again.load_state_dict(ours.state_dict())
    if kind != "partial":
        again = pickle.loads(pickle.dumps(again))
    for same in (copy.deepcopy(ours), again):
        assert torch.equal(same(x, x, x)[0], expected)
    softmax = nn.MultiheadAttention(*SIZES, batch_first=True)
    before = copy.deepcopy(ours.feature_map.state_dict())
    ours.load_state_dict(softmax.state_dict())
    converted = RandomFeatureAttention.from_multihead(softmax, MAPS[kind](), 6)
    assert converted.fit(x, x)(x, x, x)[0].isfinite().all()
    for name, value in ours.feature_map.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("kind", MAPS)
def test_it_leaves_the_meta_device_and_is_reset_as_it_was_made(kind: str) -> None:
    expected = layer(kind).feature_map
    x = tokens(3, 5, 8)
    fitted = layer(kind).fit(x, x)
    fitted.redraw(torch.Generator().manual_seed(1))
    fitted.reset_parameters()
    with torch.device("meta"):
        inside = layer(kind)
    for module in (fitted, inside.to_empty(device="cpu"), layer(kind, device="meta")):
        features = module.to_empty(device="cpu").feature_map
        assert features.state_dict().keys() == expected.state_dict().keys()
        for name, value in features.state_dict().items():
            assert torch.equal(value, expected.state_dict()[name]), name


def test_an_object_becomes_a_part_of_the_layer_and_moves_with_it() -> None:
    features = Cosines(4, 6)
    ours = RandomFeatureAttention(*SIZES, feature_map=features)
    assert ours.feature_map is features
    assert "feature_map.gain" in dict(ours.named_parameters())
    ours.double()
    assert features.omega.dtype == torch.float64
    wide = RandomFeatureAttention(*SIZES, Cosines(4, 6), dtype=torch.float64)
    assert wide.feature_map.omega.dtype == torch.float64
    assert RandomFeatureAttention(*SIZES, Cosines, dtype=torch.float64).feature_map.gain.dtype == (
        torch.float64
    )
    exact = RandomFeatureAttention(*SIZES, attention.ExactSoftmax(4))
    named = RandomFeatureAttention(*SIZES, "softmax")
    named.load_state_dict(exact.state_dict())
    x = tokens(5, 3, 8)
    assert torch.equal(exact(x, x, x)[0], named(x, x, x)[0])


def test_gradients_reach_a_custom_map() -> None:
    features = Cosines(4, 3).double()
    x, y, v = (0.2 * tokens(2, 4, seed=s, dtype=torch.float64) for s in range(3))
    leaves = [t.requires_grad_() for t in (x, y, v)]
    assert torch.autograd.gradcheck(lambda *t: features.attend(*t, causal=True), leaves)
    features.attend(x, y, v).sum().backward()
    assert features.gain.grad is not None


def test_settings_reach_what_takes_them_alone() -> None:
    made = attention.feature_map(Cosines, 4, 6, seed=3, heads=2, shift=0.5)
    assert isinstance(made, Cosines)
    assert (made.heads, made.shift) == (2, 0.5)
    assert torch.equal(made.omega, Cosines(4, 6, seed=3, heads=2).omega)
    assert attention.feature_map(Taylor, 4, 6, projection="hadamard", heads=2).heads is None
    assert attention.feature_map(made, 4, 99) is made
    ours = attention.feature_map("positive", 4, 6, seed=3)
    by_class = attention.feature_map(PositiveFeatures, 4, 6, seed=3)
    assert torch.equal(by_class.queries(tokens(4)), ours.queries(tokens(4)))


class Nameless(attention.FeatureMap):
    @property
    def output_dim(self) -> int:
        return 3


class Forgetful(Cosines):
    redraw = attention.FeatureMap.redraw


class Unmade(Cosines):
    def __init__(self, dim: int, num_features: int) -> None:
        nn.Module.__init__(self)


class Alone(Taylor):
    def __init__(self, dim: int) -> None:
        super().__init__(dim)


class Empty(Taylor):
    output_dim = 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (nn.Linear(4, 4), "feature_map must be a name, a FeatureMap, or a subclass of it or a fu"),
        (nn.Linear, "feature_map must be a name, a FeatureMap, or a subclass of it or a function"),
        (None, "feature_map must be a name, a FeatureMap, .* that makes one, got None"),
        (7, "feature_map must be a name, a FeatureMap, .* that makes one, got 7"),
        (no_map, "feature map no_map must make a FeatureMap, got Linear"),
        (Cosines(5, 6), "feature map Cosines must have dim 4, that of a head, got 5"),
        (Cosines(4, 6, heads=3), "feature map Cosines must have heads 2, or None .*, got 3"),
        (attention.ExactSoftmax(8), "feature map ExactSoftmax must have dim 4, .* got 8"),
        (lambda dim, num_features: Taylor(8), "feature map <lambda> must have dim 4, .* got 8"),
        (Nameless, "feature map Nameless must define queries"),
        (attention.FeatureMap, "feature map FeatureMap must define output_dim and queries"),
        (Unmade, "feature map Unmade must have dim 4, that of a head, got None"),
        (Alone, r"feature map Alone must take \(dim, num_features\): too many positional"),
        (Empty, "feature map Empty must have an output_dim of at least 1, .* got 0"),
        (
            "tests.attention.custom_maps",
            "feature map must be one of .*trig.*, got 'tests.attention.custom_maps'; module:Cl",
        ),
        (f"{MODULE}:Nothing", "'.*:Nothing' cannot be imported: AttributeError: module '.*' has"),
        ("no_such_package.maps:Map", "cannot be imported: ModuleNotFoundError: No module named"),
        (
            f"{MODULE}:number",
            "must be a subclass of FeatureMap or a function that makes one, got 3",
        ),
        (f"{MODULE}:an_object", "must be a subclass of FeatureMap or a function that .*, got Tay"),
        ("torch.nn:Linear", "must be a subclass of FeatureMap or a function .*, got <class '.*Lin"),
        (":Map", "feature map must be named as module:Class, got ':Map'"),
        ("tests.attention.custom_maps:", "feature map must be named as module:Class, got '.*:'"),
        ("..custom_maps:Map", "feature map must be named as module:Class, got '..custom_maps:Map'"),
    ],
)
def test_what_is_no_map_is_refused_in_a_sentence(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        RandomFeatureAttention(*SIZES, feature_map=given)
    assert "\n" not in str(refusal.value)


def test_options_and_kernels_that_a_map_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"Cosines takes the options shift, got 'A'"):
        RandomFeatureAttention(*SIZES, Cosines, A=1)
    with pytest.raises(ValueError, match="given as an object takes no options, got shift"):
        RandomFeatureAttention(*SIZES, Cosines(4, 6), shift=1.0)
    with pytest.raises(
        ValueError, match="positive_of_seed_5 has the kernel softmax, got kernel='g"
    ):
        attention.feature_map(positive_of_seed_5, 4, 6, kernel="gaussian")
    with pytest.raises(NotImplementedError, match="Forgetful must define redraw: it has buffers"):
        Forgetful(4, 6).redraw(torch.Generator())


def test_a_map_passes_on_the_options_of_its_base() -> None:
    """Typed as `MapOptions`, they are given and refused as if the class named them."""
    own = attention.feature_map(
        Tempered, 4, 6, temperature=4.0, seed=3, heads=2, dtype=torch.float64
    )
    plain = attention.feature_map("positive", 4, 6, seed=3, heads=2, dtype=torch.float64)
    x = 0.3 * tokens(2, 5, 4, dtype=torch.float64)
    assert torch.equal(own.queries(x), plain.queries(x / 2))
    message = "Tempered takes the options device, dtype, heads, temperature, got 'temprature'"
    rejects(message, attention.feature_map, Tempered, 4, 6, temprature=4.0)


PACKAGE = {
    "strange_maps.py": f"from {MODULE} import Cosines, Taylor\nprint('imported')\n",
    "strange_maps-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: strange-maps\n"
    "Version: 1.0\n",
    "strange_maps-1.0.dist-info/entry_points.txt": "[foveate.feature_maps]\n"
    "cosines = strange_maps:Cosines\nbroken = strange_maps:Nothing\ntrig = strange_maps:Taylor\n",
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of a stranger's that declares maps."""
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("strange_maps", None)


def test_an_installed_package_names_maps_that_are_found_late(installed: Path, capsys: Any) -> None:
    assert {"broken", "cosines", "trig"} < set(attention.available())
    assert "strange_maps" not in sys.modules
    assert isinstance(attention.feature_map("trig", 4, 6), attention.features.TrigFeatures)
    assert "strange_maps" not in sys.modules, "a name of ours is ours"
    assert attention.find_map("cosines", trusted=False) is Cosines
    assert capsys.readouterr().out == "imported\n"
    ours = RandomFeatureAttention(*SIZES, "cosines", 6, shift=0.5)
    assert isinstance(ours.feature_map, Cosines)
    with pytest.raises(ValueError, match="'strange_maps:Nothing' cannot be imported: AttributeErr"):
        attention.feature_map("broken", 4, 6)
    with pytest.raises(
        ValueError, match=r"must be one of angular_hybrid, broken, .*, got 'cosine'"
    ):
        attention.feature_map("cosine", 4, 6)


def test_entry_points_of_two_packages_need_the_full_name(installed: Path) -> None:
    other = installed / "other_maps-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-maps\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[foveate.feature_maps]\ncosines = other_maps:Map\n")
    with pytest.raises(ValueError, match="of two installed packages, other_maps:Map and strange_"):
        attention.feature_map("cosines", 4, 6)
    assert isinstance(attention.feature_map("strange_maps:Cosines", 4, 6), Cosines)


def test_a_name_that_stands_in_a_file_imports_nothing(installed: Path) -> None:
    for name in ("strange_maps:Cosines", "strange_maps:Nothing"):
        with pytest.raises(ValueError, match="would import strange_maps, which is allowed"):
            attention.find_map(name, trusted=False)
    assert "strange_maps" not in sys.modules
    for name in ("os:kill", "torch.nn:Linear", f"{MODULE}:no_map", f"{MODULE}:Cosines.queries"):
        with pytest.raises(ValueError, match="file and must be a subclass of FeatureM"):
            attention.find_map(name, trusted=False)
    assert attention.find_map(f"{MODULE}:Cosines", trusted=False) is Cosines
    assert attention.find_map("trig", trusted=False) is attention.features.TrigFeatures
