"""Models named by hub id: found in a stand-in cache directory, or given by a stand-in hub on this machine."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

import huggingface_hub
import pytest
from huggingface_hub import constants, errors
from tplaudit.fixtures import DEFAULT_MODEL
from tplaudit.probes.engine.mlx_engine import MLXEngine, load_engine
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.hub import is_hub_id, snapshot, template_snapshot
from tplaudit.probes.models.model import load_model
from tplaudit.probes.models.template_files import load_template

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": 64,
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, offline."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def add(cache, name, files, listed=()):
    """Put a model into the cache as a download would; `listed` are files of it that did not arrive."""
    folder = cache / f"models--{name.replace('/', '--')}"
    directory = folder / "snapshots" / COMMIT
    directory.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    for file, text in files.items():
        (directory / file).write_bytes(text)
    if listed:
        from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache

        entry = TreeCacheEntry(size=1, blob_id="0" * 40, lfs_sha256=None, lfs_size=None, xet_hash=None)
        write_tree_cache(str(folder), COMMIT, dict.fromkeys([*files, *listed], entry))
    return directory


@pytest.mark.parametrize(
    "name",
    ["mlx-community/Qwen3-0.6B-4bit", "a/b", "Org_1/model.v2", "a/b@v1.2", "a/b@refs/pr/1", f"a/b@{COMMIT}"],
)
def test_names_that_can_be_ids(name):
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name",
    [
        *("./a", "/models/a", "../a/b", "a/b/c", "~/a", "-", "template.jinja", "org/config.json", "a--b/c"),
        *("a/b-", "a/b..c", "a./b", "a b/c", "", "a/", "ä/b", "a/" + "b" * 95, "model.gguf"),
        *("gpt2", "a/b@", "a/b@-x", "a/b@x y", "a/model.gguf", "a@b/c"),
    ],
)
def test_names_that_cannot(name):
    assert not is_hub_id(name)


def test_a_folder_is_itself_before_it_is_an_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_id("owner/model")
    (tmp_path / "owner" / "model").mkdir(parents=True)
    assert not is_hub_id("owner/model")


def test_a_model_in_the_cache_is_loaded_from_there(cache, tmp_path_factory):
    import mlx.core as mx
    from mlx.utils import tree_flatten

    made = tmp_path_factory.mktemp("made")
    (made / "config.json").write_text(json.dumps(LLAMA))
    model = MLXEngine.load(made, random_weights=True)._model
    mx.save_safetensors(str(made / "model.safetensors"), dict(tree_flatten(model.parameters())))
    directory = add(cache, "owner/tiny", {file.name: file.read_bytes() for file in made.iterdir()})
    assert snapshot("owner/tiny") == snapshot("owner/tiny", weights=False) == directory
    assert MLXEngine.load(snapshot("owner/tiny")).bytes_per_token == 2 * 2 * 32 * 4


def test_a_model_without_weights_serves_for_counting_only(cache):
    directory = add(cache, "owner/texts", {"config.json": b"{}", "tokenizer.json": b"{}"})
    assert snapshot("owner/texts", weights=False) == directory
    with pytest.raises(InputError, match=r"no weights .* in the cache; .*hf download owner/texts"):
        snapshot("owner/texts")


def test_a_replay_counts_with_the_texts_and_asks_for_the_weights_to_compute(cache):
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    add(cache, "owner/texts", {name: (DEFAULT_MODEL / name).read_bytes() for name in names})
    model = load_model("owner/texts")
    assert (model.source, model.kind, model.default_engine) == ("owner/texts", "hub", "tokens")
    assert model.state_size.bytes_per_token == 1024
    assert list(model.tokenizer.encode("Hello there"))
    with pytest.raises(InputError, match="hf download owner/texts"):
        load_engine(model)


def test_a_model_that_is_not_there(cache):
    with pytest.raises(InputError, match=r"^owner/none: .*HF_HUB_OFFLINE.*not in the cache .*") as caught:
        snapshot("owner/none")
    assert str(cache) in str(caught.value) and "\n" not in str(caught.value)
    assert "in part" not in str(caught.value)


@pytest.mark.skipif(
    not hasattr(errors, "IncompleteSnapshotError"), reason="this huggingface_hub does not tell"
)
def test_a_model_that_is_there_in_part(cache):
    add(cache, "owner/part", {"config.json": b"{}"}, listed=["model.safetensors", "code.py"])
    with pytest.raises(InputError, match="in part only"):
        snapshot("owner/part")
    assert snapshot("owner/part", weights=False).name == COMMIT


class Response:
    """What an error of the hub carries."""

    headers = MappingProxyType({})
    request = None
    status_code = 401


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (lambda: errors.GatedRepoError("gated", response=Response()), "is gated; accept its terms"),
        (
            lambda: errors.RepositoryNotFoundError("404", response=Response()),
            "no such public model on the hub",
        ),
        (lambda: errors.HFValidationError("bad"), "no such public model"),
        (
            lambda: errors.RevisionNotFoundError("404", response=Response()),
            "the model has no revision main; name a branch",
        ),
        (lambda: errors.LocalEntryNotFoundError("no route\nto host"), "the hub cannot be reached"),
        (lambda: OSError("disk\nfull"), r"cannot be downloaded \(OSError: disk full\)"),
    ],
)
def test_what_the_hub_answers_is_one_sentence(tmp_path, monkeypatch, error, said):
    def download(name, *, allow_patterns, revision):
        assert revision is None and name == "owner/model" and "*.py" not in allow_patterns
        raise error()

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(InputError, match=said) as caught:
        snapshot("owner/model")
    assert caught.value.where == "owner/model" and "\n" not in str(caught.value)


FILES = {
    "chat_template.jinja": b"{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}",
    "additional_chat_templates/tool_use.jinja": b"tools",
    "tokenizer_config.json": b'{"bos_token": "<s>", "added_tokens_decoder": {}}',
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights",
    "modeling_own.py": b"raise SystemExit",
}
WANTED = FILES.keys() - {"tokenizer.json", "model.safetensors", "modeling_own.py"}
OLD = "f" * 40
WITHOUT = {"config.json": b"{}", "model.Q4.gguf": b"GGUF"}
#: Files of the stand-in hub, by model and then by commit; the first commit is the main one.
MODELS = {
    "owner/model": {COMMIT: FILES, OLD: {"chat_template.jinja": b"old"}},
    "owner/gated": {COMMIT: FILES},
    "owner/without": {COMMIT: WITHOUT},
}
REVISIONS = {"main": COMMIT, "v1": OLD, COMMIT: COMMIT, OLD: OLD}


class Hub(BaseHTTPRequestHandler):
    """The few addresses of the hub that a download asks for, as the hub documents its API."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.seen.append((self.command, self.path.partition("?")[0], self.headers["Authorization"]))
        path = self.path.partition("?")[0].strip("/").removeprefix("api/models/").split("/")
        name, rest = "/".join(path[:2]), path[2:]
        if self.server.status:
            self.answer(self.server.status, b"")
        elif name not in MODELS:
            self.answer(401, b"", **{"X-Error-Code": "RepoNotFound"})
        elif (commit := REVISIONS.get(rest[1] if rest else "main")) not in MODELS[name]:
            self.answer(404, b"", **{"X-Error-Code": "RevisionNotFound"})
        elif rest[:1] in ([], ["revision"]):
            self.answer(200, json.dumps({"id": name, "sha": commit, "siblings": []}).encode())
        elif rest[0] == "tree":
            self.answer(200, json.dumps([entry(*file) for file in MODELS[name][commit].items()]).encode())
        elif name == "owner/gated":
            self.answer(403, b"", **{"X-Error-Code": "GatedRepo"})
        else:
            data = MODELS[name][commit]["/".join(rest[2:])]
            self.answer(200, data, **{"ETag": f'"{digest(data)}"', "X-Repo-Commit": commit})

    def answer(self, status, data, **headers):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *arguments):
        """Say nothing."""


def digest(data):
    return hashlib.sha1(data).hexdigest()


def entry(path, data):
    return {"type": "file", "path": path, "size": len(data), "oid": digest(data)}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on this machine and an empty cache, for this process (`huggingface_hub` has read its own)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.seen, server.status = [], None
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.cache = tmp_path / "cache"
    point_to(server.address, server.cache, monkeypatch)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def point_to(address, cache, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)


MESSAGES = [{"role": "user", "content": "hello"}]


def test_a_template_and_its_tokens_come_from_the_hub(hub):
    template = load_template("owner/model")
    assert template.source == "owner/model"
    assert template.render(MESSAGES) == "<s>hello"
    assert template.render(MESSAGES, tools=[{}]) == "tools"
    assert load_template("owner/model", special_tokens={"bos_token": "!"}).render(MESSAGES) == "!hello"


def test_only_the_few_files_are_downloaded(hub):
    directory = template_snapshot("owner/model")
    assert {str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()} == WANTED


@pytest.mark.parametrize("revision", ["v1", OLD])
def test_a_revision(hub, revision):
    assert load_template(f"owner/model@{revision}").render(MESSAGES) == "old"
    assert load_template("owner/model").render(MESSAGES) == "<s>hello"


def test_what_is_in_the_cache_is_enough_when_the_hub_fails(hub, monkeypatch):
    load_template("owner/model")
    hub.status = 500
    assert load_template("owner/model").render(MESSAGES) == "<s>hello"
    point_to("http://127.0.0.1:9", hub.cache, monkeypatch)
    assert load_template("owner/model").render(MESSAGES) == "<s>hello"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_template("owner/model").render(MESSAGES) == "<s>hello"
    with pytest.raises(InputError, match=r"switched off .* not in the cache .* --revision v1"):
        load_template("owner/model@v1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("owner/none", "no such model directory or template here, and no such public model on the hub"),
        ("owner/gated", "the model is gated; accept its terms"),
        ("owner/model@v9", "the model has no revision v9"),
        (
            "owner/without",
            "no chat template here; name the model that it was made from, or download its GGUF",
        ),
    ],
)
def test_what_the_hub_does_not_give_is_one_sentence(hub, name, said):
    with pytest.raises(InputError, match=said) as caught:
        load_template(name)
    assert caught.value.where == name and "\n" not in str(caught.value)


def test_a_hub_that_fails_is_not_asked_for_long(hub):
    hub.status = 503
    started = time.monotonic()
    with pytest.raises(InputError, match=r"the hub answers with HTTP 503, and the model is not in the cache"):
        load_template("owner/model")
    assert time.monotonic() - started < 10


def test_no_network_is_said_at_once(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    point_to(f"http://127.0.0.1:{port}", tmp_path, monkeypatch)
    started = time.monotonic()
    with pytest.raises(InputError, match=r"the hub cannot be reached, and the model is not in the cache"):
        load_template("owner/model")
    assert time.monotonic() - started < 10


def run(*arguments, **environment):
    """Run the command line with nothing of this environment that `huggingface_hub` reads."""
    read = ("HF_", "TRANSFORMERS_", "DISABLE_TELEMETRY")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(read)}
    return subprocess.run(
        [sys.executable, "-m", "tplaudit.cli.app", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**kept, **environment},
    )


def test_the_command_line_obeys_the_environment_and_sends_no_more_than_the_id(hub, tmp_path):
    environment = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_own"}
    online = run("probe", "owner/model", "--json", "--fail-on=never", **environment)
    assert (online.returncode, online.stderr) == (0, "")
    assert json.loads(online.stdout)["template"]["source"] == "owner/model"
    assert {token for _, _, token in hub.seen} == {"Bearer hf_own"}
    assert {method for method, _, _ in hub.seen} == {"GET", "HEAD"}
    assert {path for _, path, _ in hub.seen} <= {
        *("/api/models/owner/model", "/api/models/owner/model/revision/main"),
        f"/api/models/owner/model/tree/{COMMIT}",
        *(f"/owner/model/resolve/{COMMIT}/{file}" for file in WANTED),
    }

    asked = len(hub.seen)
    offline = run("thinking", "owner/model", "--json", TRANSFORMERS_OFFLINE="1", **environment)
    assert json.loads(offline.stdout)["template"]["source"] == "owner/model"
    missing = run("probe", "owner/other", HF_HUB_OFFLINE="1", **environment)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("tplaudit: owner/other: ") and missing.stderr.count("\n") == 1
    assert len(hub.seen) == asked


def test_importing_it_loads_nothing_heavy():
    code = "import sys, tplaudit.probes.models.hub; print('huggingface_hub' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
