"""Text from a training run's checkpoint, by the slow decoding of `model.decoding`."""

from __future__ import annotations

from pathlib import Path

from model.architectures import DecoderLM, EncoderDecoder
from model.decoding import beam_search, next_logits
from model.package.tokenizer import token_id
from model.training.errors import RunError
from model.training.run import load_trained
from model.training.tokenizers import END, END_OF_TEXT, START, language_token


def continue_text(run: Path, text: str, language: str | None, beam_size: int, max_tokens: int) -> str:
    """Continue a prompt, or translate it into `language`; raises `RunError` where that cannot be.

    Outputs are as long as the model's positions allow at most.
    """
    model, tokenizer, _ = load_trained(run)
    if tokenizer is None or not isinstance(model, DecoderLM | EncoderDecoder):
        raise RunError(f"{run}: its model generates no text")
    if language is not None and not isinstance(model, EncoderDecoder):
        raise RunError(f"language is {language!r}; the model of {run} does not translate")
    ids, positions = tokenizer.encode(text).ids, model.config.max_positions
    if len(ids) + 2 > positions:  # with what comes before and behind
        raise RunError(f"the text has {len(ids)} tokens; the model of {run} takes {positions - 2} at most")
    if isinstance(model, EncoderDecoder):
        try:
            first = token_id(tokenizer, language_token(language or ""))
        except KeyError as error:
            raise RunError(f"language is {language!r}; the model of {run} has no token {error}") from None
        end = token_id(tokenizer, END)
        logits = next_logits(model, [first, *ids, end])
        best = beam_search(logits, [token_id(tokenizer, START)], end, min(max_tokens, positions - 1), beam_size)[0]
        return str(tokenizer.decode(best.ids))
    end = token_id(tokenizer, END_OF_TEXT)
    most = min(max_tokens, positions - 1 - len(ids))
    best = beam_search(next_logits(model), [end, *ids], end, most, beam_size)[0]
    return str(tokenizer.decode(ids + best.ids))
