"""Cards: what the packages that recipes make are for, what they are not for, and what they learned from.

A card names the data of its own recipe; what the runs before it learned from is added as they are trained.
"""

from __future__ import annotations

from dataclasses import replace

from model.card import Card
from model.package import ChatTemplate, Dataset, Entailment, ImageFormat, Tagging
from model.training import nli, pairs, readers, sentiment
from model.training.readers import ENGLISH, LANGUAGES

OPEN_TEXT = "that of its training data, all of it free: CC BY-SA, CC BY, GFDL, CDLA-Sharing, public domain"
PARTLY_UNCLEAR = (
    "that of its training data: CC BY-SA, CC BY, GFDL, Apache-2.0, MIT, CDLA-Sharing, public domain; unclear for some "
    "sentences"
)
UNCLEAR_REVIEWS = "unclear, as no licence of the reviews was ever published; for research and demonstration"
IMDB = Dataset(name="IMDb Large Movie Review Dataset, train", licence="unclear: none was published")
STSB = Dataset(
    name="STS Benchmark, train, without pairs of MRPC and SICK",
    licence="scores CC BY-SA 4.0; its sentences have several licences",
)

TOPICS_OF_DBPEDIA = Dataset(name="DBpedia-14, a subset of 17,292", licence="CC BY-SA 3.0 and GFDL")
INFERENCE = (
    Dataset(name="Linguist-in-the-loop NLI, on premises of MultiNLI", licence="unclear: the collection has none"),
    Dataset(name="Semi-automatic NLI, on Wikipedia", licence="premises CC BY-SA 3.0 and GFDL"),
    Dataset(name="Counterfactually augmented NLI", licence="Apache-2.0; of SNLI's sentences CC BY-SA 4.0"),
    Dataset(name="ConjNLI, adversarial training set", licence="MIT"),
)
TINYSTORIES = Dataset(name="TinyStories, a subset of 12,202 stories", licence="CDLA-Sharing-1.0")
STORYBOOKS = Dataset(name="Storybooks by Pratham Books and African Storybook, 682 texts", licence="CC BY 4.0")

ENCODER = Card(
    name="encoder",
    task="fill",
    description="Predicts masked words and whether one sentence follows another: what the encoders begin with.",
    not_for="anything but missing words and being fine-tuned",
    licence=OPEN_TEXT,
    training_data=(
        Dataset(name="SQuAD 1.1, its Wikipedia paragraphs", licence="CC BY-SA 4.0"),
        Dataset(name="171 books of 1719 to 1926", licence="public domain"),
        Dataset(name="WikiText-2", licence="CC BY-SA 3.0"),
        Dataset(name="17 textbooks by OpenStax, Rice University", licence="CC BY 4.0"),
        TINYSTORIES,
        STORYBOOKS,
    ),
)
ENCODER_OF_REVIEWS = replace(
    ENCODER,
    licence=UNCLEAR_REVIEWS,
    training_data=(
        IMDB,
        Dataset(name="IMDb Large Movie Review Dataset, without labels", licence="unclear: none was published"),
    ),
)
STORIES_AND_BOOKS = Card(
    name="stories",
    task="generate",
    description="Writes short stories for small children in simple English, and continues those that are begun.",
    not_for="facts, other kinds of text, other languages, or children without an adult who reads first",
    licence="that of its training data: CDLA-Sharing-1.0, CC BY 4.0, and the public domain",
    training_data=(
        TINYSTORIES,
        STORYBOOKS,
        Dataset(name="56 children's books of 1719 to 1926", licence="public domain"),
    ),
)
# A request is a line, and so is whatever was said before it.
LINES = ChatTemplate(source="{% for message in messages %}{{ message.content }}\n{% endfor %}")
STORIES_ASKED_FOR = replace(STORIES_AND_BOOKS, training_data=(TINYSTORIES,), chat_template=LINES)
TRANSLATE = Card(
    name="translate",
    task="translate",
    description="Translates short everyday sentences between English and German, French or Swedish.",
    not_for="long or technical texts, names of places and products, or anything that must be right",
    licence="that of its training data: CC BY 2.0 FR, attribution to tatoeba.org and manythings.org/anki",
    training_data=tuple(
        Dataset(name=f"Tatoeba sentence pairs en-{language}", licence="CC BY 2.0 FR, tatoeba.org")
        for language in LANGUAGES
    ),
    directions=(*((ENGLISH, language) for language in LANGUAGES), *((language, ENGLISH) for language in LANGUAGES)),
)
SENTIMENT = Card(
    name="sentiment",
    task="classify",
    description="Tells whether an English text, such as a review of a film, is positive or negative.",
    not_for="irony, other languages, neutral texts (there is no third answer), or judging people",
    licence=UNCLEAR_REVIEWS,
    training_data=(
        Dataset(name="SST-2, phrases of the training sentences", licence="unclear: none was published"),
        IMDB,
    ),
    labels=sentiment.SENTIMENTS,
)
SPAM = Card(
    name="spam",
    task="classify",
    description="Tells unwanted text messages (spam) from wanted ones (ham).",
    not_for="e-mail, other languages, or messages of today: its data are British and Singaporean SMS of 2005",
    licence=OPEN_TEXT,
    training_data=(Dataset(name="SMS Spam Collection v.1", licence="CC BY 4.0"),),
    labels=readers.SPAM,
    max_input_tokens=128,
)
TOPICS = Card(
    name="topics",
    task="classify",
    description="Tells what the beginning of an encyclopedia article is about: one of 14 kinds of things.",
    not_for="news, opinions, or texts about anything else; it always answers with one of the 14",
    licence=OPEN_TEXT,
    training_data=(TOPICS_OF_DBPEDIA,),
    labels=readers.TOPICS,
    max_input_tokens=128,
)
ALIKE = Card(
    name="alike",
    task="rerank",
    description="Tells how alike two English sentences are in what they mean, 0 to 1.",
    not_for="texts longer than a sentence",
    licence=PARTLY_UNCLEAR,
    training_data=(STSB,),
    labels=pairs.ALIKE,
    activation="sigmoid",
    max_input_tokens=128,
)
ENTAIL = Card(
    name="entail",
    task="classify",
    description="Tells whether a sentence follows from a text, contradicts it or neither; so it sorts into any labels.",
    not_for="anything that must be right; praise and blame, numbers, facts that the text does not hold, long texts, or "
    "judging people",
    licence="that of its training data: CC BY-SA, CC BY, GFDL, Apache-2.0, MIT, CDLA-Sharing; unclear for a quarter",
    training_data=(
        *INFERENCE,
        TOPICS_OF_DBPEDIA,
        Dataset(name="CLINC150, train", licence="CC BY 3.0"),
        Dataset(name="GoEmotions, train, comments with one emotion", licence="CC BY 4.0"),
        Dataset(name="SQuAD 1.1, its Wikipedia paragraphs", licence="CC BY-SA 4.0"),
    ),
    labels=nli.ENTAILMENTS,
    entailment=Entailment(
        entails=nli.ENTAILMENTS.index("entailment"), contradicts=nli.ENTAILMENTS.index("contradiction")
    ),
    max_input_tokens=128,
)
ENTAIL_ALONE = replace(
    ENTAIL,
    description="Tells whether a sentence follows from a text, contradicts it or neither.",
    licence="that of its training data: CC BY-SA, GFDL, Apache-2.0, MIT, CDLA-Sharing; unclear for half of its pairs",
    training_data=INFERENCE,
)
ENTITIES = Card(
    name="entities",
    task="tag",
    description="Marks people, organisations and places in English sentences.",
    not_for="anything in lower case: capitals are lost to its tokenizer",
    licence=OPEN_TEXT,
    training_data=(
        Dataset(name="WikiGold, eight tenths of it", licence="CC BY 4.0"),
        Dataset(name="Broad Twitter Corpus, sections a, b, e, g", licence="CC BY 4.0"),
        Dataset(name="WNUT-17, train", licence="CC BY 4.0"),
    ),
    labels=readers.TAGS,
    max_input_tokens=256,
    tagging=Tagging(aggregation="first"),  # it learns from each word's first token
)
ANSWERS = Card(
    name="answers",
    task="answer",
    description="Finds the answer to a question in an English paragraph.",
    not_for="questions whose answer the paragraph does not hold",
    licence=OPEN_TEXT,
    training_data=(Dataset(name="SQuAD 1.1, its questions", licence="CC BY-SA 4.0"),),
    labels=("start", "end"),
    max_input_tokens=256,
)
EMBED = Card(
    name="embed",
    task="embed",
    description="Maps English texts to vectors that are near one another where the texts mean alike.",
    not_for="other languages, code, or texts of more than a short paragraph",
    licence=PARTLY_UNCLEAR,
    training_data=(
        STSB,
        *INFERENCE,
        Dataset(name="Tatoeba, English sentences with the same translation", licence="CC BY 2.0 FR, tatoeba.org"),
        Dataset(name="SQuAD 1.1, its questions", licence="CC BY-SA 4.0"),
    ),
    max_input_tokens=128,
)
FASHION_IMAGES = ImageFormat(size=28, channels=1, mean=[0.286], deviation=[0.353])
FASHION = Card(
    name="fashion",
    task="classify",
    description="Tells what piece of clothing a small grey image shows, light on black: one of ten.",
    not_for="photographs: its data are cut out, centred, and light on a black ground",
    licence="MIT, as its training data",
    training_data=(Dataset(name="Fashion-MNIST, train", licence="MIT"),),
    labels=readers.CLOTHES,
    image=FASHION_IMAGES,
)
