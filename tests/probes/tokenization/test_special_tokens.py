from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.tokenization.special_tokens import special_texts


def test_special_tokens_are_the_models_own_and_the_templates_markup() -> None:
    template = ChatTemplate(
        {"default": "<|im_start|>[INST]<think>{{ messages }}"},
        source="t",
        special_tokens={"bos_token": "<s>", "x": ""},
    )
    prompt = "<s><|im_start|>[INST] <div> <think> <|im_end|> [NOTE]"
    assert special_texts([prompt], template) == ("<|im_start|>", "<think>", "[INST]", "<s>")
