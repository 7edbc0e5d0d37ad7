from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file, save_file

from model.checkpoints.errors import CheckpointError
from model.hub.download import Hub, check_hashes
from model.hub.errors import HubError, HubUnreachable
from model.hub.names import HubName
from tests.local_hub import LocalHub
from tests.model.conftest import AddModel

BERT = HubName("tiny/bert")
WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True)
def _retries_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    patient = SimpleNamespace(sleep=lambda _seconds: None, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr("huggingface_hub.file_download.time", patient)


def download(hub: Hub, name: HubName = BERT, *, allow_pickle: bool = False) -> Path:
    folder = hub.describe(name)
    hub.fetch_weights(name, folder, allow_pickle=allow_pickle)
    return folder


def split(folder: Path) -> None:
    """Keep the weights in two files with an index."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(tensors)
    files = {name: f"model-0000{1 + (place % 2)}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, folder / file)
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))


def test_weights_are_downloaded_after_all_else_and_nothing_else_is(
    hub: Hub, running_hub: LocalHub, add_model: AddModel
) -> None:
    repository = add_model("tiny/bert")
    for others in ("onnx", "checkpoint-500"):
        (repository.folder / others).mkdir()
    for name in (
        "onnx/config.json",
        "checkpoint-500/trainer_state.json",
        "pytorch_model.bin",
        "tf_model.h5",
        "model.fp16.safetensors",
    ):
        (repository.folder / name).write_text("not ours")

    folder = hub.describe(BERT)
    before = {path.name for path in folder.iterdir()}
    hub.fetch_weights(BERT, folder, allow_pickle=False)

    assert folder.name == repository.commit
    assert before == {"config.json", "tokenizer.json", "README.md"}
    assert {path.name for path in folder.iterdir()} - before == {WEIGHTS}
    assert (folder / WEIGHTS).read_bytes() == (repository.folder / WEIGHTS).read_bytes()


def test_weights_behind_pooling_come_along(hub: Hub, add_model: AddModel) -> None:
    repository = add_model("tiny/bert")
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense_20": "Dense", "3_Dense": "Dense"}
    modules = [{"idx": place, "path": path, "type": kind} for place, (path, kind) in enumerate(kinds.items())]
    (repository.folder / "modules.json").write_text(json.dumps(modules))
    linear = {"activation_function": "torch.nn.modules.linear.Identity"}
    first, second = {"in_features": 32, "out_features": 20, **linear}, {"in_features": 20, "out_features": 8}
    for part, config in (("1_Pooling", {}), ("2_Dense_20", first), ("3_Dense", second)):
        (repository.folder / part).mkdir()
        (repository.folder / part / "config.json").write_text(json.dumps(config))
    (repository.folder / "2_Dense_20" / "pytorch_model.bin").write_bytes(b"dense")
    (repository.folder / "3_Dense" / WEIGHTS).write_bytes(b"another")

    with pytest.raises(HubError, match=r"its weights are in 2_Dense_20/pytorch_model\.bin, a pickle"):
        download(hub)
    folder = download(hub, allow_pickle=True)
    assert (folder / "2_Dense_20" / "pytorch_model.bin").read_bytes() == b"dense"
    assert (folder / "3_Dense" / WEIGHTS).read_bytes() == b"another"


def test_an_index_of_before_hides_no_whole_file(hub: Hub, add_model: AddModel) -> None:
    repository = add_model("tiny/bert")
    weights = (repository.folder / WEIGHTS).read_bytes()
    split(repository.folder)
    for part in repository.folder.glob("model-*.safetensors"):
        part.unlink()
    (repository.folder / WEIGHTS).write_bytes(weights)

    assert (download(hub) / WEIGHTS).read_bytes() == weights


def test_what_is_here_is_not_downloaded_again(hub: Hub, running_hub: LocalHub, add_model: AddModel) -> None:
    add_model("tiny/bert")
    download(hub)
    running_hub.requests.clear()

    download(hub)

    assert [path for _, path, _ in running_hub.requests] == ["/api/models/tiny/bert/revision/main"]


def test_a_connection_that_breaks_is_taken_up_where_it_broke(
    hub: Hub, running_hub: LocalHub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)  # 10 MiB: whole chunks are kept
    repository = add_model("tiny/bert")
    repository.cut_after = {WEIGHTS: 1000}

    folder = download(hub)

    assert running_hub.asked_for(WEIGHTS) == [None, "bytes=1000-"]
    assert (folder / WEIGHTS).read_bytes() == (repository.folder / WEIGHTS).read_bytes()


def test_an_interrupted_download_goes_on_with_the_files_that_lack(
    hub: Hub, running_hub: LocalHub, add_model: AddModel
) -> None:
    repository = add_model("tiny/bert")
    split(repository.folder)
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    repository.cut_after, repository.breaks_left = {second: 0}, 1000

    with pytest.raises(HubError, match=r"tiny/bert: the download was interrupted .*; start again, what came is kept"):
        download(hub)
    repository.breaks_left = 0
    running_hub.requests.clear()
    folder = download(hub)

    assert (len(running_hub.asked_for(first)), len(running_hub.asked_for(second))) == (0, 1)
    assert {path.name for path in folder.glob("*.safetensors")} == {first, second}


def test_what_the_hubs_own_downloader_raises_is_a_sentence(
    hub: Hub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model("tiny/bert")
    folder = hub.describe(BERT)

    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("Task error: no space left on device\nmore")

    monkeypatch.setattr("model.hub.download.snapshot_download", failing)
    with pytest.raises(HubError, match=r"^tiny/bert: the download failed: Task error: no space left .*; start again$"):
        hub.fetch_weights(BERT, folder, allow_pickle=False)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_cache_of_the_hub_that_cannot_be_written_to_is_told_with_what_names_another(
    number: int, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/.cache/huggingface/hub")

    monkeypatch.setattr("model.hub.download.snapshot_download", refuse)
    with pytest.raises(HubError, match=r"^tiny/bert: .*'/\.cache/huggingface/hub'; set HF_HOME to a folder that can"):
        hub.describe(BERT)


def test_who_has_no_home_is_told_to_name_a_cache_of_the_hub(no_home: None, hub: Hub, running_hub: LocalHub) -> None:
    with pytest.raises(HubUnreachable, match=r"^tiny/bert: there is no home folder .*; set HF_HOME$"):
        replace(hub, folder=None).describe(BERT)
    assert running_hub.requests == []


def test_a_file_of_another_size_than_announced_is_refused(hub: Hub, add_model: AddModel) -> None:
    repository = add_model("tiny/bert")
    repository.content_instead = {WEIGHTS: b"too short"}

    with pytest.raises(HubError, match=r"tiny/bert: the download failed: .*should be of size \d+ but has size 9"):
        download(hub)


@pytest.mark.parametrize("file", [WEIGHTS, "config.json"])
def test_a_file_that_differs_from_its_hash_is_named_and_downloaded_again(
    file: str, hub: Hub, running_hub: LocalHub, add_model: AddModel
) -> None:
    repository = add_model("tiny/bert")
    content = (repository.folder / file).read_bytes()
    repository.content_instead = {file: content[:-1] + b"?"}

    with pytest.raises(HubError, match=rf"{re.escape(file)}: its content differs from its hash.*start again"):
        download(hub)
    repository.content_instead = {}
    folder = download(hub)

    assert (folder / file).read_bytes() == content
    assert len(running_hub.asked_for(file)) == 2


def test_a_file_that_differs_from_its_hash_and_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = tmp_path / "blobs" / ("1" * 40)
    link = tmp_path / "snapshots" / "2" / "config.json"
    for folder in (blob.parent, link.parent):
        folder.mkdir(parents=True)
    blob.write_bytes(b"{}")
    link.symlink_to(Path("../../blobs") / blob.name)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    told = rf"config\.json: its content differs from its hash .*\(Read-only file system\): remove {blob}, and start"
    with pytest.raises(HubError, match=told):
        check_hashes(link.parent, ["config.json"])


@pytest.mark.parametrize("start", [b"blob 2\0", b""])
def test_a_hash_may_be_that_of_git_or_of_the_content_alone(start: bytes, tmp_path: Path) -> None:
    blob = tmp_path / hashlib.sha1(start + b"{}", usedforsecurity=False).hexdigest()
    (tmp_path / "config.json").symlink_to(blob.name)

    blob.write_bytes(b"{}")
    check_hashes(tmp_path, ["config.json"])
    blob.write_bytes(b"[]")
    with pytest.raises(HubError, match="its content differs from its hash"):
        check_hashes(tmp_path, ["config.json"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (HubName("tiny/none"), "tiny/none: there is no such model at http.*or it is private and HF_TOKEN may not read"),
        (HubName("tiny/bert", "v2"), r"tiny/bert@v2: http\S+/tiny/bert has no branch, tag or commit 'v2'"),
        (HubName("tiny/bert", "0" * 40), "has no branch, tag or commit '0000"),
        (HubName("tiny/be..rt"), r"tiny/be\.\.rt: no model on the hub can be called so: Cannot have"),
    ],
)
def test_a_name_that_does_not_exist_is_told(name: HubName, words: str, hub: Hub, add_model: AddModel) -> None:
    add_model("tiny/bert")

    with pytest.raises(HubError, match=words):
        hub.describe(name)


@pytest.mark.parametrize("token", [None, "hf_of_somebody_else"])
def test_a_gated_model_says_where_its_terms_are(
    token: str | None, hub: Hub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model("tiny/bert").is_gated = True
    if token:
        monkeypatch.setenv("HF_TOKEN", token)

    with pytest.raises(HubError, match=r"accepted first: do so at http\S+/tiny/bert, then set HF_TOKEN"):
        hub.describe(BERT)


def test_who_may_read_a_gated_model_gets_it_by_a_token(
    hub: Hub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated = add_model("tiny/bert")
    gated.is_gated, gated.token = True, "hf_of_a_reader"
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_reader")

    folder = hub.describe(BERT)
    hub.fetch_weights(BERT, folder, allow_pickle=False)
    assert (folder / "model.safetensors").is_file()


def test_offline_nothing_is_asked_and_what_is_here_does(hub: Hub, running_hub: LocalHub, add_model: AddModel) -> None:
    add_model("tiny/bert")
    offline = replace(hub, offline=True)
    with pytest.raises(
        HubUnreachable, match="tiny/bert: not all of it was downloaded before, and HF_HUB_OFFLINE forbids"
    ):
        offline.describe(BERT)
    folder = hub.describe(BERT)
    with pytest.raises(HubUnreachable, match="HF_HUB_OFFLINE"):
        offline.fetch_weights(BERT, folder, allow_pickle=False)
    hub.fetch_weights(BERT, folder, allow_pickle=False)
    running_hub.requests.clear()

    assert download(offline) == folder
    assert running_hub.requests == []


def test_what_another_program_downloaded_is_told_to_be_perhaps_a_part(
    hub: Hub, add_model: AddModel, caplog: pytest.LogCaptureFixture
) -> None:
    add_model("tiny/bert")
    folder = download(hub)
    elsewhere = folder.parents[2].with_name("of another program")
    shutil.copytree(folder.parents[2], elsewhere, symlinks=True)
    for tree in elsewhere.glob("models--tiny--bert/trees/*"):
        tree.unlink()
    offline = replace(hub, folder=elsewhere, offline=True)
    assert (download(offline) / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()
    assert "tiny/bert: another program downloaded it, and which files it has is not known here" in caplog.text
    assert not offline.is_whole(BERT, download(offline)) and hub.is_whole(BERT, folder)

    download(replace(hub, folder=elsewhere))
    assert offline.is_whole(BERT, download(offline))
    caplog.clear()
    download(offline)
    assert caplog.text == ""


@pytest.mark.parametrize(("status", "advice"), [(401, "it may have expired"), (403, "may not read it"), (429, "fewer")])
def test_a_refusal_says_what_to_do(
    hub: Hub, add_model: AddModel, monkeypatch: pytest.MonkeyPatch, status: int, advice: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    monkeypatch.setattr("time.sleep", lambda _: None)  # between tries
    add_model("tiny/bert").refusals = [status] * 20
    with pytest.raises(HubError, match=rf"tiny/bert: http://\S+ answered with status {status}; .*{advice}") as caught:
        download(hub)

    assert "\n" not in str(caught.value)


def test_a_password_of_a_mirror_is_not_shown(hub: Hub) -> None:
    with pytest.raises(HubError) as caught:
        download(replace(hub, endpoint="http://reader:secret@127.0.0.1:9"))

    assert "http://127.0.0.1:9" in str(caught.value) and "secret" not in str(caught.value)


def test_without_a_network_what_is_here_does(hub: Hub, add_model: AddModel) -> None:
    add_model("tiny/bert")
    folder = download(hub)
    nowhere = replace(hub, endpoint="http://127.0.0.1:9")  # discard: nobody listens

    assert download(nowhere) == folder
    with pytest.raises(HubUnreachable, match=r"tiny/other: http://127\.0\.0\.1:9 cannot be reached"):
        nowhere.describe(HubName("tiny/other"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "sentimant",
            r"; did you mean sentiment\? no folder here is called so, and bundled are answers, .*, translate",
        ),
        ("gpt2", "; no folder here is called so, and bundled are answers, .*, translate"),
        ("tiny/sentimant", ""),
    ],
)
def test_a_name_that_no_hub_was_asked_about_may_be_a_slip_of_a_bundled_one(hub: Hub, name: str, hint: str) -> None:
    for there, words in (
        (replace(hub, endpoint="http://127.0.0.1:9"), "not all of it was downloaded before"),
        (replace(hub, offline=True), "HF_HUB_OFFLINE forbids it now"),
    ):
        with pytest.raises(HubUnreachable, match=f"{words}{hint}$"):
            there.describe(HubName(name))


def test_a_pickle_is_only_taken_when_asked_for(hub: Hub, running_hub: LocalHub, add_model: AddModel) -> None:
    folder = add_model("tiny/bert").folder
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")

    with pytest.raises(HubError, match=r"tiny/bert: its weights are in pytorch_model\.bin, a pickle.*--allow-pickle"):
        download(hub)
    assert running_hub.asked_for("pytorch_model.bin") == []
    assert (download(hub, allow_pickle=True) / "pytorch_model.bin").is_file()


def test_a_repository_without_weights_says_so(hub: Hub, add_model: AddModel) -> None:
    (add_model("tiny/bert").folder / WEIGHTS).unlink()

    with pytest.raises(CheckpointError, match=r"there are no weights \(model\.safetensors or"):
        download(hub)


def test_without_a_network_no_numbers_are_counted(hub: Hub, add_model: AddModel) -> None:
    add_model("tiny/bert")
    folder = hub.describe(BERT)

    assert hub.count_numbers(BERT, folder) and not replace(hub, offline=True).count_numbers(BERT, folder)
