import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tplaudit.fixtures import DEFAULT_MODEL
from tplaudit.probes.errors import InputError
from tplaudit.probes.tokenization.files import (
    BackendTokenizer,
    PythonTokenizer,
    load_tokenizer,
    load_tokenizer_named,
)
from tplaudit.probes.tokenization.tokens import (
    CharacterTokenizer,
    Encoded,
    Ids,
    IncrementalEncoder,
    ResumableTokenizer,
    common_prefix_ids,
)

CORPUS = [
    "<|im_start|>system\nYou are a careful helper.<|im_end|>\n<|im_start|>user\nWhat does the function do?",
    "def encode(text):\n    return [vocabulary[word] for word in text.split()]  # naïve, café\n\n",
]
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def special(text: str, **flags: bool) -> AddedToken:
    return AddedToken(text, special=True, **{"normalized": False, **flags})


def byte_level(added: Iterable[AddedToken], normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_tokens(list(added))
    return backend


def metaspace(added: Iterable[AddedToken], scheme: str) -> Tokenizer:
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    trainer = trainers.BpeTrainer(vocab_size=140, special_tokens=["<unk>"], show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens(list(added))
    return backend


def llama2(added: Iterable[AddedToken]) -> Tokenizer:
    letters = {letter: index + 257 for index, letter in enumerate("▁abcdefghijklmnopqrstuvwxyz")}
    octets = {f"<0x{octet:02X}>": octet + 1 for octet in range(256)}
    vocabulary = {"<unk>": 0, **octets, **letters}
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.add_tokens(list(added))
    return backend


def chatml(**flags: bool) -> list[AddedToken]:
    return [special(text, **flags) for text in CHATML]


BUNDLED = DEFAULT_MODEL

# Each hand-made tokenizer has one property that a careless cut would get wrong.
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bundled": lambda: Tokenizer.from_file(str(BUNDLED / "tokenizer.json")),
    "byte-level": lambda: byte_level(chatml()),
    "nfc": lambda: byte_level(chatml(), normalizers.NFC()),
    "metaspace-first": lambda: metaspace(chatml(), "first"),
    "metaspace-always": lambda: metaspace(chatml(), "always"),
    "prepend-and-byte-fallback": lambda: llama2(chatml()),
    "rstrip": lambda: llama2(chatml(rstrip=True)),
    "lstrip": lambda: byte_level([*chatml(), special("<mask>", lstrip=True), AddedToken("\n\n")]),
    "strip-both": lambda: metaspace(chatml(lstrip=True, rstrip=True), "first"),
    "normalized-without-normalizer": lambda: byte_level(AddedToken(text, normalized=True) for text in CHATML),
    "normalized-and-lowercase": lambda: byte_level(
        [special("<|im_start|>"), AddedToken("<|IM_END|>", normalized=True), special("the")],
        normalizers.Lowercase(),
    ),
    "overlapping": lambda: byte_level(
        [*chatml(), *map(special, ["<think>", "<think>\n", "\n<think>\n\n", "<", "k>", "user<|im_start|>x"])]
    ),
}

FRAGMENTS = [
    *CHATML, *CHATML, "<|im_", "start|>", "<|im_start", "<|im_end|", "|>", "<", "<|IM_END|>", "<mask>",
    "<think>", "<think>\n", "</think>", "k>", "user\n", "user", "assistant\n", "x", "\n", "\n\n", " ", "  ",
    "      ", "the", "THE function", "def encode(text):\n    return",
    "e", "\u0301", "é", "\u0345\u0301", "日本", "😀", "👩\u200d💻",
]  # fmt: skip

fragments = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)


@st.composite
def conversations(draw: st.DrawFn) -> list[str]:
    """Prompts, each made from one of the last three: grown, cut off, or changed in the middle."""
    turns = st.tuples(st.sampled_from(["system", "user", "assistant"]), fragments)
    opening = draw(st.lists(turns, min_size=1, max_size=5))
    texts = ["".join(f"<|im_start|>{role}\n{body}<|im_end|>\n" for role, body in opening)]
    for _ in range(draw(st.integers(1, 8))):
        text = draw(st.sampled_from(texts[-3:]))
        start = draw(st.integers(0, len(text)) | st.just(len(text)))
        end = draw(st.integers(start, len(text)) | st.sampled_from([start, len(text)]))
        texts.append(text[:start] + draw(fragments) + text[end:])
    return texts


class Spy:
    """A resumable tokenizer that notes what it was asked to encode, and may be given a wrong reach."""

    def __init__(self, inner: BackendTokenizer, reach: int | None = None) -> None:
        self.inner = inner
        self.name = inner.name
        self.special_tokens = inner.special_tokens
        self.reach = inner.reach if reach is None else reach
        self.whole_text_reason = inner.whole_text_reason
        self.resumed: list[str] = []
        self.whole: list[str] = []

    def encode(self, text: str) -> Ids:
        self.whole.append(text)
        return self.inner.encode(text)

    def encode_resumable(self, text: str) -> Encoded:
        self.resumed.append(text)
        return self.inner.encode_resumable(text)

    def decode(self, ids: object) -> str:
        raise NotImplementedError


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> BackendTokenizer:
    return BackendTokenizer(TOKENIZERS[request.param](), request.param)


@settings(max_examples=100, deadline=None)
@given(texts=conversations())
def test_ids_equal_whole_text_encoding(tokenizer: BackendTokenizer, texts: list[str]) -> None:
    encoder = IncrementalEncoder(tokenizer, check_every=0)
    for text in texts:
        np.testing.assert_array_equal(encoder.encode(text), tokenizer.encode(text))
    assert encoder.fallback_reason is None


@settings(max_examples=100, deadline=None)
@given(texts=conversations())
def test_interleaved_conversations_are_each_resumed(texts: list[str]) -> None:
    spy = Spy(BackendTokenizer(byte_level(chatml()), "spy"))
    encoder = IncrementalEncoder(spy, check_every=0)
    other = "<|im_start|>system\nAnother policy.<|im_end|>\n"
    for text in texts:
        np.testing.assert_array_equal(encoder.encode(text), spy.inner.encode(text))
        other += "<|im_start|>user\nMore of it.<|im_end|>\n"
        np.testing.assert_array_equal(encoder.encode(other), spy.inner.encode(other))
    assert all(len(text) < 100 for text in spy.resumed[3::2])


@settings(max_examples=100, deadline=None)
@given(texts=conversations())
def test_searching_finds_the_added_tokens_where_offsets_tell(
    tokenizer: BackendTokenizer, texts: list[str]
) -> None:
    asking = BackendTokenizer(tokenizer._backend, "by offsets")
    asking._pattern = None
    for text in texts:
        found, told = tokenizer.encode_resumable(text), asking.encode_resumable(text)
        for name in ("ids", "starts", "indices"):
            np.testing.assert_array_equal(getattr(found, name), getattr(told, name))


def test_usual_prompts_are_searched() -> None:
    tokenizer = BackendTokenizer(byte_level(chatml()), "searched")
    text = "<|im_start|>user\nWhat?<|im_end|>\n" * 3
    ids = tokenizer.encode(text)
    assert tokenizer._searched(text, ids[np.isin(ids, tokenizer._place_ids)]) is not None
    # What is one token as a whole holds no other.
    overlapping = BackendTokenizer(TOKENIZERS["overlapping"](), "overlapping")
    assert len(overlapping.encode_resumable("<|im_start|>user<|im_start|>x").starts) == 2


def test_a_conversation_takes_the_place_of_what_it_goes_on_from() -> None:
    """Eight conversations side by side are each resumed, however long each of them gets."""
    spy = Spy(BackendTokenizer(byte_level(chatml()), "spy"))
    encoder = IncrementalEncoder(spy, check_every=0)
    opening = "<|im_start|>system\nThe tools of everyone.<|im_end|>\n" * 5
    texts = [f"{opening}<|im_start|>user\nTask {number}.<|im_end|>\n" * 5 for number in range(8)]
    for _ in range(6):
        for number, text in enumerate(texts):
            texts[number] = (
                f"{text}<|im_start|>assistant\nDone.<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n"
            )
            encoder.encode(f"{texts[number]}<|im_start|>assistant\n")
    assert max(map(len, spy.resumed[8:])) < 200


def test_only_what_follows_the_last_safe_cut_is_encoded_again(tokenizer: BackendTokenizer) -> None:
    spy = Spy(tokenizer)
    encoder = IncrementalEncoder(spy, check_every=0)
    turn = "x<|im_start|>user\nWhat does it do?<|im_end|>\n"
    text = turn * 50
    encoder.encode(text)
    encoder.encode(text + "<|im_start|>assistant\n")
    encoder.encode(text.replace("What", "When", 25).replace("When", "What", 24))
    assert len(spy.resumed[1]) < 3 * len(turn)
    assert 25 * len(turn) < len(spy.resumed[2]) < 28 * len(turn)
    assert spy.whole == []


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (lambda: byte_level([special("<|im_end|>", single_word=True)]), "counts only as a word of its own"),
        (lambda: byte_level([]), "no added token before which a text may be split"),
        (
            lambda: byte_level([AddedToken("<|im_end|>", normalized=True)], normalizers.Lowercase()),
            "no added token before which a text may be split",
        ),
    ],
)
@settings(max_examples=20, deadline=None)
@given(texts=conversations())
def test_an_unsafe_tokenizer_encodes_whole(
    backend: Callable[[], Tokenizer], reason: str, texts: list[str]
) -> None:
    tokenizer = BackendTokenizer(backend(), "unsafe")
    encoder = IncrementalEncoder(tokenizer)
    assert encoder.fallback_reason is not None
    assert reason in encoder.fallback_reason
    for text in texts:
        np.testing.assert_array_equal(encoder.encode(text), tokenizer.encode(text))
    assert encoder.check()


def test_special_tokens_encoded_as_text_are_no_cuts() -> None:
    backend = byte_level(chatml())
    backend.encode_special_tokens = True
    encoder = IncrementalEncoder(BackendTokenizer(backend, "split"))
    assert encoder.fallback_reason == "the tokenizer encodes special tokens as ordinary text"


class TestSelfCheck:
    """Half of a longer token, `x<a>y`, is a token of its own: only `reach` keeps the two apart."""

    before = "<a>" * 4 + "x<a>z"
    after = "<a>" * 4 + "x<a>y"

    def wrong(self) -> Spy:
        return Spy(BackendTokenizer(byte_level([special("<a>"), special("x<a>y")]), "wrong"), reach=0)

    def test_a_right_reach_needs_no_fallback(self) -> None:
        encoder = IncrementalEncoder(self.wrong().inner)
        encoder.encode(self.before)
        assert len(encoder.encode(self.after)) == 5
        assert encoder.check()
        assert encoder.fallback_reason is None

    def test_the_last_text_is_checked_by_the_caller(self) -> None:
        encoder = IncrementalEncoder(self.wrong())
        encoder.encode(self.before)
        assert len(encoder.encode(self.after)) == 7
        assert not encoder.check()
        assert encoder.fallback_reason == "text 2 had other ids than when encoded whole"
        assert len(encoder.encode(self.after)) == 5

    def test_every_nth_text_is_checked_and_comes_out_right(self) -> None:
        encoder = IncrementalEncoder(self.wrong(), check_every=2)
        encoder.encode(self.before)
        assert len(encoder.encode(self.after)) == 5
        assert encoder.fallback_reason == "text 2 had other ids than when encoded whole"

    def test_the_first_text_is_checked_at_a_cut_in_its_middle(self) -> None:
        spy = self.wrong()
        spy.inner = BackendTokenizer(metaspace(chatml(), "first"), "inner")
        spy.encode = lambda text: spy.inner.encode(" " + text)  # type: ignore[method-assign]
        encoder = IncrementalEncoder(spy)
        encoder.encode("a<|im_end|>b<|im_end|>c<|im_end|>")
        assert encoder.fallback_reason == "the first text had other ids when split at character 12"

    def test_a_token_that_is_not_found_again_ends_the_cutting(self) -> None:
        spy = self.wrong()
        encoder = IncrementalEncoder(spy, check_every=0)
        encoder.encode(self.before)
        spy.inner = BackendTokenizer(byte_level(chatml()), "other")
        np.testing.assert_array_equal(encoder.encode(self.after), spy.inner.encode(self.after))
        assert encoder.fallback_reason == "text 2 did not start with the token before which it was split"

    def test_checks_are_counted_and_not_repeated(self) -> None:
        spy = Spy(BackendTokenizer(byte_level(chatml()), "spy"))
        encoder = IncrementalEncoder(spy, check_every=10)
        text = ""
        for turn in range(20):
            text += f"<|im_start|>user\nQuestion {turn}<|im_end|>\n"
            encoder.encode(text)
        assert (encoder.checks, len(spy.whole)) == (3, 3)
        assert encoder.check()
        assert encoder.checks == 3


def test_returned_ids_are_read_only() -> None:
    ids = IncrementalEncoder(BackendTokenizer(byte_level(chatml()), "t")).encode("a<|im_end|>")
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_ids_are_never_truncated_nor_padded_nor_framed() -> None:
    backend = byte_level(chatml())
    expected = backend.encode("a b c d e f", add_special_tokens=False).ids
    backend.enable_truncation(2)
    backend.enable_padding(length=40)
    ids = BackendTokenizer(backend, "t").encode("a b c d e f")
    assert ids.tolist() == expected
    assert ids.dtype == np.int32


def shared_items(a: Sequence[object], b: Sequence[object]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


@given(*[st.lists(st.integers(0, 3))] * 3)
def test_common_prefix_of_ids(shared: list[int], a: list[int], b: list[int]) -> None:
    a, b = shared + a, shared + b
    arrays = np.array(a, dtype=np.int32), np.array(b, dtype=np.int32)
    assert common_prefix_ids(*arrays) == shared_items(a, b)


@given(st.text(st.characters()))
def test_characters(text: str) -> None:
    tokenizer = load_tokenizer_named("characters")
    assert isinstance(tokenizer, CharacterTokenizer)
    assert tokenizer.encode(text).tolist() == [ord(character) for character in text]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert IncrementalEncoder(tokenizer).encode(text).tolist() == tokenizer.encode(text).tolist()


def test_characters_outside_unicode_are_shown_as_unknown() -> None:
    assert CharacterTokenizer().decode([97, -1, 0x110000]) == "a\ufffd\ufffd"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    byte_level(chatml()).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    named = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    config = {"tokenizer_class": "Qwen2Tokenizer", **named}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


class TestLoading:
    text = "<|im_start|>user\nWhat does the function do?<|im_end|>\n"

    def test_a_directory_and_its_file_give_the_same_ids(self, directory: Path) -> None:
        loaded = load_tokenizer(directory)
        file = load_tokenizer_named(str(directory / "tokenizer.json"))
        assert isinstance(loaded, ResumableTokenizer)
        assert loaded.name == str(directory)
        assert loaded.decode(loaded.encode(self.text)) == self.text
        np.testing.assert_array_equal(loaded.encode(self.text), file.encode(self.text))
        assert loaded.special_tokens == {
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "unk_token": "<|endoftext|>",
        }
        assert file.special_tokens == {}

    def test_the_bundled_model_has_the_ids_of_its_file(self) -> None:
        loaded, file = load_tokenizer(BUNDLED), load_tokenizer(BUNDLED / "tokenizer.json")
        np.testing.assert_array_equal(loaded.encode(self.text), file.encode(self.text))
        assert isinstance(loaded, ResumableTokenizer)
        assert loaded.whole_text_reason is None

    def test_added_tokens_are_those_of_the_loaded_tokenizer(self, directory: Path) -> None:
        config = directory / "tokenizer_config.json"
        added = {"400": {"content": "<|only_in_the_config|>", "special": True}}
        config.write_text(json.dumps({**json.loads(config.read_text()), "added_tokens_decoder": added}))
        loaded = load_tokenizer(directory)
        assert isinstance(loaded, BackendTokenizer)
        assert loaded.reach == len("<|only_in_the_config|>")
        assert len(loaded.encode_resumable("a<|only_in_the_config|>").starts) == 1

    def test_a_tokenizer_in_python_is_encoded_whole(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "t5"}')
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
        loaded = load_tokenizer(tmp_path)
        assert isinstance(loaded, PythonTokenizer)
        assert loaded.decode(loaded.encode("café")) == "café"
        assert loaded.encode("café").tolist() == [octet + 3 for octet in "café".encode()]
        assert loaded.special_tokens["eos_token"] == "</s>"
        encoder = IncrementalEncoder(loaded)
        assert encoder.encode("café").tolist() == loaded.encode("café").tolist()
        assert encoder.fallback_reason is not None
        with pytest.raises(InputError, match="half a surrogate pair"):
            loaded.encode("\udc00")

    def test_loading_is_silent_and_stays_off_the_network(self, directory: Path) -> None:
        program = (
            "import pathlib, socket, sys\n"
            "def refuse(*_): sys.exit('network')\n"
            "socket.socket.connect = socket.getaddrinfo = refuse\n"
            "from tplaudit.probes.tokenization.files import load_tokenizer\n"
            "load_tokenizer(pathlib.Path(sys.argv[1])).encode('a' * 300000)\n"
        )
        run = subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True)
        assert (run.returncode, run.stdout, run.stderr) == (0, "", "")

    @pytest.mark.parametrize(
        ("files", "what", "blamed"),
        [
            ({"tokenizer.json": None}, "the directory has no tokenizer", ""),
            ({"tokenizer.json": None, "config.json": None}, "the directory has no tokenizer", ""),
            ({"config.json": b'{"model_type":'}, "the file is not JSON", "config.json"),
            ({"config.json": b"\x00\xff\xfe"}, "the file is not JSON", "config.json"),
            ({"config.json": b"[" * 100_000}, "the file is not JSON", "config.json"),
            ({"config.json": b"[]"}, "the file is not a JSON object", "config.json"),
            ({"tokenizer_config.json": b"\xff"}, "the file is not JSON", "tokenizer_config.json"),
            ({"tokenizer.json": b'{"a": 1}'}, "the file is not a tokenizer", "tokenizer.json"),
            ({"tokenizer.json": b"\x00\xff\xfe"}, "the file is not a tokenizer", "tokenizer.json"),
            (
                {
                    "tokenizer_config.json": b'{"auto_map": {"AutoTokenizer": ["a.B", null]}}',
                    "config.json": b"{}",
                },
                "the tokenizer is Python code of its repository",
                "",
            ),
            (
                {
                    "tokenizer.json": None,
                    "config.json": b'{"model_type": "llama"}',
                    "tokenizer.model": b"\x00",
                },
                "transformers cannot load the tokenizer",
                "",
            ),
        ],
    )
    def test_a_broken_directory_is_one_sentence(
        self, directory: Path, files: dict[str, bytes | None], what: str, blamed: str
    ) -> None:
        (directory / "tokenizer_config.json").unlink()
        for name, content in files.items():
            path = directory / name
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            load_tokenizer(directory)
        assert caught.value.what.startswith(what)
        assert caught.value.where == str(directory / blamed)
        assert caught.value.fix
        assert "\n" not in str(caught.value)

    def test_a_broken_file_is_one_sentence(self, tmp_path: Path) -> None:
        junk = tmp_path / "tokenizer.json"
        junk.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        with pytest.raises(InputError, match="the file is not a tokenizer"):
            load_tokenizer(junk)
        with pytest.raises(InputError, match="there is no such tokenizer"):
            load_tokenizer_named(str(tmp_path / "nowhere"))

    def test_text_without_a_utf8_form_is_an_input_error(self, directory: Path) -> None:
        loaded = load_tokenizer(directory / "tokenizer.json")
        with pytest.raises(InputError, match=r"character 2 of the prompt .* \(U\+D83D\)"):
            loaded.encode("ab\ud83d")

    def test_a_crash_of_the_library_is_an_input_error(self) -> None:
        added = [special("<a>", rstrip=True), special("\n", lstrip=True)]
        with pytest.raises(InputError, match="the tokenizer crashed on the prompt"):
            BackendTokenizer(byte_level(added), "clash").encode("<a>\n\n\nb")


def real_tokenizers() -> list[Path]:
    folder = os.environ.get("TPLAUDIT_TEST_TOKENIZERS")
    return sorted(path for path in Path(folder).iterdir() if path.is_dir()) if folder else []


@pytest.mark.slow
@pytest.mark.skipif(
    not real_tokenizers(), reason="TPLAUDIT_TEST_TOKENIZERS names no folder of model directories"
)
@pytest.mark.parametrize("path", real_tokenizers(), ids=lambda path: path.name)
def test_real_tokenizers(path: Path) -> None:
    tokenizer = load_tokenizer(path)
    assert isinstance(tokenizer, BackendTokenizer)
    encoder = IncrementalEncoder(tokenizer)
    assert encoder.fallback_reason is None
    added = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    marks = [token["content"] for token in added]
    sources = [Path(os.__file__), Path(json.__file__), Path(__file__)]
    body = "".join(source.read_text(encoding="utf-8") for source in sources)
    body += "café e\u0301\u0345 日本語 👩\u200d💻 \u0f73"
    text = ""
    for turn in range(60):
        mark = marks[turn * 7 % len(marks)]
        text += mark + body[turn * 997 : turn * 997 + 1500] + mark + body[-turn:] + mark[: turn % 5]
        start, end = len(text) * turn // 80, len(text) * turn // 70
        changed = text if turn % 6 else text[:start] + mark[1:] + text[end:]
        np.testing.assert_array_equal(encoder.encode(changed), tokenizer.encode(changed))
    assert encoder.fallback_reason is None
