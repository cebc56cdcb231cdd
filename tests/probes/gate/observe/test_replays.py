"""What replays of transcripts count."""

import json
import shutil
from pathlib import Path

import pytest
from tplaudit import fixtures
from tplaudit.probes.errors import InputError
from tplaudit.probes.gate.observe.replays import Replaying, replay, transcripts_in
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.tokenization.files import load_bundled_tokenizer
from tplaudit.probes.transcripts.reader import open_transcript

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"


def test_the_layers_of_the_models_decide_on_the_cache(gate, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(PAIRS / "in-place.jinja", model / "chat_template.jinja")
    (model / "config.json").write_text(json.dumps({"model_type": "qwen3_next"}))
    chat = str(fixtures.transcript("chat"))
    for base, head in ((STRICT, model), (model, STRICT)):
        report = gate(base, head, transcripts=chat, policies=("omlx",))
        assert "replayed against paged, blocks of 2048 tokens (omlx); layers: hybrid" in report.notes
    (model / "config.json").write_text("[")
    with pytest.raises(InputError, match="JSON"):
        gate(STRICT, model, transcripts=chat, policies=("omlx",))


def test_numbers_come_turn_by_turn() -> None:
    replaying = Replaying([parse_policy("omlx")], load_bundled_tokenizer())
    (numbers,) = replay(
        "chat", open_transcript(fixtures.transcript("chat")), load_template(STRICT), replaying
    )
    assert len(numbers.prefills) == numbers.rendered == 7
    assert numbers.prefills[0][1] == 0
    assert sum(new + reused for new, reused in numbers.prefills) == numbers.prompt_tokens
    assert all(reused % 256 == 0 for _, reused in numbers.prefills)
    assert numbers.prefills[-1][1] > 0


def test_folders(tmp_path: Path, reminders: Path) -> None:
    assert [path.name for path in transcripts_in(reminders)] == ["log.jsonl"]
    assert transcripts_in(reminders / "log.jsonl") == (reminders / "log.jsonl",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no transcripts in it"):
        transcripts_in(tmp_path / "empty")
    with pytest.raises(InputError, match="no such file or folder"):
        transcripts_in(tmp_path / "missing")
