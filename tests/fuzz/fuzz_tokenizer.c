/* Fuzz target: a vocabulary and a text made from the input. Encoding must not crash, loop or leak,
 * whatever the vocabulary; with all bytes present and no normalization the ids must stand for the
 * text again; and taking the text through the streaming decoder gives the same bytes.
 *
 * Input: byte 0 chooses model and pre-tokenizer, byte 1 the flags, byte 2 the number of words; then
 * words (a byte with kind and length, then their bytes); the rest is the text. */
#include <stdint.h>
#include <stdlib.h>

#include "engine/text/tokenizer_internal.h"
#include "tests/support/vocab_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct vocab_build build; /* too large for the stack */
static float scores[VB_TOKENS_MAX];

static void require(bool holds)
{
    if (!holds) abort();
}

struct input {
    const uint8_t *p;
    size_t n;
};

static uint8_t take(struct input *in)
{
    if (in->n == 0) return 0;
    in->n--;
    return *in->p++;
}

/* A word of the input as a token: raw, or in byte-level form with a merge that builds it. */
static void add_word(struct input *in, bool byte_level, bool ranked)
{
    uint8_t head = take(in);
    size_t n = head & 15;
    enum sl_token_kind kind = (enum sl_token_kind)((head >> 4) % 7);
    if (n > in->n) n = in->n;
    scores[build.v.n_tokens] = (float)(head % 13) - 6;
    if (byte_level && kind == SL_TOKEN_NORMAL && n >= 2) {
        char word[16];
        for (size_t i = 0; i < n; i++) word[i] = (char)(in->p[i] == 0 ? 1 : in->p[i]);
        word[n] = '\0';
        vb_word(&build, word);
    } else {
        vb_add(&build, (struct sl_str){(const char *)in->p, n}, kind);
        if (ranked && n >= 2) vb_merge(&build, (const char *)in->p, n);
    }
    in->p += n;
    in->n -= n;
}

static void build_vocab(struct input *in, uint8_t model)
{
    uint32_t pre = model % (pretok_n_kinds + 3);
    bool spm = pre >= pretok_n_kinds, ranked = pre == pretok_n_kinds + 2;
    vb_begin(&build, spm ? "default" : pretok_kinds[pre].name);
    if (spm) {
        build.v.model = ranked ? SL_STR("gemma4") : SL_STR("llama");
        build.v.scores = scores;
        build.v.unk_id = 0;
        build.v.add_space_prefix = pre == pretok_n_kinds ? 0 : -1;
        for (unsigned i = 0; i < 256; i++) {
            char *name = build.blob + build.n_blob;
            snprintf(name, 8, "<0x%02X>", i);
            build.n_blob += 8;
            build.tokens[i] = (struct sl_str){name, 6};
            build.kinds[i] = SL_TOKEN_BYTE;
        }
    }
    for (unsigned n = take(in) % 64; n > 0 && in->n > 0; n--) add_word(in, !spm, ranked);
    build.v.bos_id = (int32_t)build.v.n_tokens - 1;
    build.v.eos_id = 10;
}

/* The ids stand for the text: piece by piece, and through the decoder. */
static void check_decoding(const struct sl_tokenizer *t, const struct sl_ids *ids,
                           struct input text)
{
    struct sl_detok d;
    sl_detok_init(&d, t, true);
    size_t max = sl_detok_max(t), at = 0;
    char *buf = malloc(max);
    require(buf != NULL);
    for (uint64_t i = 0; i <= ids->count; i++) {
        size_t n = i < ids->count ? sl_detok_push(&d, ids->ids[i], buf, max)
                                  : sl_detok_flush(&d, buf, max);
        require(n <= text.n - at && memcmp(buf, text.p + at, n) == 0);
        at += n;
    }
    require(at == text.n);
    free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct sl_budget budget;
    struct sl_tokenizer *t;
    sluice_error e;
    sl_budget_init(&budget, (uint64_t)256 << 20);
    uint8_t model = take(&in), flags = take(&in);
    build_vocab(&in, model);
    if (sl_tokenizer_open(&build.v, &budget, &e, &t) == SLUICE_OK) {
        struct sl_ids ids = {.budget = &budget};
        struct sl_str text = {(const char *)in.p, in.n};
        sluice_err err = sl_tokenizer_encode(t, text, flags & 3, &ids, &e);
        require(err == SLUICE_OK);
        for (uint64_t i = 0; i < ids.count; i++)
            require(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < sl_tokenizer_size(t));
        if (!t->is_spm && !t->nfc && (flags & 2) == 0) check_decoding(t, &ids, in);
        sl_ids_deinit(&ids);
        sl_tokenizer_close(t);
    }
    require(atomic_load(&budget.used_bytes) == 0);
    return 0;
}
