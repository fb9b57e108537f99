/* What the writer and the reader of trace files share: the framing of blocks, and the keys of the
 * header. docs/FORMAT.md says what they mean. */
#ifndef SL_TRACE_INTERNAL_H
#define SL_TRACE_INTERNAL_H

#include "formats/msgpack_io.h"
#include "formats/trace_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "arrays of numbers are written as they lie in memory");

/* A block: an array of its payload's bytes (a 32-bit number), the payload (bin with a 32-bit
 * length), and its sum (a 64-bit number). The length is there twice, so that a wrong one is told
 * from a file that was cut. */
#define SL_TF_MAGIC_BYTES 8u
#define SL_TF_HEAD_BYTES 11u /* before the payload */
#define SL_TF_TAIL_BYTES 9u  /* after it */
#define SL_TF_PAYLOAD_MAX 262144u

extern const unsigned char sl_tf_magic[SL_TF_MAGIC_BYTES];
void sl_tf_put_head(unsigned char *p, uint32_t payload_bytes);
void sl_tf_put_tail(unsigned char *p, uint64_t sum);

/* The most bytes of numbers that a record has beside its arrays. */
#define SL_TF_FIXED_MAX 160u
#define SL_TF_CHOICES_MAX ((uint64_t)SL_CHUNK_MAX * SL_TOP_K_MAX)
_Static_assert(SL_TF_CHOICES_MAX * 7 + SL_EXPERTS_MAX + SL_TF_FIXED_MAX <= SL_TF_PAYLOAD_MAX,
               "the largest layer record fits into a block");

/* Keys of the header whose value is a string, or a whole number up to max: where in struct
 * sl_trace_header it is. Others: version, n_slots, layers. */
struct sl_tf_key {
    const char *name;
    uint64_t max; /* 0: a string of SL_TRACE_TEXT; UINT32_MAX and less: a uint32_t; else uint64_t */
    size_t offset;
};
#define SL_TF_KEYS 20
extern const struct sl_tf_key sl_tf_keys[SL_TF_KEYS];

#define SL_TF_LAYER_NUMBERS 6 /* of a layer in the header */
#define SL_TF_MEASURED_ALL 63u
#define SL_TF_EXPONENT 0x7f800000u /* of float32: all ones where it is not finite */

/* ---- reading ------------------------------------------------------------------------------------
 */

struct sl_trace_reader {
    struct sl_trace_source source;
    int fd;              /* -1: the bytes come from elsewhere */
    bool own_fd;         /* it is to be closed */
    uint64_t at;         /* bytes taken so far */
    uint64_t block_at;   /* offset of the block under way */
    uint64_t lost_bytes; /* after the last whole block */
    bool ended, cut;
    struct sl_mp_reader mp; /* in payload */
    /* where the records are */
    bool in_eval;
    uint32_t n_tokens, next_layer;
    uint64_t last_ns, last_read_ns;
    sluice_error failure; /* code 0: none */
    char shown[256];      /* name, for messages */
    struct sl_trace_header header;
    /* arrays of the record under way: in the payload they lie at any address */
    float weights[SL_TF_CHOICES_MAX];
    float probabilities[SL_EXPERTS_MAX];
    uint16_t chosen[SL_TF_CHOICES_MAX];
    uint16_t experts[SL_EXPERTS_MAX];
    unsigned char payload[SL_TF_PAYLOAD_MAX];
};

/* The payload of the first block. Fills r->header, and r->failure where it returns an error. */
SL_MUST_CHECK sluice_err sl_tf_read_header(struct sl_trace_reader *r);
/* The next record of the payload; where it breaks the format, r->mp fails and says what was
 * wanted. */
void sl_tf_read_record(struct sl_trace_reader *r, struct sl_trace_record *out);

#endif
