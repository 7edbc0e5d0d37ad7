"""Which tokenizer a checkpoint has: `tokenizer.json`, or what the name of its class stands for."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, processors

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer import pieces, words
from model.checkpoints.tokenizer.files import TokenizerFiles
from model.package.clean_up import add_clean_up
from model.package.manifest import TOKENIZER_FILE

Make = Callable[[TokenizerFiles], Tokenizer]

BY_CLASS: dict[str, Make] = {  # as tokenizer_config.json names it
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"), words.wordpiece),
    "MPNetTokenizer": words.wordpiece_in_sentences,
    "GPT2Tokenizer": words.byte_pairs,
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer"), words.byte_pairs_in_sentences),
    **dict.fromkeys(("T5Tokenizer", "MT5Tokenizer"), pieces.t5),
    "PegasusTokenizer": pieces.pegasus,
    "XLMRobertaTokenizer": pieces.xlm_roberta,
    "CamembertTokenizer": pieces.camembert,
    **dict.fromkeys(("MBartTokenizer", "MBart50Tokenizer"), pieces.mbart),
    "NllbTokenizer": pieces.nllb,
    "M2M100Tokenizer": pieces.m2m_100,
    "MarianTokenizer": pieces.marian,
    "DebertaV2Tokenizer": pieces.deberta,
    "AlbertTokenizer": pieces.albert,
}
CLASSES = {  # of families whose files may name none
    **{"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "mpnet": "MPNetTokenizer"},
    **{"electra": "ElectraTokenizer", "nomic_bert": "BertTokenizer"},
    **{"gpt2": "GPT2Tokenizer", "gpt_neo": "GPT2Tokenizer", "opt": "GPT2Tokenizer"},
    **{"roberta": "RobertaTokenizer", "bart": "BartTokenizer", "xlm-roberta": "XLMRobertaTokenizer"},
    "camembert": "CamembertTokenizer",
    **{"t5": "T5Tokenizer", "mt5": "T5Tokenizer", "mbart": "MBartTokenizer", "m2m_100": "M2M100Tokenizer"},
    **{"marian": "MarianTokenizer", "pegasus": "PegasusTokenizer", "deberta-v2": "DebertaV2Tokenizer"},
    "albert": "AlbertTokenizer",
}
CASE_FLAGS: dict[str, tuple[str, bool | None]] = {  # with their defaults; None: accents go where letters are lowered
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
CLEANS_UP_PAIRS = frozenset({"M2M100Tokenizer", "MarianTokenizer"})  # what transformers has no fast tokenizer of
ADDS_A_LANGUAGE = frozenset({"m2m_100", "mbart"})  # families: tokenizer.json adds one language's token to every text


def write_tokenizer(folder: Path, family: str, scratch: Path) -> Path:
    """Return a checkpoint's `tokenizer.json`: its own, or one that is written into the folder `scratch`.

    Raises `CheckpointError` where there are no files to make it of, or they are of a kind that is not supported.
    """
    own, files = folder / TOKENIZER_FILE, TokenizerFiles.read(folder)
    if code := files.own_code:
        raise CheckpointError(
            f"{folder}: tokenizer_config.json: auto_map names the checkpoint's own code for the tokenizer, {code}, "
            "which is not run here; if tokenizer.json alone makes the same ids, delete auto_map in a copy of the "
            "folder, and import the copy"
        )
    if family == "mbart" and _class_of(files, family) == "MBartTokenizer":
        raise CheckpointError(
            f"{folder}: the first mBART ends a source with its language's token, which is not supported; mBART-50 is"
        )
    if files.option("legacy_behaviour", False):
        raise CheckpointError(
            f"{folder}: tokenizer_config.json: legacy_behaviour is true, by which sources end with their language: "
            "only false is supported"
        )
    if files.flag("split_special_tokens"):
        raise CheckpointError(
            f"{folder}: tokenizer_config.json: split_special_tokens is true, by which special tokens in a text are "
            "read as its words: only false is supported"
        )
    if not own.is_file():
        made = make_tokenizer(folder, family)
    elif family in ADDS_A_LANGUAGE:
        made = pieces.ends_alone(read_tokenizer(own))
    else:
        made, heed = read_tokenizer(own), BY_FLAGS.get(_class_of(files, family))
        has_more = files.add_what_is_missing(made)
        flagged = heed(made, files) if heed else None
        if flagged is None and not has_more and not cleans_up(made, files, family):
            return own
        made = flagged or made
    if cleans_up(made, files, family):
        add_clean_up(made)
    made.save(str(scratch / TOKENIZER_FILE))
    return scratch / TOKENIZER_FILE


def with_flagged_ends(tokenizer: Tokenizer, files: TokenizerFiles, default: str = "") -> Tokenizer | None:
    """Return a tokenizer that adds the start and the end that tokenizer_config.json's flags ask for.

    None if it does already, or there are no flags; `default` is a token that the files need not name. Files of
    e5-mistral and of DeepSeek's distilled models say only by these what their authors trained with; transformers heeded
    them to version 4, and passes over them since.
    """
    bos, eos = (files.token(name, default) for name in ("bos_token", "eos_token"))
    tokens = tokenizer.encode("a").tokens
    adds = tokens[:1] == [bos], tokens[-1:] == [eos]
    asked = files.option("add_bos_token", adds[0]), files.option("add_eos_token", adds[1])
    if asked == adds:
        return None
    used = {token: tokenizer.token_to_id(token) for token, is_asked in zip((bos, eos), asked, strict=True) if is_asked}
    if None in used.values():
        raise CheckpointError(
            f"{files.folder}: tokenizer_config.json has add_bos_token {asked[0]} and add_eos_token {asked[1]}, but the "
            f"tokenizer knows no {' or '.join(repr(token) for token, number in used.items() if number is None)}"
        )
    single, second = (
        " ".join(f"{part}:{kind}" for part in (asked[0] and bos, text, asked[1] and eos) if part)
        for kind, text in enumerate(("$A", "$B"))
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} {second}", special_tokens=list(used.items())
    )
    return tokenizer


def with_flagged_case(tokenizer: Tokenizer, files: TokenizerFiles) -> Tokenizer | None:
    """Return a tokenizer that lower-cases, and parts accents and Chinese characters, as tokenizer_config.json says.

    None if it does already. Transformers heeds the flags whatever tokenizer.json says, and where one is left out its
    class's default. Raises `CheckpointError` for a flag that is neither true nor false.
    """
    state = json.loads(tokenizer.to_str())["normalizer"] or {}
    if state.get("type") != "BertNormalizer":
        return None
    has = {name: state[name] for name in CASE_FLAGS}
    asked = {name: files.config.get(flag, default) for name, (flag, default) in CASE_FLAGS.items()}
    for name, (flag, default) in CASE_FLAGS.items():
        if not isinstance(asked[name], bool) and asked[name] != default:
            raise CheckpointError(
                f"{files.folder}: tokenizer_config.json: {flag} is {asked[name]!r}; it is true or false"
            )
    if asked == has:
        return None
    tokenizer.normalizer = normalizers.BertNormalizer(clean_text=state["clean_text"], **asked)
    return tokenizer


def with_flagged_prefix(tokenizer: Tokenizer, files: TokenizerFiles) -> Tokenizer | None:
    """Return a tokenizer of bytes that puts a space before each text, or none, as tokenizer_config.json says.

    None if it does already. Transformers heeds the flag whatever tokenizer.json says, and where it is left out puts
    none. Raises `CheckpointError` for a flag that is neither true nor false.
    """
    state, name = json.loads(tokenizer.to_str()), "add_prefix_space"
    parts = [part for part in (state["pre_tokenizer"], state["post_processor"]) if part and name in part]
    asked = files.flag(name)
    if (state["pre_tokenizer"] or {}).get("type") != "ByteLevel" or all(part[name] == asked for part in parts):
        return None
    for part in parts:
        part[name] = asked
    return Tokenizer.from_str(json.dumps(state))


def cleans_up(tokenizer: Tokenizer, files: TokenizerFiles, family: str) -> bool:
    """Tell whether texts lose spaces, as before a full stop, when they are decoded.

    Transformers heeds the flag for fast tokenizers unless they are of byte pairs, whose spaces are the text's own.
    Raises `CheckpointError` for a flag that is neither true nor false.
    """
    name = "clean_up_tokenization_spaces"
    asked, forced = files.flag(name), files.flag(f"{name}_for_bpe_even_though_it_will_corrupt_output")
    is_exempt = isinstance(tokenizer.model, models.BPE) and _class_of(files, family) not in CLEANS_UP_PAIRS
    return asked and (forced or not is_exempt)


def without_flagged_space(tokenizer: Tokenizer, files: TokenizerFiles) -> Tokenizer | None:
    """Return a tokenizer of pieces that puts no space before a text, where tokenizer_config.json asks for none.

    None if it puts none already, or is not asked. Raises `CheckpointError` for a flag that is neither true nor false.
    """
    if files.flag("add_prefix_space", default=True):
        return None
    state = json.loads(tokenizer.to_str())
    for step, parts_name, unwanted in (
        ("normalizer", "normalizers", "Prepend"),
        ("pre_tokenizer", "pretokenizers", None),
        ("decoder", "decoders", "Strip"),
    ):
        parts = parts_of(state[step], parts_name)
        kept = [
            {**part, "prepend_scheme": "never"} if part["type"] == "Metaspace" else part
            for part in parts
            if part["type"] != unwanted
        ]
        state[step] = state[step] if kept == parts else {"type": "Sequence", parts_name: kept}
    return None if state == json.loads(tokenizer.to_str()) else Tokenizer.from_str(json.dumps(state))


def parts_of(step: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Return the parts of a step of a tokenizer.json, which may be one or none; `name` is that of a sequence's."""
    if step is None:
        return []
    found: list[dict[str, Any]] = step[name] if step["type"] == "Sequence" else [step]
    return found


def of_llama(tokenizer: Tokenizer, files: TokenizerFiles) -> Tokenizer | None:
    """Return a tokenizer with the ends and without the space that tokenizer_config.json's flags ask for, or None."""
    spaced = without_flagged_space(tokenizer, files)
    return with_flagged_ends(spaced or tokenizer, files) or spaced


def with_flagged_letters(tokenizer: Tokenizer, files: TokenizerFiles) -> Tokenizer | None:
    """Return a tokenizer of pieces that lower-cases, and takes accents off, as tokenizer_config.json says.

    None if it does already. Transformers heeds ALBERT's flags whatever tokenizer.json says, and where one is left out
    the class's default: lower-case letters, no accents.
    """
    state = json.loads(tokenizer.to_str())
    parts = parts_of(state["normalizer"], "normalizers")
    first = list(takewhile(lambda part: part["type"] == "Replace", parts))
    rest = [part for part in parts[len(first) :] if part["type"] not in {"NFKD", "StripAccents", "Lowercase"}]
    asked = [] if files.flag("keep_accents") else ["NFKD", "StripAccents"]
    asked += ["Lowercase"] if files.flag("do_lower_case", default=True) else []
    changed = [*first, *({"type": kind} for kind in asked), *rest]
    if changed == parts:
        return None
    state["normalizer"] = {"type": "Sequence", "normalizers": changed}
    return Tokenizer.from_str(json.dumps(state))


def of_albert(tokenizer: Tokenizer, files: TokenizerFiles) -> Tokenizer | None:
    """Return a tokenizer with the letters and without the space that tokenizer_config.json's flags ask for, or None."""
    spaced = without_flagged_space(tokenizer, files)
    return with_flagged_letters(spaced or tokenizer, files) or spaced


def of_deberta(tokenizer: Tokenizer, files: TokenizerFiles) -> None:
    """Refuse flags that transformers heeds, unless the tokenizer does as they say; raises `CheckpointError`."""
    lowers = tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A").endswith("a")
    if (files.flag("do_lower_case") and not lowers) or files.flag("split_by_punct"):
        raise CheckpointError(f"{files.folder}: do_lower_case and split_by_punct are not supported; only false is")


HeedFlags = Callable[[Tokenizer, TokenizerFiles], Tokenizer | None]
BY_FLAGS: dict[str, HeedFlags] = {  # classes that heed tokenizer_config.json beside a tokenizer.json
    **dict.fromkeys(("LlamaTokenizer", "CodeLlamaTokenizer"), of_llama),
    "GemmaTokenizer": with_flagged_ends,
    "AlbertTokenizer": of_albert,
    "DebertaV2Tokenizer": of_deberta,
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"), with_flagged_case),
    **dict.fromkeys(("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "GPTNeoXTokenizer"), with_flagged_prefix),
}


def fitting(file: Path, vocab_size: int, scratch: Path) -> Path:
    """Return a `tokenizer.json` without the added tokens that a model has no vectors for; it may be the same file.

    Published files have such: a mask that a summarizer never saw, an image's place in a model of texts. Raises
    `CheckpointError` where other tokens have ids beyond the model's.
    """
    ids = read_tokenizer(file).get_vocab(with_added_tokens=True)
    beyond = {token for token, number in ids.items() if number >= vocab_size}
    if not beyond:
        return file
    content = json.loads(file.read_text(encoding="utf-8"))
    if beyond <= {token["content"] for token in content["added_tokens"]}:
        fitted = scratch / TOKENIZER_FILE
        fitted.write_text(json.dumps(_without(beyond, content, vocab_size), ensure_ascii=False), encoding="utf-8")
        tokenizer = read_tokenizer(fitted)
        used = tokenizer.encode("a").ids + tokenizer.encode("a", "a").ids  # with what it adds to each text
        if max(used, default=0) < vocab_size:
            return fitted
    last = max(ids, key=lambda token: ids[token])
    raise CheckpointError(
        f"{file.parent}: the tokenizer has the id {ids[last]}, of {last!r}, but the model knows {vocab_size}"
    )


def _without(tokens: set[str], content: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return a tokenizer.json's content without its last tokens, which are added ones."""
    model, vocabulary = content["model"], content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        kept: Any = {token: number for token, number in vocabulary.items() if token not in tokens}
    else:  # pieces in the order of their ids
        kept = vocabulary[:vocab_size]
    added = [token for token in content["added_tokens"] if token["content"] not in tokens]
    return {**content, "added_tokens": added, "model": {**model, "vocab": kept}}


def make_tokenizer(folder: Path, family: str) -> Tokenizer:
    """Make a tokenizer of the files that a checkpoint has in place of `tokenizer.json`; raises `CheckpointError`."""
    files = TokenizerFiles.read(folder)
    name = _class_of(files, family)
    if name not in BY_CLASS:
        raise CheckpointError(
            f"{folder}: there is no {TOKENIZER_FILE}, and none can be made of a {name or family!r}; transformers' "
            "AutoTokenizer.from_pretrained(…).save_pretrained(…) writes one for every model that has a fast tokenizer"
        )
    made = BY_CLASS[name](files)
    if name == "AlbertTokenizer":
        made = with_flagged_letters(made, files) or made
    if name == "GPT2Tokenizer":  # with tokenizer.json, transformers passes over its flags
        made = with_flagged_ends(made, files, words.END_OF_TEXT) or made
    return made


def _class_of(files: TokenizerFiles, family: str) -> str:
    return files.tokenizer_class(CLASSES.get(family, ""))


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizer.json`, without what it says of lengths, which serving decides; raises `CheckpointError`."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more special
        raise CheckpointError(f"{path}: cannot be read ({error}); get it again") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
