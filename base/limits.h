/* Every fixed limit of Sluice, in one place, with its unit. A file that exceeds one is refused with
 * a sentence; code may size arrays by them. */
#ifndef SL_LIMITS_H
#define SL_LIMITS_H

#define SL_THREADS_MAX 64         /* compute threads, the driver included */
#define SL_LAYERS_MAX 512         /* layers of a model */
#define SL_EXPERTS_MAX 1024       /* routed experts of a layer */
#define SL_TOP_K_MAX 64           /* experts chosen for one token in one layer */
#define SL_HEADS_MAX 512          /* query heads of a layer */
#define SL_HEAD_DIM_MAX 1024      /* elements of one key or value head */
#define SL_CONV_TAPS_MAX 8        /* tokens that a convolution looks at, its own included */
#define SL_COLS_MAX (1u << 20)    /* elements of one weight row */
#define SL_ROWS_MAX (1u << 24)    /* rows of one weight matrix */
#define SL_VOCAB_MAX (1u << 22)   /* tokens of a vocabulary */
#define SL_CONTEXT_MAX (1u << 22) /* tokens of a context */
#define SL_CHUNK_MAX 512          /* tokens that go through a layer together */

#define SL_GGUF_KV_MAX (1u << 16)      /* metadata entries of one file */
#define SL_GGUF_TENSORS_MAX (1u << 18) /* tensors of one model, over all its shards */
#define SL_GGUF_SHARDS_MAX 1024        /* files of a split model */
#define SL_GGUF_ALIGN_MAX (1u << 20)   /* bytes; general.alignment is a power of two up to this */
#define SL_GGUF_ARRAY_DEPTH_MAX 4      /* arrays within arrays */
#define SL_NAME_MAX 256                /* bytes of a key or a tensor name */

_Static_assert(SL_TOP_K_MAX <= SL_EXPERTS_MAX, "nobody can choose more experts than there are");

#endif
