/* What the files of the reader of Hugging Face folders share; nobody else includes this.
 *
 *   hf_model.c    open, close, families
 *   hf_config.c   config.json and generation_config.json to keys
 *   hf_rope.c     divisors of frequencies
 *   hf_check.c    whether config and tensors agree, and can be computed
 *   hf_tensors.c  names
 *   hf_rows.c     rows
 *   hf_deltanet.c what models with gated DeltaNet have: keys, order of heads
 *   hf_vocab.c    tokenizer.json to a vocabulary
 *   hf_spm.c      the same of a SentencePiece model
 *   hf_special.c  special tokens, template
 *   hf_pre.c      the pre-tokenizer by its expressions
 *   hf_meta.c     all of it as the metadata of a GGUF */
#ifndef SL_HF_INTERNAL_H
#define SL_HF_INTERNAL_H

#include "formats/gguf_internal.h"
#include "formats/hf_model.h"
#include "formats/json_in.h"

#define SL_HF_KEYS_MAX 48
#define SL_HF_CONFIG_MAX (4u << 20)      /* bytes of a config */
#define SL_HF_TOKENIZER_MAX (256u << 20) /* bytes of tokenizer.json */
#define SL_HF_TEMPLATE_MAX (1u << 20)    /* bytes of chat_template.jinja */

#define SL_HF_TRY(x)                                                                               \
    do {                                                                                           \
        sluice_err try_err = (x);                                                                  \
        if (try_err != SLUICE_OK) return try_err;                                                  \
    } while (0)

/* What a family's class in transformers does and a config need not say. */
struct sl_hf_family {
    const char *model_type;
    const char *arch;      /* in GGUF */
    double rope_theta;     /* default */
    double norm_eps;       /* default */
    bool moe;              /* has experts in every model */
    bool permuted;         /* GGUF files hold rows of q and k in pairs (RoPE of neighbours) */
    bool llama_keys;       /* vocab_size and rope.dimension_count are written */
    bool granite;          /* multipliers; head_dim is no setting */
    bool norm_topk;        /* norm_topk_prob, where the config does not say */
    bool norm_topk_reader; /* what a reader of GGUF takes where the key is absent */
    bool qkv_bias;         /* where the config does not say */
    bool deltanet; /* most layers are gated DeltaNet, attention is gated, norms are of 1 + w */
    bool tiled;    /* GGUF files hold value heads in another order */
    bool mrope;    /* rope.dimension_sections is written */
    bool nested;   /* the language model stands in text_config, its tensors below another name */
};

struct sl_hf {
    struct sl_budget *budget;
    const struct sl_hf_family *family;
    char *folder; /* ends with a slash */
    struct sl_json *config, *generation, *tokenizer, *tokenizer_config;
    struct sl_json_value text; /* what config.json says about the language model */
    struct sl_st *st;
    struct sl_arena arena;
    struct sl_hf_key keys[SL_HF_KEYS_MAX];
    uint32_t n_keys;
    struct sl_hf_tensor *tensors;
    uint64_t tensors_capacity;
    uint32_t n_tensors;
    const float *rope_factors; /* of Llama 3's scaling; NULL: none */
    uint32_t n_rope_factors;
    struct sl_hf_left_out left_out[SL_HF_EXTRAS];
    bool has_vocab;
    struct sl_vocab vocab;
};

/* A path in the folder. Owner: hf's arena. NULL: no memory. */
char *sl_hf_path(struct sl_hf *hf, const char *name);
/* SLUICE_E_NOMEM or SLUICE_E_BUDGET after an allocation of bytes failed. */
sluice_err sl_hf_no_memory(const struct sl_hf *hf, uint64_t bytes, sluice_error *e);
/* "<folder><file>: <sentence>". Returns code. */
sluice_err sl_hf_fail(const struct sl_hf *hf, const char *file, sluice_error *e, sluice_err code,
                      const char *fmt, ...) SL_PRINTF(5, 6);

/* Members of an object that may be absent or null: *out is left alone then. A wrong kind or range
 * is SLUICE_E_FORMAT. file is for messages. */
struct sl_hf_object {
    const struct sl_hf *hf;
    const char *file;
    struct sl_json_value value;
    sluice_error *e;
};
bool sl_hf_has(const struct sl_hf_object *o, const char *key);
SL_MUST_CHECK sluice_err sl_hf_u32(const struct sl_hf_object *o, const char *key, uint32_t *out);
SL_MUST_CHECK sluice_err sl_hf_f64(const struct sl_hf_object *o, const char *key, double *out);
SL_MUST_CHECK sluice_err sl_hf_bool(const struct sl_hf_object *o, const char *key, bool *out);
SL_MUST_CHECK sluice_err sl_hf_str(const struct sl_hf_object *o, const char *key,
                                   struct sl_str *out);

/* Which block of weights has one scale; *quantized false: none has. Refuses every other form of
 * quantization that config.json names. */
SL_MUST_CHECK sluice_err sl_hf_quantization(const struct sl_hf *hf, struct sl_st_block *block,
                                            bool *quantized, sluice_error *e);
/* Opens tokenizer.json, which must be there, and tokenizer_config.json. */
SL_MUST_CHECK sluice_err sl_hf_open_tokenizer(struct sl_hf *hf, sluice_error *e);
SL_MUST_CHECK sluice_err sl_hf_make_keys(struct sl_hf *hf, sluice_error *e);
/* Keys of the architecture; of a list the values must live as long as hf. */
SL_MUST_CHECK sluice_err sl_hf_add_u32(struct sl_hf *hf, const char *suffix, uint32_t v,
                                       sluice_error *e);
SL_MUST_CHECK sluice_err sl_hf_add_list(struct sl_hf *hf, const char *suffix,
                                        struct sl_hf_list list, sluice_error *e);
/* Keys that models with gated DeltaNet have besides, RoPE's sections among them. */
SL_MUST_CHECK sluice_err sl_hf_deltanet_keys(struct sl_hf *hf, const struct sl_hf_object *config,
                                             const struct sl_hf_object *rope);
/* Llama 3's scaling: fills hf's rope_factors. */
SL_MUST_CHECK sluice_err sl_hf_rope_factors(struct sl_hf *hf, const struct sl_hf_object *rope,
                                            double theta);
SL_MUST_CHECK sluice_err sl_hf_make_tensors(struct sl_hf *hf, sluice_error *e);
/* How the heads of a DeltaNet layer lie in a tensor of transformers. */
enum sl_hf_heads {
    SL_HF_JOINT_QKV,  /* group by group: query, key, values, gates of values; wanted are all but */
    SL_HF_JOINT_GATE, /* the gates, or only these */
    SL_HF_HEADS_QKV,  /* rows: all queries, all keys, all values */
    SL_HF_HEADS_ROWS, /* rows: values */
    SL_HF_HEADS_ONE,  /* rows, or the elements of a vector: one a value head */
    SL_HF_HEADS_COLS, /* columns: values */
};
/* Makes t, which has s's shape, what GGUF files have. SLUICE_E_FORMAT: not the heads of the keys.
 */
SL_MUST_CHECK sluice_err sl_hf_order_heads(struct sl_hf *hf, enum sl_hf_heads heads,
                                           const struct sl_st_tensor *s, struct sl_hf_tensor *t,
                                           sluice_error *e);
/* "tensor 'NAME' <what>". Returns code. */
sluice_err sl_hf_fail_tensor(const struct sl_hf *hf, struct sl_str name, sluice_error *e,
                             sluice_err code, const char *what);
/* SLUICE_E_UNSUPPORTED or SLUICE_E_FORMAT, with the member that is not to be met: after the keys,
 * and after the tensors. */
SL_MUST_CHECK sluice_err sl_hf_check_config(const struct sl_hf *hf, sluice_error *e);
SL_MUST_CHECK sluice_err sl_hf_check_tensors(const struct sl_hf *hf, sluice_error *e);
/* The parts of a merge, which is an array of two or one text with a space. */
SL_MUST_CHECK sluice_err sl_hf_merge(const struct sl_hf *hf, struct sl_json_value v,
                                     struct sl_str parts[2], sluice_error *e);
/* Makes v, whose texts and kinds are there, the vocabulary of a SentencePiece model. kinds are
 * v's. */
SL_MUST_CHECK sluice_err sl_hf_read_spm(struct sl_hf *hf, struct sl_vocab *v, uint8_t *kinds,
                                        sluice_error *e);
/* Special ids, flags and the chat template. */
SL_MUST_CHECK sluice_err sl_hf_read_special(struct sl_hf *hf, struct sl_vocab *v, sluice_error *e);
/* GGUF's name for tokenizer.json's pre-tokenizer, or an empty string. */
struct sl_str sl_hf_pre_name(const struct sl_hf *hf);
/* A u32 key of the architecture, or fallback. */
uint32_t sl_hf_arch_u32(const struct sl_hf *hf, const char *suffix, uint32_t fallback);

#endif
