"""Networks that transformers must not build are refused by their config.json, before transformers reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.models.tiny_checkpoint import CONFIG, random_weights, write_checkpoint

from quarry.exporters.checkpoint.files import count_tensors
from quarry.exporters.export import export
from quarry.exporters.graph.torch_trace import check_config
from quarry.formats.errors import CorruptFile, InvalidSetting

FOLDER = Path("checkpoint")
OTHER = {**CONFIG, "model_type": "electra", "embedding_size": CONFIG["hidden_size"]}

FOREIGN = [
    ({"_attn_implementation": "somebody/kernels"}, "names third-party code"),
    ({"text_config": {"attn_implementation": "somebody/kernels@main"}}, "names third-party code"),
    ({"layers": [{"experts_implementation": {"": "somebody/kernels"}}]}, "names third-party code"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantized weights cannot be exported"),
]
LARGE = [
    ({"num_hidden_layers": 11}, "bad 'num_hidden_layers'; expected at most 10; found 11"),
    ({"encoder": {"n_layer": 10**6}}, "bad 'n_layer'"),
    ({"hidden_size": 2**24 + 1}, "bad 'hidden_size'; expected at most 16777216"),
    ({"max_position_embeddings": 10**18}, "bad 'max_position_embeddings'"),
    ({"model_type": ["bert"]}, r"bad 'model_type'; expected a string; found \['bert'\]"),
    ({"model_type": None}, "bad 'model_type'"),
]


@pytest.mark.parametrize(("change", "match"), FOREIGN)
def test_code_of_others_and_quantized_weights_are_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidSetting, match=f"checkpoint: .*{match}"):
        check_config({**OTHER, **change}, 10, FOLDER)


@pytest.mark.parametrize(("change", "match"), LARGE)
def test_sizes_beyond_the_weights_are_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(CorruptFile, match=f"checkpoint: config.json: {match}"):
        check_config({**OTHER, **change}, 10, FOLDER)


def test_what_networks_have_is_accepted() -> None:
    more = {"_attn_implementation": "sdpa", "quantization_config": None, "eos_token_id": 2**31, "rope_theta": 1e9}
    check_config({**OTHER, **more}, 2, FOLDER)


def test_a_configuration_nested_deep_is_looked_through() -> None:
    inner: dict[str, object] = {"quantization_config": {}}
    for _ in range(5000):
        inner = {"text_config": inner}
    with pytest.raises(InvalidSetting, match="quantized"):
        check_config({**OTHER, **inner}, 10, FOLDER)


def test_tensors_are_counted_by_the_header(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoint") / "model.safetensors"
    assert count_tensors(path) == len(random_weights())
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(CorruptFile, match="not a safetensors file"):
        count_tensors(path)


TRACED = [
    (
        {"model_type": "gemma3_text"},
        CorruptFile,
        r"the weights lack '.*of the kind 'gemma3_text'",
    ),
    ({**OTHER, "num_attention_heads": 7}, InvalidSetting, "transformers cannot load the network"),
    ({**OTHER, "embedding_size": "32"}, InvalidSetting, "transformers cannot load the network"),
    ({"model_type": "vit"}, InvalidSetting, "torch cannot run or trace the network"),
    ({"model_type": "custom", "auto_map": {"AutoModel": "harm.Model"}}, InvalidSetting, "custom code|cannot load"),
]


@pytest.mark.parametrize(("change", "kind", "match"), TRACED)
def test_what_transformers_cannot_build_of_the_weights_is_refused(
    tmp_path: Path, change: dict[str, object], kind: type[Exception], match: str
) -> None:
    for library in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(library, reason="networks that are traced need torch, transformers and onnxscript")
    checkpoint = write_checkpoint(tmp_path / "checkpoint", config={**CONFIG, **change})
    (checkpoint / "harm.py").write_text(f"open({str(tmp_path / 'harm')!r}, 'w')\n", "utf-8")
    with pytest.raises(kind, match=match):
        export(checkpoint, tmp_path / "out", "fp32")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]
