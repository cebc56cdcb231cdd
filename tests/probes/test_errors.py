import pytest
from tplaudit.probes.errors import InputError, RenderError, TplauditError, brief


def test_a_sentence_says_where_what_and_what_to_do() -> None:
    assert str(InputError("broken JSON", where="a.jsonl:3", fix="repair the line")) == (
        "a.jsonl:3: broken JSON; repair the line"
    )
    assert str(TplauditError("no policy")) == "no policy"


def test_the_text_of_a_template_is_cut() -> None:
    error = RenderError("TemplateError", "x" * 5000)
    assert len(error.message) == 300
    assert error.message.endswith("… (5,000 characters)")
    assert RenderError("TemplateError", "x" * 300).message == "x" * 300


@pytest.mark.parametrize(("text", "said"), [("a\n  b ", "ValueError: a b"), ("", "ValueError: ")])
def test_an_exception_is_one_line(text: str, said: str) -> None:
    assert brief(ValueError(text)) == said
    assert brief(ValueError(text + "x" * 200)).endswith("x…")
