/* Which tokens end a generation: those the file names, and control tokens that are known to end a
 * turn in their families. */
#include "engine/text/tokenizer_internal.h"

/* "<|end_of_sentence|>" with U+FF5C for the bars and U+2581 for the underscores. */
#define DEEPSEEK_BAR "\xef\xbd\x9c"
#define DEEPSEEK_END "<" DEEPSEEK_BAR "end" SPACE_MARK "of" SPACE_MARK "sentence" DEEPSEEK_BAR ">"

static const char *const names[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<|user|>",
    "<|observation|>",
    "<end_of_utterance>",
    DEEPSEEK_END,
};

static void mark(struct sl_tokenizer *t, int32_t id)
{
    if (id >= 0) t->eog_bits[id / 8] |= (uint8_t)(1u << (id % 8));
}

static int32_t control_id(const struct sl_tokenizer *t, const char *name)
{
    size_t n = 0;
    while (name[n] != '\0') n++;
    int32_t id = vocab_find(&t->vocab, (struct sl_str){name, n});
    return id >= 0 && t->vocab.kinds[id] == SL_TOKEN_CONTROL ? id : -1;
}

/* Where <|return|> and <|call|> (or <|calls|> and <|flush|>) end the turn, <|end|> only ends a
 * message within it. */
static bool end_is_inner(const struct sl_tokenizer *t)
{
    bool call = control_id(t, "<|call|>") >= 0 || control_id(t, "<|calls|>") >= 0;
    return call && (control_id(t, "<|return|>") >= 0 || control_id(t, "<|flush|>") >= 0);
}

sluice_err eog_open(struct sl_tokenizer *t, const struct sl_vocab *v, sluice_error *e)
{
    t->eog_bits = sl_alloc(t->budget, t->vocab.n / 8 + 1, 1);
    if (t->eog_bits == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the vocabulary");
    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) mark(t, control_id(t, names[i]));
    int32_t end = control_id(t, "<|end|>");
    if (end >= 0 && end_is_inner(t)) t->eog_bits[end / 8] &= (uint8_t) ~(1u << (end % 8));
    mark(t, v->eos_id);
    mark(t, v->eot_id);
    mark(t, v->eom_id);
    for (uint32_t i = 0; i < v->n_eog_ids; i++) mark(t, v->eog_ids[i]);
    return SLUICE_OK;
}
