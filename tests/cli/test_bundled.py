"""The bundled models' names on the command line."""

import json

import pytest
from commands import refused
from tplaudit.fixtures import transcript

CHAT = transcript("chat")


@pytest.mark.parametrize(
    ("name", "layers"),
    [("bundled", "plain"), ("bundled:hybrid", "hybrid"), ("bundled:sliding-window", "rotating:256")],
)
def test_replay_runs_on_the_model_of_that_name(tplaudit, name: str, layers: str) -> None:
    done = tplaudit("replay", CHAT, "--model", name, "-p", "as-is", "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["model"]["source"], report["engine"], report["cache"]["layers"]) == (name, "mlx", layers)


@pytest.mark.parametrize(
    "command", [("probe",), ("thinking",), ("lock", "--file", "-"), ("render", CHAT, "--model")]
)
def test_other_commands_take_them_too(tplaudit, command: tuple, tmp_path) -> None:
    words = [tmp_path / "lock" if word == "-" else word for word in command]
    done = tplaudit(*words, "bundled:hybrid")
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    said = refused(tplaudit(*words, "bundled:other"))
    assert "choose from bundled, bundled:hybrid, bundled:sliding-window" in said


def test_render_counts_with_the_bundled_tokenizer(tplaudit) -> None:
    named, unnamed = (
        json.loads(tplaudit("render", CHAT, *arguments, "--json").stdout)
        for arguments in (("--model", "bundled:hybrid"), ())
    )
    assert named["turns"] == unnamed["turns"]
