from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model.commands.app import app
from model.config import NormConfig
from model.evaluation.evaluate import check_reference
from model.export.verify import LIMITS, TOLERANCE, Report
from model.hub.packages import ImportOptions, Packages
from model.package import Figure, Manifest, PackageError, Training
from model.package.manifest import Precision
from model.sizes import SIZES
from model.training import readers, sentences
from model.training.errors import RunError
from model.training.recipes import PACKAGES, RECIPES
from model.training.run import Run
from model.training.sentences import OfReview
from tests.conftest import TINY, MakePackage
from tests.model.data_files import write_xz
from tests.model.training.tiny_runs import run as training_run

ROOT = Path(__file__).parents[3]
PAIRS = {
    "de": [("Dan loves ice cream.", "Dan liebt Eis."), ("The dog is good.", "Der Hund ist gut.")],
    "fr": [("Dan loves ice cream.", "Dan aime la glace."), ("The dog is good.", "Le chien est bon.")],
    "sv": [("Dan loves ice cream.", "Dan älskar glass."), ("The dog is good.", "Hunden är bra.")],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Tatoeba in miniature."""
    folder = tmp_path / "data"
    for language, pairs in PAIRS.items():
        rows = "".join(f"{english}\t{other}\n" for english, other in pairs)
        for split in ("train", "validation", "test"):
            write_xz(folder / f"tatoeba_en_{language}" / f"{split}.tsv.xz", f"en\t{language}\n{rows}")
    captions = [("A dog.", "Ein Hund.", "Un chien."), ("The dog is good.", "Der Hund ist gut.", "Le chien est bon.")]
    rows = "".join("\t".join(caption) + "\n" for caption in captions)
    write_xz(folder / "multi30k" / "test_2016_flickr.tsv.xz", f"en\tde\tfr\n{rows}")
    return folder


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def test_the_whole_path_from_data_to_an_evaluated_package(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "translate", replace(TINY["translate"], norm=NormConfig(), dropout=0.0))
    monkeypatch.setitem(
        RECIPES,
        "translate",
        replace(
            RECIPES["translate"],
            read=readers.read_pairs,
            epochs=150,
            batch_tokens=1024,
            warmup_steps=10,
            learning_rate=5e-3,
            muon_learning_rate=None,
        ),
    )
    folder, package = tmp_path / "run", tmp_path / "package"

    run("train", "translate", "--data", data, "--out", folder, "--no-compile")
    assert "int8" in run("export", "--run", folder, "--out", package)
    assert "largest relative error" in run("verify", package, "--run", folder)
    table = run("evaluate", package, "--data", data)
    answer = run("generate", "Dan loves ice cream.", "--run", folder, "--language", "sv", "--beam-size", "2")

    assert answer.strip() == "Dan älskar glass."  # learned by heart
    assert "sacreBLEU" in table
    manifest = Manifest.load(package)
    from_english = [figure for figure in manifest.evaluation if " en-" in figure.metric]
    known = [figure.value for figure in from_english if figure.dataset.startswith("tatoeba")]
    assert known == [pytest.approx(100.0)] * 12  # BLEU and chrF, greedy and beams, three languages
    assert json.loads((folder / "log.jsonl").read_text().splitlines()[-1])["perplexity"] < 2


def test_a_translator_is_measured_in_every_direction(data: Path, tmp_path: Path, make_package: MakePackage) -> None:
    package = tmp_path / "both-ways"
    shutil.copytree(make_package("translate").folder, package)

    run("evaluate", package, "--data", data)

    measured = {(figure.dataset, figure.metric) for figure in Manifest.load(package).evaluation}
    directions = [(language, way) for language in PAIRS for way in (f"en-{language}", f"{language}-en")]
    assert measured == {
        (f"tatoeba_en_{language}/test", f"{score} {direction}, single-reference, {search}")
        for language, direction in directions
        for score in ("sacreBLEU", "chrF")
        for search in ("greedy", "beam 4")
    } | {
        ("multi30k/test_2016_flickr", f"{score} {direction}, single-reference, beam 4")
        for language, direction in directions
        for score in ("sacreBLEU", "chrF")
        if language != "sv"
    }


def test_the_summary_names_every_layer() -> None:
    output = run("summary", "translate", "--length", "7")

    assert "7,314,944 parameters" in output
    assert "1 × 7 × 256" in output


def test_a_summary_of_more_tokens_than_a_model_takes_is_refused() -> None:
    result = CliRunner().invoke(app, ["summary", "translate", "--length", "100000"])

    assert result.exit_code == 2 and "tokens; translate takes" in " ".join(result.output.split())


def test_a_checkpoint_has_a_summary_too(checkpoints: Path) -> None:
    output = run("summary", checkpoints / "gpt2")

    assert "decoder.blocks.0" in output
    assert "numbers of type F32" in output


def test_a_summary_needs_no_weights_and_says_what_is_in_their_place(
    checkpoints: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cloned"
    shutil.copytree(checkpoints / "gpt2", folder)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")

    assert "decoder.blocks.0" in run("summary", folder)
    assert "is a pointer of Git LFS" in caplog.text


def test_a_summary_counts_an_output_matrix_that_the_configuration_says_is_the_models_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = {"vocab_size": 1000, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 1}
    ids = {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    totals = []
    for ties in (False, True):  # as T5 1.1 has it, and as the first version
        config = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "tie_word_embeddings": ties}
        (tmp_path / f"t5-{ties}").mkdir()
        (tmp_path / f"t5-{ties}" / "config.json").write_text(json.dumps({**config, **sizes, **ids}))
        found = re.search(r"([\d,]+)\s+parameters", run("summary", f"t5-{ties}"))
        assert found is not None
        totals.append(int(found[1].replace(",", "")))

    assert totals[0] - totals[1] == 1000 * 32


def test_an_unknown_recipe_is_refused_with_those_there_are() -> None:
    result = CliRunner().invoke(app, ["train", "song", "--data", ".", "--out", "."])

    assert result.exit_code == 2
    assert "sentiment" in result.output


def test_a_dry_run_tells_sizes_and_leaves_nothing(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "translate", TINY["translate"])
    table = run("train", "translate", "--data", data, "--out", tmp_path / "run", "--dry-run", "--no-compile")

    assert "parameters" in table and "FLOPs" in table and "GFLOP/s" in table
    assert not (tmp_path / "run").exists()


def test_no_teacher_is_asked_by_a_dry_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "mini-encoder", TINY["sentiment"])
    start = tmp_path / "start"
    training_run("finetune-classify-spam", start, epochs=1, evaluate_every=1)
    name = "finetune-classify-sentences"
    rows = [("good film", 1), ("so it was", OfReview(0))] * 20
    monkeypatch.setitem(
        RECIPES, name, replace(RECIPES[name], read=lambda _data, split: rows[:: 1 if split == "train" else 2])
    )
    monkeypatch.setattr(sentences, "_log_odds", None)

    command = ("train", name, "--data", data, "--out", tmp_path / "run", "--start-from", start)
    assert "FLOPs" in run(*command, "--dry-run", "--no-compile")


def test_packages_are_made_of_the_chain_of_runs_that_leads_to_them(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "translate", TINY["translate"])
    for name in ("translate", "translate-varied"):
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=1))
    monkeypatch.setitem(PACKAGES, "translate", "translate-varied")
    runs, out = tmp_path / "runs", tmp_path / "packages"

    run("packages", "--data", data, "--runs", runs, "--out", out, "--only", "translate", "--no-compile")

    manifest, about = Manifest.load(out / "translate"), Run(runs / "translate-varied").about()
    assert {path.name for path in runs.iterdir() if path.is_dir()} == {
        *("translate", "translate-varied", "translate-float32", "translate-int8")
    }
    assert about.minutes_before == Run(runs / "translate").minutes
    assert manifest.training is not None and manifest.training.recipe == "translate-varied"
    assert {figure.precision for figure in manifest.evaluation} == {"float32", "int8"}


def test_an_unknown_package_is_refused_with_those_there_are(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["packages", "--data", str(tmp_path), "--only", "songs"])

    assert result.exit_code == 2
    assert "songs" in result.output and "fashion" in result.output


def test_figures_of_another_model_are_no_reference(make_package: MakePackage, tmp_path: Path) -> None:
    package, other = make_package("sentiment", "int8").folder, make_package("stories").folder
    result = CliRunner().invoke(app, ["evaluate", str(package), "--data", str(tmp_path), "--reference", str(other)])

    assert isinstance(result.exception, PackageError)
    assert "another model: its config is another" in str(result.exception)


def test_the_reference_of_what_is_imported_may_have_a_folder_of_another_name(make_package: MakePackage) -> None:
    package, reference = make_package("sentiment", "int8").manifest, make_package("sentiment").manifest
    check_reference(package, reference.model_copy(update={"name": "sentiment-float32"}))

    with pytest.raises(PackageError, match="the reference is int8; export it with --precision float32"):
        check_reference(reference, package)

    trained = {"training": Training(recipe="finetune-classify-sentiment", minutes=1.0)}
    of_run, other = (made.model_copy(update=trained) for made in (package, reference))
    with pytest.raises(PackageError, match="its name is another"):
        check_reference(of_run, other.model_copy(update={"name": "spam"}))


def test_a_reference_may_tell_its_data_files_where_an_older_package_does_not(make_package: MakePackage) -> None:
    package, reference = make_package("sentiment", "int8").manifest, make_package("sentiment").manifest

    def told(manifest: Manifest, data: dict[str, str]) -> Manifest:
        training = Training(recipe="finetune-classify-sentiment", minutes=1.0, data=data)
        return manifest.model_copy(update={"training": training})

    check_reference(told(package, {}), told(reference, {"sst2/dev.tsv.xz": "a"}))
    with pytest.raises(PackageError, match="its training is another"):
        check_reference(told(package, {"sst2/dev.tsv.xz": "b"}), told(reference, {"sst2/dev.tsv.xz": "a"}))


def test_a_run_of_a_recipe_that_is_gone_cannot_be_packaged(tmp_path: Path) -> None:
    about = {"recipe": {"name": "sing"}, "training_data": [], "minutes_before": 0.0, "card": {}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    result = CliRunner().invoke(app, ["export", "--run", str(tmp_path), "--out", str(tmp_path)])

    assert isinstance(result.exception, RunError)
    assert "there is no recipe sing any more" in str(result.exception)


def test_a_run_is_not_compared_with_another_models_package(tmp_path: Path, make_package: MakePackage) -> None:
    tuned, stories = tmp_path / "tuned", tmp_path / "stories"
    training_run("finetune-classify-topics", tuned, epochs=1)
    training_run("pretrain-decoder", stories, epochs=1)
    result = CliRunner().invoke(app, ["verify", str(make_package("stories").folder), "--run", str(tuned)])
    assert isinstance(result.exception, PackageError) and "it is of another model: its " in str(result.exception)

    result = CliRunner().invoke(app, ["generate", "x", "--run", str(tuned)])
    assert isinstance(result.exception, RunError) and "generates no text" in str(result.exception)
    result = CliRunner().invoke(app, ["generate", "x", "--run", str(stories), "--language", "sv"])
    assert isinstance(result.exception, RunError) and "does not translate" in str(result.exception)


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "[]", "{"])
def test_what_is_no_runs_folder_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)

    with pytest.raises(RunError, match=r"config\.json: "):
        Run(tmp_path).about()


HALF_MADE = """
import sys, tempfile, time
sys.path.insert(0, sys.argv.pop(1))
from model.commands import app

@app.app.command()
def half(folder: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder):
        print("made", flush=True)
        time.sleep(float(sys.stdin.readline()))
        print("through", flush=True)

app.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_removes_what_it_had_half_made(number: signal.Signals, tmp_path: Path) -> None:
    with half_made(tmp_path) as process:
        process.send_signal(number)

    assert process.wait() == 128 + number and not list(tmp_path.iterdir())


def test_a_command_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    with half_made(tmp_path, "nohup") as process:
        process.send_signal(signal.SIGHUP)
        said, _ = process.communicate("0\n")

    assert process.returncode == 0 and said == "through\n"


@contextmanager
def half_made(folder: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a command that has made something in a folder, and goes on once it is told for how long."""
    command = [*before, sys.executable, "-c", HALF_MADE, str(ROOT), "half", str(folder)]
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    own = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what is ignored here would be there, too
    try:
        process = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=none)
    finally:
        signal.signal(signal.SIGHUP, own)
    with process:
        assert process.stdout is not None and process.stdout.readline() == "made\n"
        yield process


@pytest.mark.parametrize(
    ("precision", "report", "holds"),
    [
        ("float32", Report(TOLERANCE, 0.0, 1), False),
        ("float32", Report(TOLERANCE / 2, 0.0, 1), True),
        ("int8", Report(TOLERANCE, 0.0, 1), True),
        ("int8", Report(TOLERANCE, LIMITS["int8"], 1), False),
    ],
)
def test_a_package_that_differs_too_much_from_its_run_fails(
    precision: Precision, report: Report, holds: bool, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("sentiment", precision)
    monkeypatch.setattr("model.training.run.load_trained", lambda _: (package.model, None, {}))
    monkeypatch.setattr("model.export.verify.verify", lambda *_, **__: report)

    result = CliRunner().invoke(app, ["verify", str(package.folder), "--run", str(package.folder)])
    assert result.exit_code == (0 if holds else 1), result.output


def test_a_precision_that_costs_too_much_is_told_and_fails(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = str(make_package("sentiment").folder)
    told = [
        Figure(dataset="some/test", metric="accuracy", value=value, precision=precision)
        for precision, value in (("float32", 0.9), ("int8", 0.8))
    ]
    monkeypatch.setattr("model.evaluation.evaluate.evaluate", lambda *_, **__: told)

    result = CliRunner().invoke(app, ["evaluate", package, "--data", package])
    assert result.exit_code == 1 and "some/test, accuracy: int8 costs 0.1; at most 0.003" in result.output
    told.pop()
    assert CliRunner().invoke(app, ["evaluate", package, "--data", package]).exit_code == 0


def test_an_import_is_made_as_the_options_say(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ImportOptions] = []
    folder = make_package("embed").folder

    def find(_packages: Packages, _name: str, options: ImportOptions) -> Path:
        asked.append(options)
        return folder

    monkeypatch.setattr(Packages, "find", find)
    (tmp_path / "texts").write_text("\ufeffOne.\n\nAnother\u2028one.\n", encoding="utf-8")

    run("import", "a/b", "--licence", "mit", "--languages", "en", "de", "--pooling", "cls", "--allow-pickle")
    run("import", "a/b", "--precision", "int8-static", "--samples", tmp_path / "texts", "--base", "c/d")
    assert asked == [
        ImportOptions("int8", ("en", "de"), "mit", allow_pickle=True, pooling="cls"),
        ImportOptions("int8-static", texts=("One.", "Another\u2028one."), base="c/d"),
    ]
