"""What of the data sets each recipe reads, as the rows its objective encodes."""

from __future__ import annotations

import itertools
import logging
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.training.errors import DataError
from model.training.files import Row, Split, SplitOrTest, idx_paths, read_idx_pair, read_rows, text_lines
from model.training.given_names import with_varied_names
from model.training.objectives.answer import Question
from model.training.story_requests import request_of

logger = logging.getLogger(__name__)

ENGLISH = "en"
LANGUAGES = ("de", "fr", "sv")  # that the bundled translator knows beside English
SPAM = ("ham", "spam")
TOPICS = (
    *("Album", "Animal", "Artist", "Athlete", "Building", "Company", "EducationalInstitution", "Film"),
    *("MeanOfTransportation", "NaturalPlace", "OfficeHolder", "Plant", "Village", "WrittenWork"),
)
TAGS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
# What other data sets call kinds of entities that are among the tags.
KINDS = {"person": "PER", "corporation": "ORG", "group": "ORG", "location": "LOC"}
PASSED_OVER = {"MISC", "product", "creative-work"}  # kinds that these data sets have, and that are not learned
CLOTHES = (*("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),)
CLOTHES_SIDE = 28  # pixels
# What is kept of training data for validation, where there is no such file.
VALIDATION_ARTICLES, VALIDATION_IMAGES = 15, 5000

SHOWN_TAGS = 10  # of those that are not known

# Where one sentence ends and another begins; good enough to cut texts into stretches.
_SENTENCE_END = re.compile(r"""(?<=[.!?]["')])\s+|(?<=[.!?])\s+(?=["'(]?[A-Z])""")


def sentences_of(text: str) -> list[str]:
    """Cut a text into sentences."""
    return [sentence for line in text.splitlines() for sentence in _SENTENCE_END.split(line.strip()) if sentence]


def read_documents(data: Path, split: Split) -> list[list[str]]:
    """Read Wikipedia (SQuAD's paragraphs, WikiText-2), chapters of books and textbooks, and for training stories too.

    Each document is a list of sentences.
    """
    texts = [*_squad_paragraphs(data, "train" if split == "train" else "dev"), *_wikitext_articles(data, split)]
    for folder in ("books_pd", "openstax_ccby"):
        texts += [row["text"] for row in read_rows(data / folder / f"{split}.jsonl.xz")]
    if split == "train":
        texts += read_stories(data, split)
    return [sentences_of(text) for text in texts]


def _squad_paragraphs(data: Path, file: str) -> Iterator[str]:
    """Yield the articles of SQuAD, a paragraph a line."""
    articles: dict[str, list[str]] = {}
    for row in read_rows(data / "squad11" / f"{file}.jsonl.xz"):
        articles.setdefault(row["title"], []).append(row["context"].replace("\n", " "))
    yield from ("\n".join(paragraphs) for paragraphs in articles.values())


def _wikitext_articles(data: Path, split: Split) -> Iterator[str]:
    """Yield the articles of WikiText-2; its marks ( @-@ , <unk>) are undone, its headings left out."""
    article: list[str] = []
    for line in text_lines(data / "wikitext2" / f"{split}.txt.xz"):
        if re.match(r" = [^=]", line):
            yield "\n".join(article)
            article = []
        elif line.strip() and not line.startswith(" = ="):
            article.append(re.sub(r" @(.)@ ", r"\1", line.strip()).replace("<unk>", "[UNK]"))
    yield "\n".join(article)


def bare(text: str) -> str:
    """Return a text's letters and digits in lower case, to tell whether two texts are the same."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


def read_spam(data: Path, split: SplitOrTest) -> list[tuple[str, int]]:
    """Read text messages as (text, label)."""
    return [(row["text"], row.label(SPAM)) for row in read_rows(data / "sms_spam" / f"{split}.tsv.xz")]


def read_topics(data: Path, split: SplitOrTest) -> list[tuple[str, int]]:
    """Read the first lines of encyclopedia articles as (text, label)."""
    return [(row["text"], row.label(TOPICS)) for row in read_rows(data / "dbpedia14_subset" / f"{split}.tsv.xz")]


def read_questions(data: Path, split: SplitOrTest) -> list[Question]:
    """Read questions about paragraphs; those of the last articles are kept for validation."""
    rows = list(read_rows(data / "squad11" / ("dev.jsonl.xz" if split == "test" else "train.jsonl.xz")))
    titles = list(dict.fromkeys(row["title"] for row in rows))
    kept = set(titles[-VALIDATION_ARTICLES:])
    return [
        _question(row, asked)
        for row in rows
        if split == "test" or (row["title"] in kept) == (split == "validation")
        for asked in row["qas"]
    ]


def _question(row: Row, asked: Mapping[str, Any]) -> Question:
    """Return a question about a row's paragraph; raises `DataError` where its answers do not stand there."""
    context = row["context"]
    try:
        question = asked["question"]
        answers = [(answer["text"], answer["answer_start"]) for answer in asked["answers"]]
    except KeyError as error:
        raise row.error(f"a question or an answer of its qas has no {error.args[0]}") from None
    if not answers:
        raise row.error(f"{question!r} has no answer; leave out such questions, as SQuAD 2.0's impossible ones")
    for text, start in answers:
        if not text or not context.startswith(text, start):
            raise row.error(f"the answer {text!r} to {question!r} does not stand at character {start} of the context")
    return Question(question, context, answers)


def read_entities(data: Path, split: SplitOrTest) -> list[tuple[list[str], list[str]]]:
    """Read sentences of Wikipedia and of social media as (words, tags); a tenth of Wikipedia is tested on."""
    wikipedia = list(_read_conll(data / "wikigold" / "all.conll.xz"))
    if split != "train":
        return wikipedia[0 if split == "validation" else 5 :: 10]
    tweets = [
        row for section in "abeg" for row in _read_conll(data / "btc" / f"section_{section}.conll.xz")
    ]  # the other sections are its validation and test data
    emerging = _read_conll(data / "wnut17" / "train.conll.xz")
    tested = [*wikipedia[::10], *wikipedia[5::10], *read_emerging_entities(data)]
    held_out = {tuple(map(str.lower, words)) for words, _ in tested}
    rows = [row for index, row in enumerate(wikipedia) if index % 5] + tweets + list(emerging)
    return [row for row in rows if tuple(map(str.lower, row[0])) not in held_out]


def read_emerging_entities(data: Path) -> list[tuple[list[str], list[str]]]:
    """Read the test sentences of WNUT-17, of social media, as (words, tags): entities that are new and rare."""
    return list(_read_conll(data / "wnut17" / "test.conll.xz"))


def _read_conll(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield sentences; tags that are not known count as none, and are told unless they are `PASSED_OVER`."""
    words: list[str] = []
    tags: list[str] = []
    unknown = Counter[str]()
    for number, line in enumerate(itertools.chain(text_lines(path), ["\n"]), start=1):
        word, tab, given = line.rstrip("\r\n").partition("\t")
        if word and not tab:
            raise DataError(f"{path}, line {number}: there is no TAB between a word and its tag")
        if word:
            begins, _, kind = given.partition("-")
            tag = f"{begins}-{KINDS.get(kind, kind)}"
            words.append(word)
            tags.append(tag if tag in TAGS else "O")
            if given != "O" and tag not in TAGS and kind not in PASSED_OVER:
                unknown[given] += 1
        elif words:
            yield words, tags
            words, tags = [], []
    if unknown:
        found = ", ".join(f"{tag} ({count:,})" for tag, count in unknown.most_common(SHOWN_TAGS))
        logger.warning("%s: words with other tags than %s count as O: %s", path, ", ".join(TAGS), found)


def read_stories(data: Path, split: Split) -> list[str]:
    """Read TinyStories, and for training the openly licensed storybooks too."""
    rows = list(read_rows(data / "tinystories_subset" / f"{split}.jsonl.xz"))
    if split == "train":
        rows += read_rows(data / "storybooks_ccby" / "all.jsonl.xz")
    return [story_of(row) for row in rows]


def story_of(row: Mapping[str, str]) -> str:
    """Return a story as it is learned and measured: with no line empty."""
    return re.sub(r"\s*\n\s*", "\n", row["text"].strip())


def read_books_and_stories(data: Path, split: Split) -> list[str]:
    """Read the stories, and for training the public-domain children's books too, chapter by chapter."""
    rows = read_stories(data, split)
    if split == "train":
        chapters = read_rows(data / "books_pd" / "train.jsonl.xz")
        rows += [row["text"] for row in chapters if row["group"] == "children"]
    return rows


def read_story_requests(data: Path, split: Split) -> list[tuple[str, str]]:
    """Read TinyStories as (request, story); a quarter has no request, so that plain stories are not forgotten."""
    rng = random.Random(1)
    rows = []
    for row in read_rows(data / "tinystories_subset" / f"{split}.jsonl.xz"):
        story = story_of(row)
        request = request_of(story, rng)
        rows.append(("" if rng.random() < 0.25 else request, story))
    return rows


def read_pairs(data: Path, split: SplitOrTest) -> list[tuple[str, str, str]]:
    """Read Tatoeba as (target language, English, translation); Swedish is small, so training sees it three times."""
    rows = []
    for language in LANGUAGES:
        pairs = [
            (language, row["en"], row[language])
            for row in read_rows(data / f"tatoeba_en_{language}" / f"{split}.tsv.xz")
        ]
        rows += pairs * (3 if language == "sv" and split == "train" else 1)
    return rows


def read_pairs_both_ways(data: Path, split: Split) -> list[tuple[str, str, str]]:
    """Read all pairs from English and, as ("en", foreign text, English), back; the Swedish three times.

    In half of the training sentences Tom and Mary have other names, here and in what follows.
    """
    pairs = read_pairs(data, split)
    if split == "validation":
        return pairs + _turned(pairs)
    return with_varied_names(pairs + _back(data, pairs), seed=4)


def read_mostly_pairs_from_english(data: Path, split: Split) -> list[tuple[str, str, str]]:
    """Read for training the German pairs, half of the French, the Swedish three times; back a quarter, Swedish once."""
    pairs = read_pairs(data, split)
    if split == "validation":
        return pairs + _turned(pairs)
    rng = random.Random(4)
    german, french, swedish = _by_language(pairs)
    there = german + rng.sample(french, len(french) // 2) + swedish
    back = rng.sample(german, len(german) // 4) + rng.sample(french, len(french) // 4) + swedish[: len(swedish) // 3]
    return with_varied_names(there + _back(data, back), seed=3)


def read_pairs_from_english_and_some_back(data: Path, split: Split) -> list[tuple[str, str, str]]:
    """Read all pairs from English, the Swedish three times, and a third of each back; an eighth of it as two joined.

    Joined sentences are longer than what Tatoeba has, and are translated one after the other.
    """
    pairs = read_pairs(data, split)
    if split == "validation":
        return pairs + _turned(pairs)
    rng = random.Random(5)
    there = _by_language(pairs)
    swedish = there[-1]
    some = [rng.sample(rows, len(rows) // 3) for rows in there[:-1]] + [swedish[: len(swedish) // 3]]
    back = [_back(data, rows) for rows in some]
    return with_varied_names([row for rows in there + back for row in _with_some_joined(rows, rng)], seed=5)


def _with_some_joined(rows: list[tuple[str, str, str]], rng: random.Random) -> list[tuple[str, str, str]]:
    """Put another row behind each eighth one, both in one; all are between the same languages."""
    joined = list(rows)
    for index in range(0, len(rows), 8):
        language, *texts = rows[index]
        source, target = (f"{text} {other}" for text, other in zip(texts, rng.choice(rows)[1:], strict=True))
        joined[index] = language, source, target
    return joined


def _by_language(pairs: list[tuple[str, str, str]]) -> list[list[tuple[str, str, str]]]:
    return [[row for row in pairs if row[0] == language] for language in LANGUAGES]


def _back(data: Path, pairs: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Turn the pairs, but those whose English is validated or tested on in any language."""
    others: tuple[SplitOrTest, ...] = ("validation", "test")
    held_out = {bare(english) for other in others for _, english, _ in read_pairs(data, other)}
    return _turned([row for row in pairs if bare(row[1]) not in held_out])


def _turned(pairs: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return [(ENGLISH, translation, english) for _, english, translation in pairs]


def read_clothes(data: Path, split: SplitOrTest) -> list[tuple[NDArray[np.uint8], int]]:
    """Read Fashion-MNIST as (image, label); the last of its training images are kept for validation."""
    folder, part = data / "fashion_mnist", "t10k" if split == "test" else "train"
    images, labels = read_idx_pair(folder, part)
    _check_clothes(folder, part, images, labels)
    if split == "train" and len(images) <= VALIDATION_IMAGES:
        raise DataError(
            f"{idx_paths(folder, part)[0]}: it holds {len(images):,} images; there must be more than "
            f"{VALIDATION_IMAGES:,}, as the last {VALIDATION_IMAGES:,} are kept for validation"
        )
    places = {"train": slice(None, -VALIDATION_IMAGES), "validation": slice(-VALIDATION_IMAGES, None)}
    place = places.get(split, slice(None))
    return list(zip(images[place], labels[place].tolist(), strict=True))


def _check_clothes(folder: Path, part: str, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    """Raise `DataError` for images of another size, or labels that are other numbers, or not one for each image."""
    of_images, of_labels = idx_paths(folder, part)
    side = CLOTHES_SIDE
    if images.shape[1:] != (side, side):
        shape = " × ".join(map(str, images.shape))
        raise DataError(f"{of_images}: it holds {shape} bytes; images are grey, {side} × {side} pixels each")
    if labels.shape != images.shape[:1]:
        shape = " × ".join(map(str, labels.shape))
        raise DataError(f"{of_labels}: it holds {shape} labels; there are {len(images):,} images, with one each")
    if labels.size and labels.max() >= len(CLOTHES):
        place = int((labels >= len(CLOTHES)).argmax())
        raise DataError(f"{of_labels}: label {place + 1} is {labels[place]}; labels are 0 to {len(CLOTHES) - 1}")
