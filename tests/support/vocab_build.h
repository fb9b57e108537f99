/* Small byte-level vocabularies for tests: all 256 bytes (id = byte), then tokens given as bytes,
 * with the merges that build them up from the left. Owner: the caller's struct; static storage is
 * not used. */
#ifndef SL_TEST_VOCAB_BUILD_H
#define SL_TEST_VOCAB_BUILD_H

#include <stdio.h>
#include <string.h>

#include "formats/vocab.h"

#define VB_TOKENS_MAX 1024
#define VB_BLOB_BYTES 65536

struct vocab_build {
    char blob[VB_BLOB_BYTES];
    size_t n_blob;
    struct sl_str tokens[VB_TOKENS_MAX], merges[VB_TOKENS_MAX];
    uint8_t kinds[VB_TOKENS_MAX];
    struct sl_vocab v;
};

/* The printable form of a byte, as UTF-8, at out. Returns its length. */
static inline size_t vb_byte(unsigned b, char *out)
{
    unsigned point = b;
    if (b <= 0x20) point = 0x100 + b;
    if (b >= 0x7f && b <= 0xa0) point = 0x121 + (b - 0x7f);
    if (b == 0xad) point = 0x143;
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    out[0] = (char)(0xc0 | point >> 6);
    out[1] = (char)(0x80 | (point & 0x3f));
    return 2;
}

/* The printable form of bytes, kept in the blob. */
static inline struct sl_str vb_text(struct vocab_build *b, const char *bytes, size_t n)
{
    struct sl_str s = {b->blob + b->n_blob, 0};
    for (size_t i = 0; i < n; i++)
        s.n += vb_byte((unsigned char)bytes[i], b->blob + b->n_blob + s.n);
    b->n_blob += s.n;
    return s;
}

static inline int32_t vb_add(struct vocab_build *b, struct sl_str text, enum sl_token_kind kind)
{
    b->tokens[b->v.n_tokens] = text;
    b->kinds[b->v.n_tokens] = (uint8_t)kind;
    return (int32_t)b->v.n_tokens++;
}

/* A token for these bytes and the merge of all but the last byte with the last. */
static inline int32_t vb_word(struct vocab_build *b, const char *bytes)
{
    size_t n = strlen(bytes);
    struct sl_str merge = {b->blob + b->n_blob, 0};
    merge.n = vb_text(b, bytes, n - 1).n;
    b->blob[b->n_blob++] = ' ';
    merge.n += 1 + vb_text(b, bytes + n - 1, 1).n;
    b->merges[b->v.n_merges++] = merge;
    return vb_add(b, vb_text(b, bytes, n), SL_TOKEN_NORMAL);
}

/* The merge of all but the last byte of a raw text with the last. */
static inline void vb_merge(struct vocab_build *b, const char *text, size_t n)
{
    char *p = b->blob + b->n_blob;
    memcpy(p, text, n - 1);
    p[n - 1] = ' ';
    p[n] = text[n - 1];
    b->n_blob += n + 1;
    b->merges[b->v.n_merges++] = (struct sl_str){p, n + 1};
}

static inline void vb_begin(struct vocab_build *b, const char *pre)
{
    memset(b, 0, sizeof *b);
    b->v = (struct sl_vocab){
        .model = SL_STR("gpt2"),
        .tokens = b->tokens,
        .kinds = b->kinds,
        .merges = b->merges,
        .bos_id = -1,
        .eos_id = -1,
        .eot_id = -1,
        .eom_id = -1,
        .unk_id = -1,
        .pad_id = -1,
        .sep_id = -1,
        .add_bos = -1,
        .add_eos = -1,
        .add_space_prefix = -1,
        .remove_extra_whitespaces = -1,
    };
    b->v.pre = (struct sl_str){pre, strlen(pre)};
    for (unsigned i = 0; i < 256; i++) {
        char c = (char)i;
        vb_add(b, vb_text(b, &c, 1), SL_TOKEN_NORMAL);
    }
}

#endif
