"""Does a model directory give the same token ids however it is loaded? Rule `token-ids-depend-on-loading`.

transformers 5 chooses the tokenizer class by `model_type` of `config.json`. Without that file, or with a
type that it does not know, another class may replace what `tokenizer.json` says about splitting a text.
Only then is the directory loaded in both ways and compared: for all other directories nothing heavy is
imported.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from ..files import read_json
from ..findings import Finding, finding

#: Texts on which pre-tokenizers differ: numbers, white space, contractions, code, combining marks, scripts.
SAMPLE = (
    "Don't we'll I'M 1234567 3.14 0x1F a_b-c  two  spaces\t\ttab\r\n\r\n"
    '   indented = f(x) != {"k": [1, 2]};\n'
    "na\u0069\u0308ve cafe\u0301 नमस्ते दुनिया "
    "สวัสดีครับ مَرْحَبًا בְּרֵאשִׁית 日本語テスト 你好世界 🍞👩‍👩‍👧 №ﬁ"
)


def check_loading(source: str) -> Iterator[Finding]:
    """Yield the finding about an input, if it is a model directory with a tokenizer.json."""
    directory = Path(source)
    if source == "-" or not (directory / "tokenizer.json").is_file():
        return
    reason = _doubt(directory)
    if reason is None:
        return
    from .files import load_tokenizer

    try:
        whole = load_tokenizer(directory).encode(SAMPLE)
        file = load_tokenizer(directory / "tokenizer.json").encode(SAMPLE)
    except InputError as error:
        message = f"{reason}, and the two ways to load it could not be compared ({error.what})"
        yield finding("token-ids-depend-on-loading", message, confidence="likely")
        return
    if list(whole) != list(file):
        message = (
            f"{reason}, so that the directory gives {len(whole)} token ids for a sample text and its "
            f"tokenizer.json alone gives {len(file)}, not the same ones"
        )
        yield finding("token-ids-depend-on-loading", message)


def _doubt(directory: Path) -> str | None:
    """Say why a directory may be loaded with another class than it was made for; None where it is not."""
    path = directory / "config.json"
    if not path.is_file():
        return "config.json is missing"
    try:
        model_type = read_json(path).get("model_type")
    except InputError:
        return "config.json cannot be read"
    if not isinstance(model_type, str):
        return "config.json names no model_type"
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        return None
    known = Path(package.origin).parent / "models" / model_type.replace("-", "_")
    return (
        None if known.is_dir() else f"the model_type {model_type!r} has no model of that name in transformers"
    )
