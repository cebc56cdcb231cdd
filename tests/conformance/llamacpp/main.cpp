// Runs llama.cpp's own way from a request's body to the prompt: a JSON line in, a JSON line out.
//
// A line holds `function` (chat, messages, responses or capabilities), `body`, `template`, `bos_token` and
// `eos_token`; the answer holds `prompt`, or `refused` (HTTP 400) or `raised` (HTTP 500) with the server's words.

#include "chat.h"
#include "log.h"
#include "server-chat.h"
#include "server-common.h"

#include <iostream>
#include <string>

// As load_model in server-context.cpp starts the server without flags, with arg.cpp's default of
// preserve_reasoning.
static server_chat_params started(const json & asked) {
    server_chat_params params = {};
    params.use_jinja            = true;
    params.prefill_assistant    = true;
    params.reasoning_format     = COMMON_REASONING_FORMAT_DEEPSEEK;
    params.chat_template_kwargs = { { "preserve_reasoning", "true" } };
    params.tmpls = common_chat_templates_init(nullptr, asked.at("template"), asked.at("bos_token"), asked.at("eos_token"));
    common_chat_format_example(params.tmpls.get(), params.use_jinja, params.chat_template_kwargs);
    params.enable_thinking = common_chat_templates_support_enable_thinking(params.tmpls.get());
    return params;
}

static json answered(const json & asked) {
    const auto function = asked.at("function").get<std::string>();
    server_chat_params params;
    try {
        params = started(asked);
    } catch (const std::exception & error) {
        return { { "raised", std::string("the server does not start: ") + error.what() } };
    }
    if (function == "capabilities") {
        return { { "capabilities", common_chat_templates_get_caps(params.tmpls.get()) } };
    }
    // The handlers are post_chat_completions, post_anthropic_messages and post_responses_oai in
    // server-context.cpp; the kinds of errors are ex_wrapper's in server.cpp.
    try {
        json body = asked.at("body");
        if (function == "messages") {
            body = server_chat_convert_anthropic_to_oai(body);
        } else if (function == "responses") {
            body = server_chat_convert_responses_to_chatcmpl(body);
        }
        std::vector<raw_buffer> files;
        return { { "prompt", oaicompat_chat_params_parse(body, params, files).at("prompt") } };
    } catch (const std::invalid_argument & error) {
        return { { "refused", error.what() } };
    } catch (const common_json_error & error) {
        return { { "refused", error.what() } };
    } catch (const std::exception & error) {
        return { { "raised", error.what() } };
    }
}

int main() {
    common_log_set_verbosity_thold(-1);
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << answered(json::parse(line)).dump_safe() << std::endl;
    }
}
