from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.architectures import DecoderLM, Transformer
from model.card import Card
from model.config import AttentionConfig, PositionsConfig
from model.export import export, graph
from model.export.export import export_package
from model.export.naive import NaiveGraph
from model.export.shallow import first_layers
from model.export.verify import Report, verify
from tests.conftest import TINY, MakePackage, random_model


@pytest.mark.parametrize(
    ("local", "unturned", "count"),
    [
        ((), (), 2),
        ((1, 3), (), 2),
        ((0, 1, 2), (), 4),
        ((0, 1, 2, 3, 4), (), 2),
        ((), (2,), 3),
        ((0, 1, 2), (1, 3), 5),
    ],
)
def test_all_kinds_of_layers_are_among_the_first(local: tuple[int, ...], unturned: tuple[int, ...], count: int) -> None:
    attention = AttentionConfig(4, window=3 if local else None, local_layers=local)
    config = replace(TINY["stories"], num_decoder_layers=5, attention=attention)
    config = replace(config, positions=PositionsConfig("rotary", unturned_layers=unturned))
    model = random_model(config)
    shallow = first_layers(model)

    assert shallow.config.num_decoder_layers == count
    assert shallow.config.attention.local_layers == tuple(layer for layer in local if layer < count)
    assert shallow.config.positions.unturned_layers == tuple(layer for layer in unturned if layer < count)
    assert isinstance(model, DecoderLM) and isinstance(shallow, DecoderLM)
    assert shallow.embeddings.words.weight.data_ptr() == model.embeddings.words.weight.data_ptr()  # no copy
    with torch.no_grad():
        del model.decoder.blocks[count:]
        ids = torch.randint(0, 320, (1, 9))
        assert torch.equal(shallow(ids), model(ids))


def test_a_large_model_is_packaged_with_its_weights_beside_the_graph(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = make_package("fashion").manifest.image  # before its own export would be a large model's
    monkeypatch.setattr(export, "LARGE", 1000)
    monkeypatch.setattr(graph, "ONE_FILE_BYTES", 1000)
    model = random_model(replace(TINY["fashion"], num_encoder_layers=3))
    card = Card("fashion", "classify", "", "", (), labels=tuple("abcdefghij"), image=image)

    manifest = export_package(model, None, card, tmp_path, precision="int8")
    assert set(manifest.sha256) == {"encoder.onnx", "encoder.onnx.data"}
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *manifest.sha256}
    assert manifest.verification.distance is not None and manifest.verification.distance < 0.2


def test_of_a_large_model_in_float32_all_layers_are_compared_as_they_are_shipped(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def note(model: Transformer, graphs: Mapping[str, NaiveGraph], *, tokenizer: None) -> Report:
        compared.append(model.config.num_encoder_layers)
        return verify(model, graphs, batches=1)

    made = make_package("fashion").manifest  # before its own export would be noted
    monkeypatch.setattr(export, "LARGE", 1000)
    monkeypatch.setattr(export, "verify", note)
    card = Card("fashion", "classify", "", "", (), labels=tuple(made.labels), image=made.image)
    model = random_model(replace(TINY["fashion"], num_encoder_layers=3))

    export_package(model, None, card, tmp_path, precision="float32")
    assert compared == [2, 3]
