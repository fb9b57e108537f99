/* Models as Hugging Face folders hold them, described as a GGUF file of them would: metadata keys
 * and values, tensors under their GGUF names in GGUF's layout, the vocabulary. So whoever can use a
 * GGUF can use a folder. What the keys and the layout are is what llama.cpp's converter writes
 * (convert_hf_to_gguf.py); tests/golden/safetensors holds its output to compare with.
 *
 * Read are config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
 * chat_template.jinja and the weights (safetensors.h). Families: qwen3_moe, qwen2_moe, olmoe,
 * mixtral, granitemoe, granitemoeshared, llama, qwen3, qwen3_next, qwen3_5_moe_text, qwen3_5_moe
 * (whose text_config describes the language model).
 *
 * Nothing is guessed and nothing is left out in silence: an unknown family, activation, scaling of
 * RoPE or quantization, a tensor without a place and a missing expert are errors that name them.
 * Left out, and counted (sl_hf_left_out), are a vision tower and layers that predict more than the
 * next token. Where a config is silent, the value is the default of the family's class in
 * transformers.
 *
 * Where this differs from the converter, on purpose: the RMS epsilon of OLMoE is the config's; keys
 * expert_weights_norm and attention.clamp_kqv are given where the config departs from what readers
 * of GGUF assume; a sliding window that is in effect is given.
 *
 * Errors: SLUICE_E_FORMAT, SLUICE_E_UNSUPPORTED, SLUICE_E_LIMIT, SLUICE_E_NOT_FOUND (of a file that
 * is needed), and those of the readers below.
 * Thread: open, close and the first sl_hf_vocab on one thread; look-ups are pure, rows may be read
 * from many threads. */
#ifndef SL_HF_MODEL_H
#define SL_HF_MODEL_H

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/vocab.h"

struct sl_hf;

struct sl_hf_key {
    struct sl_str name;     /* "qwen3moe.block_count" */
    enum sl_gguf_kind kind; /* U32, I32, F32, BOOL, STRING, or ARRAY: of I32 */
    union {
        uint32_t u32;
        int32_t i32;
        float f32;
        bool flag;
        struct sl_str str;
        struct sl_hf_list {
            const int32_t *v;
            uint32_t n;
        } list;
    };
};

/* Rows of a tensor that lie in pieces elsewhere in their source: piece p begins at row
 * first + step_inner * (p % inner) + step_outer * (p / inner). */
struct sl_hf_run {
    uint64_t rows;  /* of the tensor; the next run's follow */
    uint64_t piece; /* rows that stay together */
    uint64_t first, inner, step_inner, step_outer;
};

/* What becomes of a value. */
enum sl_hf_value { SL_HF_AS_IS, SL_HF_PLUS_ONE, SL_HF_MINUS_EXP };

/* Where the rows of a tensor lie, for sl_hf_read_rows. */
struct sl_hf_source {
    const float *values;   /* computed from the config, not in the files; NULL: in the files */
    const uint32_t *parts; /* [n_parts] tensors of the safetensors; one a matrix, or one for all */
    uint32_t n_parts;
    uint32_t heads;     /* rows are permuted within each of so many heads; 0: they are not */
    uint64_t first_row; /* in a source that holds several tensors side by side */
    uint64_t step_rows; /* from matrix to matrix, where one source holds all */
    const struct sl_hf_run *runs; /* NULL: rows lie one after another */
    uint32_t n_runs;
    /* Columns: heads lie group after group, and are wanted first of each group, second of each, and
     * so on. 0: they are not moved. */
    uint32_t groups, per_group;
    enum sl_hf_value value;
};

struct sl_hf_tensor {
    struct sl_str name; /* "blk.0.attn_q.weight" */
    uint32_t n_dims;    /* 1..3 */
    uint64_t dims[4];   /* as in GGUF: columns, rows, matrices; unused ones are 1 */
    enum sl_st_dtype dtype;
    struct sl_hf_source source;
};

/* folder holds config.json and weights. */
SL_MUST_CHECK sluice_err sl_hf_open(const char *folder, struct sl_budget *b, sluice_error *e,
                                    struct sl_hf **out);
void sl_hf_close(struct sl_hf *hf); /* NULL is fine */

const struct sl_st *sl_hf_weights(const struct sl_hf *hf);

/* general.architecture first; then the keys of the architecture and of sampling. find: NULL where
 * there is none. */
uint32_t sl_hf_n_keys(const struct sl_hf *hf);
const struct sl_hf_key *sl_hf_key(const struct sl_hf *hf, uint32_t index);
const struct sl_hf_key *sl_hf_find_key(const struct sl_hf *hf, const char *name);

/* Embedding, final norm, output matrix if there is one, then layer by layer. */
uint32_t sl_hf_n_tensors(const struct sl_hf *hf);
const struct sl_hf_tensor *sl_hf_tensor(const struct sl_hf *hf, uint32_t index);

/* Tensors of the files that are no part of the model as it is run. */
enum sl_hf_extra { SL_HF_VISION, SL_HF_PREDICTION, SL_HF_EXTRAS };
struct sl_hf_left_out {
    uint32_t n;
    uint64_t bytes;
};
struct sl_hf_left_out sl_hf_left_out(const struct sl_hf *hf, enum sl_hf_extra extra);

/* Rows first .. first + n - 1 of t, counted through all its matrices, as out[n * dims[0]]. Takes no
 * memory. Rows past the end are an assertion; errors are those of sl_st_read_rows. */
SL_MUST_CHECK sluice_err sl_hf_read_rows(const struct sl_hf *hf, const struct sl_hf_tensor *t,
                                         uint64_t first, uint64_t n, float *out, sluice_error *e);

/* The vocabulary of tokenizer.json (byte-level BPE, or a SentencePiece model as transformers writes
 * it, whose scores are made up in their order), with what tokenizer_config.json,
 * generation_config.json, config.json and chat_template.jinja say about it. Views live as long as
 * hf. SLUICE_E_NOT_FOUND without tokenizer.json; SLUICE_E_UNSUPPORTED for another kind of tokenizer
 * and for a pre-tokenizer that is not known by its expressions. */
SL_MUST_CHECK sluice_err sl_hf_vocab(struct sl_hf *hf, struct sl_vocab *out, sluice_error *e);

/* Keys and vocabulary as the metadata of a GGUF without tensors and without a file. It points into
 * hf, so it is closed first. A folder without tokenizer.json gives metadata without a vocabulary;
 * other errors are those of sl_hf_vocab. Thread: as sl_hf_vocab. */
SL_MUST_CHECK sluice_err sl_hf_metadata(struct sl_hf *hf, struct sl_budget *b, sluice_error *e,
                                        struct sl_gguf **out);

#endif
