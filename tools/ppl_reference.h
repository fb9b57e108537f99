/* Reference runs of ppl: a file that --save-logits writes and --kl compares with. docs/FORMAT.md
 * specifies it.
 *
 * It holds the tokens, the method, and for each scored token the distribution that a model gave it,
 * in about two bytes for each token of the vocabulary. Both ways take one distribution at a time,
 * so that memory does not grow with the text. Nothing in a file is believed: sizes follow from its
 * header and have to be those of the file, and a checksum runs along. */
#ifndef CLI_PPL_REFERENCE_H
#define CLI_PPL_REFERENCE_H

#include <stdio.h>

#include "tools/out_file.h"
#include "tools/ppl_method.h"
#include "tools/ppl_score.h"
#include "tools/text.h"

#define CLI_REFERENCE_MODEL 256 /* bytes of the model's description, NUL included */

/* One step of the checksum that reference runs use. It can be undone, so a change of a single word
 * always shows. */
static inline uint64_t cli_reference_sum(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    return sum ^ sum >> 32;
}

/* What a file says before its distributions. */
struct cli_reference_head {
    struct cli_method method;
    uint32_t n_vocab;
    uint64_t vocabulary; /* cli_reference_sum of all tokens' texts, to tell vocabularies apart */
    uint64_t text_bytes; /* bytes of text that the scored tokens stand for; 0: unknown */
    struct cli_ids ids;  /* the text, without BOS */
    char model[CLI_REFERENCE_MODEL];
};

struct cli_reference_writer {
    struct cli_out_file file;
    struct cli_coded coded;
    uint64_t sum;
    size_t codes_bytes; /* padding included */
};

/* Return 0, or -1 with a message printed. head is only read. close in any case; without a commit
 * before it nothing is left. */
int cli_reference_create(struct cli_reference_writer *writer, const char *name,
                         const struct cli_reference_head *head);
int cli_reference_put(struct cli_reference_writer *writer, const struct cli_prediction *prediction);
int cli_reference_commit(struct cli_reference_writer *writer);
void cli_reference_abandon(struct cli_reference_writer *writer);

/* Bytes of a file with this head. */
uint64_t cli_reference_bytes(const struct cli_reference_head *head);

struct cli_reference_reader {
    FILE *stream;
    const char *name; /* borrowed */
    struct cli_reference_head head;
    struct cli_coded coded; /* the distribution read last */
    uint64_t sum, read;     /* distributions so far */
    size_t codes_bytes;
};

/* Return 0, or -1 with a message printed; close in any case. */
int cli_reference_open(struct cli_reference_reader *reader, const char *name);
int cli_reference_next(struct cli_reference_reader *reader);
void cli_reference_close(struct cli_reference_reader *reader);

#endif
