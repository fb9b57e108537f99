/* The pre-tokenizer of a tokenizer.json by what it does: its expressions, whether digits stand
 * alone, whether text is normalized to NFC first. A description that is not known to the letter has
 * no name: a tokenizer that splits almost the same gives other ids without a word.
 *
 * The expressions are those of the models' own files; docs/TOKENIZERS.md says what each name
 * means. */
#include <string.h>

#include "formats/hf_internal.h"

#define STEPS_MAX 3

#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2 SUFFIX "|" WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL
#define LLAMA3 SUFFIX "|" WORD "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL
#define QWEN35                                                                                     \
    SUFFIX                                                                                         \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL

/* What a pre-tokenizer does before it writes bytes as characters. */
struct description {
    bool nfc;
    bool digits;        /* each digit alone */
    bool gpt2;          /* GPT-2's expression, which is built into the byte-level step */
    bool ignore_merges; /* a word that is a token is one token */
    const char *regex;  /* an expression that splits, or NULL */
};

struct known {
    const char *name;
    struct description d;
};

static const struct known known[] = {
    {"qwen2", {.nfc = true, .regex = QWEN2}},
    {"stablelm2", {.regex = QWEN2}},
    {"qwen35", {.nfc = true, .regex = QWEN35}},
    {"llama-bpe", {.ignore_merges = true, .regex = LLAMA3}},
    {"dbrx", {.regex = LLAMA3}},
    {"gpt-2", {.gpt2 = true}},
    {"olmo", {.nfc = true, .gpt2 = true}},
    {"smollm", {.digits = true, .gpt2 = true}},
};

/* What is found, and whether all of it was understood. */
struct found {
    struct description d;
    struct sl_str regex;
    bool bytes; /* the byte-level step has come; nothing may follow it */
    bool odd;
};

static bool flag(struct sl_json_value v, const char *key, bool fallback)
{
    bool b = fallback;

    (void)sl_json_bool(sl_json_get(v, key), &b);
    return b;
}

static bool member_is(struct sl_json_value v, const char *key, const char *wanted)
{
    struct sl_str s = {"", 0};

    return sl_json_str(sl_json_get(v, key), &s) && sl_str_eq(s, wanted);
}

static void read_normalizer(struct sl_json_value v, struct found *f)
{
    struct sl_json_walk w = sl_json_walk(sl_json_get(v, "normalizers"));

    if (sl_json_kind_of(v) <= SL_JSON_NULL) return;
    if (!member_is(v, "type", "Sequence")) {
        f->d.nfc = member_is(v, "type", "NFC");
        f->odd = f->odd || !f->d.nfc;
        return;
    }
    while (sl_json_step(&w)) {
        f->d.nfc = member_is(w.value, "type", "NFC");
        f->odd = f->odd || !f->d.nfc;
    }
}

static void read_step(struct sl_json_value v, struct found *f)
{
    struct sl_json_value regex = sl_json_get(sl_json_get(v, "pattern"), "Regex");
    bool understood = false;

    if (f->bytes) {
        f->odd = true;
    } else if (member_is(v, "type", "ByteLevel")) {
        f->bytes = true;
        f->d.gpt2 = flag(v, "use_regex", true);
        understood = !flag(v, "add_prefix_space", true);
    } else if (member_is(v, "type", "Digits")) {
        understood = f->regex.n == 0 && !f->d.digits && flag(v, "individual_digits", false);
        f->d.digits = true;
    } else if (member_is(v, "type", "Split")) {
        understood = f->regex.n == 0 && !f->d.digits && sl_json_str(regex, &f->regex) &&
                     member_is(v, "behavior", "Isolated") && !flag(v, "invert", true);
    }
    f->odd = f->odd || !understood;
}

static bool same(const struct found *f, const struct description *d)
{
    bool regex = d->regex != NULL ? sl_str_eq(f->regex, d->regex) : f->regex.n == 0;

    return regex && f->d.nfc == d->nfc && f->d.digits == d->digits && f->d.gpt2 == d->gpt2 &&
           f->d.ignore_merges == d->ignore_merges;
}

struct sl_str sl_hf_pre_name(const struct sl_hf *hf)
{
    struct sl_json_value root = sl_json_root(hf->tokenizer);
    struct sl_json_value pre = sl_json_get(root, "pre_tokenizer");
    struct sl_json_walk w = sl_json_walk(sl_json_get(pre, "pretokenizers"));
    struct found f = {.regex = {"", 0}};

    read_normalizer(sl_json_get(root, "normalizer"), &f);
    if (!member_is(pre, "type", "Sequence")) read_step(pre, &f);
    for (int steps = 0; sl_json_step(&w); steps++) {
        f.odd = f.odd || steps == STEPS_MAX;
        read_step(w.value, &f);
    }
    f.d.ignore_merges = flag(sl_json_get(root, "model"), "ignore_merges", false);
    for (size_t i = 0; i < SL_ARRAY_LEN(known) && f.bytes && !f.odd; i++) {
        const char *name = known[i].name;

        if (!same(&f, &known[i].d)) continue;
        /* The same steps under the name that Granite's files have. */
        if (hf->family->granite && strcmp(name, "smollm") == 0) name = "refact";
        return (struct sl_str){name, strlen(name)};
    }
    return (struct sl_str){"", 0};
}
