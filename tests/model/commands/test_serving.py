from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from model.commands.app import app, main
from model.hub.names import BUNDLED
from service import __version__
from service.keys import hash_of, read_keys
from service.settings import Settings
from tests.conftest import TinyPackage

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a/b", "--models", "models.yaml"], "give names or a models file, not both"),
        (["a/b", "c/d", "--name", "x"], "1 names for 2 models"),
        (["a/b", "--set", "max_slots"], "'max_slots' is not FIELD=VALUE"),
        (["a/b", "--precision", "int3"], "int8-blocks"),
        (["--set", "max_slots=16"], "--set: only for models given by name"),
        (["--models", "models.yaml", "--precision", "float32"], "--precision: only for models given by name"),
        (["--pooling", "mean"], "--pooling: only for models given by name"),
        (["--languages", "en", "de"], "--languages: only for models given by name"),
        (["--models", "models.yaml", "--allow-pickle"], "--allow-pickle: only for models given by name"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["serve", *arguments], env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert words in result.output


def trifold(*arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, where some libraries may not be installed."""
    missing = "".join(f"sys.modules[{name!r}] = None; " for name in without.split())
    code = f"import sys; {missing}from model.commands.app import main; sys.argv[0] = 'trifold'; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_help_and_serving_need_no_torch_and_what_needs_it_says_what_to_install(tmp_path: Path) -> None:
    libraries = "torch onnx safetensors matplotlib sacrebleu"
    assert "serve" in trifold("--help", without=libraries).stdout

    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    lacking = trifold("import", str(tmp_path), without=libraries)
    assert lacking.returncode == 1
    install = "pip install 'trifold-server[import]', or -e '.[import]' in a checkout"
    assert lacking.stderr.splitlines()[-1] == f"trifold: this needs torch, which is not installed: {install}"


def test_an_error_is_a_sentence() -> None:
    done = trifold("serve", "./none")

    assert done.returncode == 1
    assert done.stderr.startswith("trifold: ./none: there is no such folder, and models on the hub are named org/name")
    assert "Traceback" not in done.stderr


def test_a_models_file_of_the_environment_may_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models.yaml").write_text("models: [{model: ./none}]")
    monkeypatch.setenv("TRIFOLD_MODELS_FILE", str(tmp_path / "models.yaml"))
    done = trifold("serve")

    assert done.returncode == 1
    assert f"{tmp_path / 'none'}: there is no such folder" in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"trifold: \.: Is a directory; --models or TRIFOLD_MODELS_FILE names the models file\n"),
        ("models: []", r"trifold: {file}: models: must be a list of models, at least one, .*\n"),
        ("models: [{package: a, max_slot: 3}]", r"trifold: {file}: models\.0: max_slot: not known; .*\n"),
    ],
)
def test_what_is_wrong_with_a_models_file_names_it_as_it_was_given(
    content: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(content or "")
    monkeypatch.setenv("TRIFOLD_MODELS_FILE", str(file) if content else "")
    done = trifold("serve")

    assert done.returncode == 1
    assert re.fullmatch(words.format(file=re.escape(str(file))), done.stderr)


def test_the_version_is_told() -> None:
    assert trifold("--version").stdout == f"{__version__}\n"


def test_what_the_machine_refuses_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        Path("/proc/none").mkdir()

    monkeypatch.setattr("model.commands.app.app", refused)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == "trifold: /proc/none: No such file or directory"


def test_a_key_is_made_and_its_hash_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    result = CliRunner().invoke(app, ["key", "billing", "--requests-per-minute", "60", "--file", str(path)])

    (kept,) = read_keys(path)
    assert kept.hash == hash_of(result.stdout.strip())
    assert (kept.name, kept.requests_per_minute) == ("billing", 60)


def test_models_have_the_names_and_the_service_the_address_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []

    def start(given: dict[str, Any]) -> None:
        entries = yaml.safe_load(given.pop("models_file").read_text())["models"]
        started.append({**given, "names": [entry["name"] for entry in entries]})

    monkeypatch.setattr("model.commands.serving._start", start)
    monkeypatch.setattr("model.commands.serving.check_apart", lambda _: None)
    monkeypatch.setattr("model.commands.serving.find_apart", lambda name, _: BUNDLED / name)
    arguments = ["sentiment", "spam", "--name", "one", "--name", "two", "--port", "8123"]
    result = CliRunner().invoke(app, ["serve", *arguments])

    assert result.exit_code == 0, result.output
    assert started == [{"port": 8123, "names": ["one", "two"]}]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_place_that_takes_no_files_is_told_with_where_packages_are_kept(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise OSError(number, os.strerror(number), "/kept/graph")

    monkeypatch.setattr("model.commands.app.app", refused)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == (
        f"trifold: /kept/graph: {os.strerror(number)} (packages are written to --out, or kept in TRIFOLD_CACHE_DIR)"
    )


def test_the_service_reads_the_models_file_whatever_the_locale_is(
    sentiment: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(sentiment.folder, tmp_path / "größe"))
    served: list[Path] = []

    def start(given: dict[str, Any]) -> None:
        served.extend(model.package for model in Settings.read(**given).models())

    monkeypatch.setattr("model.commands.serving._start", start)
    monkeypatch.setattr("model.commands.serving.find_apart", lambda *_: folder)
    monkeypatch.setattr("io.text_encoding", lambda encoding, _level=2: encoding or "ascii")  # as in LC_ALL=C
    result = CliRunner().invoke(app, ["serve", str(folder)])

    assert result.exit_code == 0, repr(result.exception)
    assert served == [folder]
