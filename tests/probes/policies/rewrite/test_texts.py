import pytest
from chat_messages import owners
from tplaudit.probes.conversation import Message
from tplaudit.probes.policies.rewrite.texts import Text, join


@pytest.mark.parametrize(
    ("texts", "owned"), [(["a", "b"], "0111"), (["", "b"], "111"), (["a", "", "c"], "011222")]
)
def test_a_separator_belongs_to_the_text_after_it(texts: list[str], owned: str) -> None:
    text = join((Text(text, ((0, n),)) for n, text in enumerate(texts)), "\n\n")
    message = Message({"role": "user", "content": text.text}, 9, text.pieces())
    assert owners(message) == owned
