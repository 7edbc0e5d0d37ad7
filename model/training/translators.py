"""The recipes of translators: one pass after the other, and all directions at once."""

from __future__ import annotations

from dataclasses import replace

from model.training import cards, readers
from model.training.objectives import Seq2Seq
from model.training.readers import ENGLISH, LANGUAGES
from model.training.recipe import Recipe
from model.training.tokenizers import END, PAD, START, language_token, train_bpe

_TRANSLATE = Recipe(
    name="translate",
    card=cards.TRANSLATE,
    size="translate",
    read=readers.read_pairs,
    texts=lambda rows: [text for _, source, target in rows for text in (source, target)],
    train_tokenizer=lambda texts, vocab_size: train_bpe(
        texts, vocab_size, [PAD, START, END, *map(language_token, LANGUAGES)]
    ),
    objective=lambda tokenizer, config: Seq2Seq(tokenizer, max_length=64, label_smoothing=0.1),
    epochs=4,
    batch_tokens=6144,
    learning_rate=1.5e-3,
    warmup_steps=400,
    evaluate_every=300,
)

# And back into English.
_TRANSLATE_BOTH_WAYS = replace(
    _TRANSLATE,
    name="translate-both-ways",
    begins_with="translate-swedish",
    card=cards.TRANSLATE_BOTH_WAYS,
    read=readers.read_pairs_both_ways,
    added_tokens=(language_token(ENGLISH),),
    dropout=0.0,  # no pair is seen often enough to be learned by heart
    epochs=2.75,
    learning_rate=1e-3,
    warmup_steps=100,
)

# All directions from nothing and by Muon, in a third of the time of the passes. Better on the whole, and worse from
# English to German and Swedish: not bundled.
_TRANSLATE_AT_ONCE = replace(
    _TRANSLATE_BOTH_WAYS,
    name="translate-at-once",
    begins_with=None,
    read=readers.read_all_pairs_both_ways,
    epochs=3.5,
    learning_rate=1.5e-3,
    matrix_learning_rate=4.5e-3,
    warmup_steps=300,
    averaging=0.995,
    evaluate_every=500,
)

TRANSLATORS = (
    _TRANSLATE,
    # One more pass, with names to carry over.
    replace(
        _TRANSLATE,
        name="translate-names",
        begins_with="translate",
        read=readers.read_pairs_with_varied_names,
        epochs=1,
        learning_rate=6e-4,
        warmup_steps=50,
    ),
    # German is the hardest of the three.
    replace(
        _TRANSLATE,
        name="translate-german",
        begins_with="translate-names",
        read=readers.read_mostly_german_pairs,
        epochs=2,
        learning_rate=9e-4,
        warmup_steps=100,
    ),
    # Swedish has the fewest pairs, and gets the last word.
    replace(
        _TRANSLATE,
        name="translate-swedish",
        begins_with="translate-german",
        read=readers.read_mostly_swedish_pairs,
        epochs=1,
        learning_rate=3e-4,
        warmup_steps=20,
    ),
    _TRANSLATE_BOTH_WAYS,
    # What was learned first must not be forgotten: mostly from English, and the Swedish pairs often.
    replace(
        _TRANSLATE_BOTH_WAYS,
        name="translate-both-ways-longer",
        begins_with="translate-both-ways",
        read=readers.read_mostly_pairs_from_english,
        epochs=2,
        learning_rate=8e-4,
        warmup_steps=50,
    ),
    # All directions alike. Better on the whole, but int8 costs Swedish more than it may: not bundled.
    replace(
        _TRANSLATE_BOTH_WAYS,
        name="translate-both-ways-evenly",
        begins_with="translate-both-ways-longer",
        read=readers.read_all_pairs_both_ways,
        epochs=1,
        learning_rate=6e-4,
        warmup_steps=50,
    ),
    _TRANSLATE_AT_ONCE,
    # And longer, mostly from English, with nothing read the same way twice, as those pairs were known by heart. Better
    # in Swedish and out of domain, and worse in French and into English: not bundled.
    replace(
        _TRANSLATE_AT_ONCE,
        name="translate-longer",
        begins_with="translate-at-once",
        read=readers.read_mostly_pairs_from_english,
        objective=lambda tokenizer, config: Seq2Seq(tokenizer, max_length=64, label_smoothing=0.1, source_splits=0.15),
        dropout=0.1,
        epochs=5,
        learning_rate=1e-3,
        matrix_learning_rate=3e-3,
        warmup_steps=100,
    ),
    replace(
        _TRANSLATE_AT_ONCE,
        name="translate-again",
        begins_with="translate-longer",
        read=readers.read_pairs_from_english_and_some_back,
        objective=lambda tokenizer, config: Seq2Seq(tokenizer, max_length=64, label_smoothing=0.1, source_splits=0.1),
        dropout=0.05,
        epochs=4,
        learning_rate=1e-3,
        matrix_learning_rate=3e-3,
        warmup_steps=100,
    ),
)
