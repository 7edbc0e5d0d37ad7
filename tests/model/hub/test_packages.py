from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from model.card import Card
from model.checkpoints.errors import CheckpointError
from model.hub.cache import PackageCache
from model.hub.download import Hub
from model.hub.errors import HubError, HubUnreachable
from model.hub.names import HubName
from model.hub.packages import ImportOptions, Packages
from model.hub.sources import Source, content_of
from model.package import Manifest
from tests.conftest import TinyPackage
from tests.local_hub import LocalHub, Repository
from tests.model.conftest import AddModel

FLOAT32 = ImportOptions("float32")


def test_a_model_is_imported_once_and_then_found_with_and_without_the_hub(
    packages: Packages, hub: Hub, running_hub: LocalHub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = add_model("Tiny/BERT")
    folder = packages.find("Tiny/BERT", FLOAT32)
    manifest = Manifest.load(folder)

    assert (manifest.name, manifest.family, manifest.licence, manifest.labels) == (
        "bert",
        "bert",
        "apache-2.0",
        ["bad", "good"],
    )
    running_hub.requests.clear()
    assert packages.find("Tiny/BERT", FLOAT32) == folder
    assert [path for _, path, _ in running_hub.requests] == ["/api/models/Tiny/BERT/revision/main"]

    running_hub.requests.clear()
    assert packages.find(f"Tiny/BERT@{repository.commit}", FLOAT32) == folder
    assert running_hub.requests == []

    assert hub.folder is not None
    shutil.rmtree(hub.folder)  # what was downloaded is needed no longer
    unreachable = replace(packages, hub=replace(hub, endpoint="http://127.0.0.1:9"))
    offline = replace(packages, hub=replace(hub, offline=True))
    for without in (unreachable, offline):
        assert without.find("Tiny/BERT", FLOAT32) == folder
        with pytest.raises(HubUnreachable):
            without.find("Tiny/BERT", ImportOptions("int8"))

    (repository.folder / "README.md").write_text("---\nlicense: mit\n---\n")  # another commit

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Packages, "_import", killed)
        packages.find("Tiny/BERT", FLOAT32)
    shutil.rmtree(hub.folder)  # else what is there of the new one would be imported
    assert unreachable.find("Tiny/BERT", FLOAT32) == folder  # which is still what there is of the branch
    changed = packages.find("Tiny/BERT", FLOAT32)
    assert changed != folder and Manifest.load(changed).licence == "mit"


def test_a_folder_is_known_by_its_content(packages: Packages, checkpoints: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other" / "gpt2"
    shutil.copytree(checkpoints / "gpt2", copy)

    folder = packages.find(str(checkpoints / "gpt2"), FLOAT32)
    assert packages.find(str(copy), FLOAT32) == folder

    config = json.loads((copy / "config.json").read_text()) | {"layer_norm_epsilon": 1e-3}
    (copy / "config.json").write_text(json.dumps(config))
    assert packages.find(str(copy), FLOAT32) != folder


def test_the_parts_that_make_vectors_are_content_wherever_they_are(checkpoints: Path, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    shutil.copytree(checkpoints / "gpt2", folder)
    pooling = folder / "parts" / "1_Pooling" / "config.json"
    pooling.parent.mkdir(parents=True)
    listed = [("", "models.Transformer"), ("parts/1_Pooling", "models.Pooling")]
    modules = [{"idx": place, "path": path, "type": kind} for place, (path, kind) in enumerate(listed)]
    (folder / "modules.json").write_text(json.dumps(modules))
    found = set()
    for mode in ("mean", "cls"):
        pooling.write_text(json.dumps({"pooling_mode": mode}))
        found.add(content_of(folder, allow_pickle=False))

    assert len(found) == 2


class Keys(PackageCache):
    """A cache that makes nothing, and returns a key where a folder should be."""

    def get_or_make(self, key: str, make: Callable[[Path], None], report: Callable[[str], None] = print) -> Path:
        return Path(key)


def test_every_option_makes_another_package(packages: Packages, checkpoints: Path) -> None:
    looked_up = replace(packages, cache=Keys(packages.cache.folder))
    options = [
        *(FLOAT32, ImportOptions("int8-static"), ImportOptions("int8-static", texts=("a text",))),
        *(ImportOptions("float32", licence="mit"), ImportOptions("float32", languages=("en", "de"))),
        ImportOptions("float32", pooling="mean"),
    ]
    keys = [looked_up.find(str(checkpoints / "gpt2"), each) for each in options]

    assert len(set(keys)) == len(options)
    assert looked_up.find(str(checkpoints / "gpt2"), FLOAT32) == keys[0]


def test_all_that_is_asked_for_reaches_what_imports_and_exports(
    packages: Packages, checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(checkpoints / "bert", tmp_path / "pickled"))
    given: dict[str, Any] = {}
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()

    def note(_model: object, _tokens: object, card: Card, out: Path, **options: Any) -> None:
        given.update(name=card.name, licence=card.licence, out=out, **options)

    monkeypatch.setattr("model.export.export.export_package", note)
    asked = ImportOptions("int8-static", licence="mine", texts=("a text",))
    with pytest.raises(CheckpointError, match="only taken with --allow-pickle"):
        packages.make(str(folder), tmp_path / "tiny", asked)
    packages.make(str(folder), tmp_path / "tiny", replace(asked, allow_pickle=True))

    named = {"name": "tiny", "licence": "mine", "out": tmp_path / "tiny"}
    assert given == {**named, "precision": "int8-static", "family": "bert", "texts": ("a text",)}


def test_an_import_loads_no_code_of_training() -> None:
    code = (
        "import sys, model.checkpoints.read, model.export.export; "
        "print([name for name in sys.modules if name.startswith('model.training')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded == "[]\n"


def test_a_package_is_taken_as_it_is(packages: Packages, sentiment: TinyPackage) -> None:
    assert packages.find(str(sentiment.folder), FLOAT32) == sentiment.folder
    assert packages.find("stories", ImportOptions()).name == "stories"
    for ask in (packages.find, packages.check):
        with pytest.raises(HubError, match="it is a package already, in int8; export it anew to have it in float32"):
            ask("stories", FLOAT32)
    with pytest.raises(HubError, match="a package already, of which that is settled; leave languages out"):
        packages.find("translate", ImportOptions(languages=("en", "de")))
    with pytest.raises(HubError, match="leave licence out"):
        packages.find("stories", ImportOptions(licence="MIT"))
    with pytest.raises(HubError, match="leave samples out"):
        packages.find("stories", ImportOptions(texts=("Once upon a time",)))


def test_who_has_no_home_may_have_what_needs_no_cache(
    no_home: None, sentiment: TinyPackage, checkpoints: Path, tmp_path: Path
) -> None:
    assert Packages().find("stories", ImportOptions()).name == "stories"
    assert Packages().find(str(sentiment.folder), FLOAT32) == sentiment.folder
    assert Packages().describe(str(checkpoints / "gpt2"))[0] == checkpoints / "gpt2"
    with pytest.raises(HubError, match="there is neither"):
        Packages().find(str(tmp_path), FLOAT32)

    with pytest.raises(HubError, match="there is no home folder; set TRIFOLD_CACHE_DIR"):
        Packages().find(str(checkpoints / "gpt2"), FLOAT32)
    with pytest.raises(HubError, match=r"^tiny/bert: there is no home folder .*; set HF_HOME$"):
        Packages().describe("tiny/bert")


def test_a_package_that_is_there_is_taken_where_nothing_can_be_downloaded_to(
    packages: Packages, hub: Hub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add_model("Tiny/BERT")
    folder = packages.find("Tiny/BERT", FLOAT32)
    caplog.clear()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "/hub")

    monkeypatch.setattr("model.hub.download.snapshot_download", refuse)
    assert packages.find("Tiny/BERT", FLOAT32) == folder
    assert "set HF_HOME to a folder that can be written to; the package of what was looked up last" in caplog.text


def test_the_layout_of_sentence_transformers_comes_with_the_weights_of_its_parts(
    packages: Packages, running_hub: LocalHub, checkpoints: Path, tmp_path: Path
) -> None:
    transformer = Transformer(str(checkpoints / "bert"))
    parts = [transformer, Pooling(32, "cls"), Dense(32, 32), Normalize()]
    folder = tmp_path / "sentences"
    SentenceTransformer(modules=parts, device="cpu").save(str(folder), create_model_card=False)
    running_hub.repositories["tiny/sentences"] = Repository(folder)

    by_name = Manifest.load(packages.find("tiny/sentences", FLOAT32))
    by_folder = Manifest.load(packages.find(str(folder), FLOAT32))

    assert by_name.task == "embed"
    assert by_name.sha256 == by_folder.sha256
    content = content_of(folder, allow_pickle=False)
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"")
    assert content_of(folder, allow_pickle=False) != content


def test_a_family_that_is_not_supported_is_refused_before_its_weights_come(
    packages: Packages, running_hub: LocalHub, add_model: AddModel
) -> None:
    add_model("tiny/new", model_type="brand_new")
    with pytest.raises(CheckpointError, match=r"^tiny/new: the family 'brand_new' is not supported; one of albert"):
        packages.find("tiny/new", FLOAT32)

    add_model("tiny/odd", hidden_act="mish")
    with pytest.raises(CheckpointError, match="the activation 'mish' is not supported"):
        packages.find("tiny/odd", FLOAT32)
    assert running_hub.asked_for("model.safetensors") == []


def test_what_cannot_be_imported_is_told_before_any_weights_come(
    packages: Packages, running_hub: LocalHub, add_model: AddModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model("tiny/gpt2", "gpt2")
    add_model("tiny/new", model_type="brand_new")
    (add_model("tiny/mute", "gpt2").folder / "tokenizer.json").unlink()
    packages.check("tiny/gpt2", FLOAT32)
    with pytest.raises(CheckpointError, match=r"^tiny/mute: .*tokenizer"):
        packages.check("tiny/mute", FLOAT32)
    with pytest.raises(CheckpointError, match=r"^tiny/gpt2: a model for generate has no languages"):
        packages.check("tiny/gpt2", replace(FLOAT32, languages=("en", "de")))
    with pytest.raises(CheckpointError, match=r"^tiny/new: the family"):
        packages.check("tiny/new", FLOAT32)
    with pytest.raises(HubError, match=r"^tiny/none: there is no such model"):
        packages.check("tiny/none", FLOAT32)
    with pytest.raises(
        HubError, match=r"^stroies: there is no such model at .*; did you mean stories\? .*, translate$"
    ):
        packages.check("stroies", FLOAT32)
    assert running_hub.asked_for("model.safetensors") == []

    packages.find("tiny/gpt2", FLOAT32)
    monkeypatch.setitem(sys.modules, "torch", None)
    packages.check("tiny/gpt2", FLOAT32)  # is there
    replace(packages, hub=replace(hub, endpoint="http://127.0.0.1:9")).check("tiny/other", FLOAT32)  # find will tell


def test_a_folder_that_changes_while_it_is_imported_is_not_kept(
    packages: Packages, checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(checkpoints / "gpt2", tmp_path / "growing"))
    imported = Packages._import

    def meanwhile(self: Packages, source: Source, name: str, out: Path, options: ImportOptions) -> None:
        imported(self, source, name, out, options)
        (source.folder / "README.md").write_text("---\nlicense: mit\n---\n")

    monkeypatch.setattr(Packages, "_import", meanwhile)
    with pytest.raises(CheckpointError, match="its files changed while they were read"):
        packages.find(str(folder), FLOAT32)
    monkeypatch.undo()
    assert Manifest.load(packages.find(str(folder), FLOAT32)).licence == "mit"


def test_a_folder_that_is_neither_says_what_it_lacks(packages: Packages, tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r"there is neither manifest\.json, as a package has, nor config\.json"):
        packages.find(str(tmp_path), FLOAT32)


def test_a_folder_of_checkpoints_is_told_which_is_the_latest(packages: Packages, tmp_path: Path) -> None:
    for name in ("checkpoint-500", "checkpoint-1000", "checkpoint-last", "1_Pooling"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")

    with pytest.raises(CheckpointError, match=r"there is no config\.json; did you mean .*checkpoint-1000\?"):
        packages.find(str(tmp_path), FLOAT32)


def test_without_torch_what_was_imported_is_found_and_nothing_is_downloaded_in_vain(
    packages: Packages, checkpoints: Path, running_hub: LocalHub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model("tiny/gpt2", "gpt2")
    folder, local = packages.find("tiny/gpt2", FLOAT32), str(checkpoints / "bert")
    packages.find(local, FLOAT32)
    monkeypatch.setitem(sys.modules, "torch", None)
    running_hub.requests.clear()

    assert packages.find("tiny/gpt2", FLOAT32) == folder
    packages.check(local, FLOAT32)
    with pytest.raises(ModuleNotFoundError, match="torch"):
        packages.check(local, ImportOptions("int8"))
    with pytest.raises(ModuleNotFoundError, match="torch"):
        packages.find("tiny/gpt2", ImportOptions("int8"))
    assert running_hub.asked_for("model.safetensors") == []


def test_weights_that_cannot_be_read_are_named(packages: Packages, checkpoints: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(checkpoints / "bert", folder)
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])

    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read .*; delete it and get it again"):
        packages.find(str(folder), FLOAT32)


def test_a_summary_needs_no_weights(
    packages: Packages, checkpoints: Path, running_hub: LocalHub, add_model: AddModel
) -> None:
    add_model("tiny/bert")
    here, numbers = packages.describe(str(checkpoints / "bert"))
    there, numbers_there = packages.describe("tiny/bert")

    with safe_open(here / "model.safetensors", framework="pt") as file:
        assert numbers == {"F32": sum(file.get_tensor(name).numel() for name in file.keys())}  # noqa: SIM118
    assert numbers_there == numbers
    assert (there / "config.json").read_bytes() == (here / "config.json").read_bytes()
    assert running_hub.asked_for("model.safetensors") == ["bytes=0-100000"]
    assert not (there / "model.safetensors").exists()


def test_what_is_made_of_perhaps_a_part_is_made_anew_where_all_is_known(
    packages: Packages, hub: Hub, add_model: AddModel, tmp_path: Path
) -> None:
    repository = add_model("tiny/bert")
    hub.fetch_weights(HubName("tiny/bert"), hub.describe(HubName("tiny/bert")), allow_pickle=False)
    assert hub.folder is not None
    elsewhere = Path(shutil.copytree(hub.folder, tmp_path / "of another program", symlinks=True))
    for tree in elsewhere.glob("models--tiny--bert/trees/*"):
        tree.unlink()
    part = replace(packages, hub=replace(hub, folder=elsewhere, offline=True)).find("tiny/bert", FLOAT32)

    assert packages.find(f"tiny/bert@{repository.commit}", FLOAT32) != part


def test_a_template_in_a_folder_of_its_own_makes_another_package(
    packages: Packages, checkpoints: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoints / "gpt2", tmp_path / "gpt2"))
    looked_up = replace(packages, cache=Keys(packages.cache.folder))
    before = looked_up.find(str(folder), FLOAT32)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ messages }}")

    assert looked_up.find(str(folder), FLOAT32) != before


def test_a_package_is_found_as_it_is_unless_another_precision_is_asked_for(
    packages: Packages, sentiment: TinyPackage
) -> None:
    folder = str(sentiment.folder)

    assert packages.find(folder, ImportOptions()) == packages.find(folder, FLOAT32) == sentiment.folder
    with pytest.raises(HubError, match="it is a package already, in float32; export it anew to have it in int4-blocks"):
        packages.find(folder, ImportOptions("int4-blocks"))
