"""Models on another device than the CPU: on PyTorch's `meta`, which refuses tensors of the CPU."""

import pytest
import torch

from experiments.compositional.learning import CompositionalConfig, Inputs, SkeletonNetwork
from experiments.data.fashion_mnist import Pictures
from experiments.images import ImagesConfig, ImageTransformer
from experiments.language.learning import LanguageConfig, LanguageModel, full_loss, queries_over
from experiments.layers import AttentionSettings
from experiments.listops import ListopsConfig, TextTransformer
from experiments.speech.model import SpeechConfig, SpeechModel
from tests.experiments.own_data import refused

META = "meta"


@pytest.mark.parametrize("name", ["softmax", "none", "oprf", "angular_hybrid", "elu"])
def test_all_of_a_transformer_goes_to_the_device(name):
    hybrid = {"num_lambda_features": 2} if name == "angular_hybrid" else {}
    own = AttentionSettings(feature_map=name, num_features=2, **hybrid)
    pictures = Pictures(torch.zeros(2, 28, 28, dtype=torch.uint8), torch.zeros(2).long()).to(META)
    image = ImageTransformer(ImagesConfig(attention=own, width=8), 0).to(META)
    image(pictures.images).sum().backward()
    text = TextTransformer(ListopsConfig(attention=own, width=8), 0).to(META)
    text(torch.zeros(2, 9, dtype=torch.int64, device=META)).sum().backward()
    speech = SpeechModel(SpeechConfig(attention=own, width=8, layers=1), 0).to(META)
    waves, lengths = torch.zeros(2, 800, device=META), torch.full((2,), 800, device=META)
    speech(waves, lengths)[0].sum().backward()


def test_a_language_model_too():
    settings = LanguageConfig(width=8, batch=2)
    model = LanguageModel(settings, 20, 0).to(META)
    words = torch.zeros(5, 2, dtype=torch.int64, device=META)
    queries = model.read_on(words, anew=True)
    full_loss(settings, model, queries, words).backward()
    assert queries_over(model.eval(), torch.zeros(40, dtype=torch.int64, device=META))[0].is_meta


def test_a_skeletons_network_too():
    settings = CompositionalConfig(learner="network", components=None, channels=4, hidden=8)
    images = torch.zeros(2, 28, 28, dtype=torch.uint8, device=META)
    angles = Inputs(settings, images)(images, torch.Generator())
    SkeletonNetwork(settings, 0).to(META)(angles).sum().backward()


def test_a_device_that_is_not_here_is_one_sentence(capsys):
    error = refused(["listops", "--quick", "--set", "device=cuda:99"], capsys)
    assert "device cuda:99 cannot be used here" in error
