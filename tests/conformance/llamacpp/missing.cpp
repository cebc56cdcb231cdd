// What the chat code refers to and this program never calls: it belongs to a loaded model, or to downloads.

#include "download.h"

#include <cstdlib>

std::pair<long, std::vector<char>> common_remote_get_content(const std::string &, const common_remote_params &) {
    std::abort();
}

#define MISSING(name) void name() { std::abort(); }

extern "C" {
MISSING(ggml_abort) // also what a failed assertion calls, which ends the server
MISSING(llama_chat_apply_template)
MISSING(llama_model_chat_template)
MISSING(llama_model_get_vocab)
MISSING(llama_token_to_piece)
MISSING(llama_vocab_bos)
MISSING(llama_vocab_eos)
MISSING(llama_vocab_get_add_bos)
MISSING(llama_vocab_get_add_eos)
}
