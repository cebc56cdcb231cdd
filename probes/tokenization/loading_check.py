"""Does a model directory give the same token ids however it is loaded? Rule `token-ids-depend-on-loading`.

transformers 5 chooses the tokenizer class by `model_type` of `config.json`. Without that file, or with a
type that it does not know, another class may replace what `tokenizer.json` says about splitting a text.
Only then is the directory loaded in both ways and compared: for all other directories nothing heavy is
imported. Where transformers is not installed, not all types that it knows are known: what cannot be told
then is said to be not checked.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from ..extras import INSTALL, has_transformers
from ..files import read_json
from ..findings import Finding, finding
from .tokenizer_class import is_known_type

#: Texts on which pre-tokenizers differ: numbers, white space, contractions, code, combining marks, scripts.
SAMPLE = (
    "Don't we'll I'M 1234567 3.14 0x1F a_b-c  two  spaces\t\ttab\r\n\r\n"
    '   indented = f(x) != {"k": [1, 2]};\n'
    "na\u0069\u0308ve cafe\u0301 नमस्ते दुनिया "
    "สวัสดีครับ مَرْحَبًا בְּרֵאשִׁית 日本語テスト 你好世界 🍞👩‍👩‍👧 №ﬁ"
)


_UNKNOWN_HERE = "whether transformers knows the model_type of config.json cannot be told without transformers"


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
        message = f"not checked: {reason}, and the two ways to load it could not be compared ({error.what})"
        yield finding("token-ids-depend-on-loading", message, confidence="likely")
        return
    if list(whole) == list(file):
        return
    if reason == _UNKNOWN_HERE:
        message = f"not checked: {reason}; {INSTALL}"
        yield finding("token-ids-depend-on-loading", message, confidence="likely")
        return
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
    if is_known_type(model_type):
        return None
    if not has_transformers():
        return _UNKNOWN_HERE
    if _has_models_of(model_type):
        return None
    return f"the model_type {model_type!r} has no model of that name in transformers"


def _has_models_of(model_type: str) -> bool:
    """Tell whether transformers has a folder of that name, without importing it."""
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        return False
    return (Path(package.origin).parent / "models" / model_type.replace("-", "_")).is_dir()
