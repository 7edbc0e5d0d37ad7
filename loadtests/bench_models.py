"""The models of `bench_engine`: random weights of well-known shapes, once for us and once for each peer.

Speed does not depend on what the weights are, and random ones need no download. Everything is made once, in a folder.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from model.checkpoints.read import read_checkpoint
from model.export.export import export_package
from model.package import PackageTokenizer
from model.package.manifest import FILE_NAME, Precision

# Names that CTranslate2's converter asks a BART's configuration for, and newer configurations no longer have.
OLD_BART = {
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "static_position_embeddings": False,
    "extra_pos_embeddings": 2,
}


def _gpt2() -> Any:
    """GPT-2 124M (Radford et al. 2019)."""
    return transformers.GPT2LMHeadModel(transformers.GPT2Config())


def _base() -> Any:
    """transformer-base (Vaswani et al. 2017), 6 + 6 layers of 512, vocabulary 32k."""
    config = transformers.BartConfig(
        vocab_size=32000,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        max_position_embeddings=512,
        activation_function="relu",
        **OLD_BART,
    )
    return transformers.BartForConditionalGeneration(config)


def _bert() -> Any:
    """BERT-base (Devlin et al. 2019) with a classification head."""
    return transformers.BertForSequenceClassification(transformers.BertConfig())


def _smollm2() -> Any:
    """SmolLM2 135M (Ben Allal et al. 2025), a small Llama."""
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config)


def _t5() -> Any:
    """T5-small (Raffel et al. 2020)."""
    config = transformers.T5Config(
        vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


def _minilm() -> Any:
    """MiniLM-L6 (Wang et al. 2020), of which most sentence vectors are made."""
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return transformers.BertModel(config)


MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": _gpt2,
    "base": _base,
    "bert": _bert,
    "smollm2": _smollm2,
    "t5": _t5,
    "minilm": _minilm,
}
# How the vectors are made of hidden states, as sentence-transformers writes it.
MODULES: dict[str, dict[str, Any]] = {
    "minilm": {
        "modules.json": [
            {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True},
    }
}
END_TOKENS = {"gpt2": 50256, "base": 2, "bert": 0, "smollm2": 2, "t5": 1, "minilm": 0}


@dataclass(frozen=True)
class Programs:
    """Peers that are programs of their own, or have an environment of their own, where they are to be had."""

    llama_server: Path | None = None
    openvino_genai: Path | None = None  # the Python of its environment


class BenchModels:
    """The folder of the models, filled as they are asked for, and the programs that take theirs from it.

    `half_cache`: our engines keep keys and values in 16 bits.
    """

    def __init__(
        self,
        folder: Path,
        precision: Precision = "int8",
        programs: Programs = Programs(),
        *,
        half_cache: bool = False,
    ) -> None:
        self.folder, self._precision, self.programs, self.half_cache = folder, precision, programs, half_cache

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a Hugging Face checkpoint."""
        path = self.folder / name / "checkpoint"
        if not (path / "tokenizer.json").exists():
            torch.manual_seed(0)
            model = MODELS[name]()
            model.save_pretrained(path)
            for file, content in MODULES.get(name, {}).items():
                (path / file).parent.mkdir(exist_ok=True)
                (path / file).write_text(json.dumps(content))
            # A word for each id: what is measured speaks ids, but a converter wants to know the words.
            words = {f"t{index}": index for index in range(model.config.vocab_size)}
            tokenizer = Tokenizer(WordLevel(words, unk_token="t3"))  # no password
            special = {"unk_token": "t3", "bos_token": "t0", "pad_token": "t1", "eos_token": f"t{END_TOKENS[name]}"}
            transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(path)
        return path

    def package(self, name: str) -> Path:
        """Return the folder of our package."""
        precision = self._precision
        path = self.folder / name / precision
        if not (path / FILE_NAME).exists():
            languages = ("en", "de") if name in {"base", "t5"} else None
            model, tokens, card, family = read_checkpoint(
                self.checkpoint(name), name, "none", languages, scratch=self.folder
            )
            export_package(model, tokens, card, path, precision=precision, family=family)
        return path

    def spelling(self, size: int) -> list[bytes | None]:
        """Return what as many tokens write, the last of them a special one: byte-level BPE of Python's own library."""
        path = self.folder / f"spelling-{size}.json"
        if not path.exists():
            sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*/*.py"))
            texts = [file.read_text(errors="ignore") for file in sources if "packages" not in file.parent.name]
            tokenizer = Tokenizer(BPE())
            tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
            trainer = BpeTrainer(vocab_size=size - 1, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
            tokenizer.train_from_iterator(texts, trainer)
            path.parent.mkdir(parents=True, exist_ok=True)
            tokenizer.save(str(path))
        return [*PackageTokenizer.load(path).token_bytes().texts, None]

    def ctranslate2(self, name: str) -> Path:
        """Return the folder of CTranslate2's model, int8."""
        import ctranslate2  # a peer on processors; what is measured on a GPU goes without

        path = self.folder / name / "ctranslate2"
        if not path.exists():
            converter = ctranslate2.converters.TransformersConverter(str(self.checkpoint(name)))
            converter.convert(str(path), quantization="int8")
        return path
