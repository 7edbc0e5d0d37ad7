from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from model.commands.app import app
from model.hub.names import BUNDLED
from model.package import Manifest
from model.package.files import sha256_of
from model.package.manifest import FILE_NAME
from tests.local_hub import Repository, local_hub
from tests.model.commands.test_serving import trifold

PINNED = "a" * 64


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either an address or --list"),
        (["s3://bucket/a", "--list", "packages.yaml"], "give either an address or --list"),
        (["s3://bucket/a", "--sha256", "abc"], "64 digits"),
        (["--list", "packages.yaml", "--sha256", PINNED], "of the one package"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["fetch", "--to", "folder", *arguments], env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert words in result.output


def test_packages_of_a_list_go_into_folders_of_their_names(tmp_path: Path) -> None:
    with local_hub() as hub:
        hub.repositories["shop/fashion"] = Repository(BUNDLED / "fashion")
        pinned = sha256_of(BUNDLED / "fashion" / FILE_NAME)
        (tmp_path / "packages.yaml").write_text(
            f"packages: [{{name: clothes, from: '{hub.address}/shop/fashion/resolve/main', sha256: {pinned}}}]"
        )

        result = CliRunner().invoke(
            app, ["fetch", "--list", str(tmp_path / "packages.yaml"), "--to", str(tmp_path / "models")]
        )

    assert result.exit_code == 0, result.output
    assert Manifest.load(tmp_path / "models" / "clothes").name == "fashion"


def test_fetching_needs_no_torch_and_a_bucket_says_what_to_install(tmp_path: Path) -> None:
    done = trifold(
        *("fetch", "s3://bucket/a", "--to", str(tmp_path / "a")),
        without="torch onnx safetensors sentencepiece obstore",
    )

    install = "pip install 'trifold-server[stores]', or -e '.[stores]' in a checkout"
    assert done.stderr == f"trifold: this needs obstore, which is not installed: {install}\n"
