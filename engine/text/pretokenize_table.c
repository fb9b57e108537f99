/* The pre-tokenizers by name: which expressions, in which order, and what else their tokenizers do.
 *
 * The expressions are those of the published tokenizer.json files (docs/TOKENIZERS.md says whose),
 * with one change: \s is written out as Unicode's White_Space, since PCRE2's \s also has U+180E.
 * Where two spellings mean the same, the one that takes linear time on every text was chosen; the
 * comment there says so. A name that stands here is known to split like that; a name whose
 * expressions are not certain does not stand here. */
#include "engine/text/tokenizer_internal.h"

/* For use within brackets. */
#define WS                                                                                         \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"
#define SPACE     "[" WS "]"
#define NOT_SPACE "[^" WS "]"

/* Runs of white space: up to the last line break; all but the last character before a word; the
 * rest. */
#define BLANKS           SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define LINES_AND_BLANKS SPACE "*[\\r\\n]+|" BLANKS

#define SUFFIX      "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define PUNCTUATION " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*"

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" BLANKS
#define LLAMA3 SUFFIX "|" WORD "|\\p{N}{1,3}|" PUNCTUATION "|" LINES_AND_BLANKS
#define QWEN2  SUFFIX "|" WORD "|\\p{N}|" PUNCTUATION "|" LINES_AND_BLANKS
#define QWEN35                                                                                     \
    SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"                                        \
           " ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_BLANKS
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|" WORD "|\\p{N}|" PUNCTUATION "|" SPACE "*[\\r\\n]|" BLANKS
#define SEED_CODER                                                                                 \
    SUFFIX "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES_AND_BLANKS

/* Words that end in lower case, then words in upper case. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix)                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|"                                        \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix
#define PUNCTUATION_SLASH " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*"
#define GPT4O             CASED(SUFFIX "?") "|\\p{N}{1,3}|" PUNCTUATION_SLASH "|" LINES_AND_BLANKS
#define TEKKEN            CASED("") "|\\p{N}|" PUNCTUATION_SLASH "|" LINES_AND_BLANKS

#define DEEPSEEK_V3_CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK_V3_WORDS                                                                          \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_AND_BLANKS

/* The alphabetic scripts with case, as the first DeepSeek tokenizers list them. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\xb5\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"            \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"          \
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"                 \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"                     \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}"                 \
    "\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                 \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}"         \
    "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"                           \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"                 \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                  \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                           \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"         \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}"                  \
    "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                 \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"                 \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"         \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_MARKS                                                                             \
    "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"
#define DEEPSEEK_CJK "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
/* White space at the end of the piece. The original, \s+$, tries every start of every run; this
 * finds the same in one pass. */
#define TRAILING_BLANKS "(?<!" SPACE ")" SPACE "++\\z"

const struct pretok_kind pretok_kinds[] = {
    {"qwen2", "deepseek-r1-qwen kormo f2llmv2 megrez", {QWEN2}, PRETOK_NFC},
    {"qwen35", "", {QWEN35}, PRETOK_NFC},
    {"llama-bpe",
     "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {LLAMA3},
     PRETOK_IGNORE_MERGES | PRETOK_ADD_BOS},
    {"dbrx", "smaug-bpe", {LLAMA3}, 0},
    {"glm4", "chatglm-bpe", {LLAMA3}, 0},
    {"gpt-4o", "llama4 kanana2 talkie minimax-m2", {GPT4O}, PRETOK_IGNORE_MERGES},
    {"tekken", "", {TEKKEN}, PRETOK_IGNORE_MERGES | PRETOK_ADD_BOS},
    {"deepseek-v3",
     "hunyuan-dense joyai-llm",
     {"\\p{N}{1,3}", DEEPSEEK_V3_CJK, DEEPSEEK_V3_WORDS},
     0},
    {"deepseek-llm",
     "",
     {"[\\r\\n]", SPACE "?[" DEEPSEEK_LETTERS "]+", SPACE "?[" DEEPSEEK_MARKS "]+", TRAILING_BLANKS,
      DEEPSEEK_CJK, "\\p{N}+"},
     0},
    {"deepseek-coder",
     "",
     {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"},
     0},
    {"gpt-2",
     "phi-2 gigachat a.x-4.0 mellum exaone4 modern-bert jina-es jina-de jina-v2-es jina-v2-de",
     {GPT2},
     0},
    {"olmo", "", {GPT2}, PRETOK_NFC},
    {"mpt", "", {GPT2}, PRETOK_NFC},
    {"jais", "trillion granite-docling", {GPT2}, 0},
    {"smollm", "", {"\\p{N}", GPT2}, 0},
    {"starcoder", "refact codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}, 0},
    {"command-r", "", {"\\p{N}", GPT2}, PRETOK_NFC},
    {"stablelm2", "hunyuan solar-open grok-2", {QWEN2}, 0},
    {"laguna", "", {"[^\\n]+|\\n+", QWEN2}, 0},
    {"bailingmoe", "bailingmoe2 llada-moe", {BAILING}, 0},
    {"seed-coder", "", {SEED_CODER}, 0},
    {"falcon", "", {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}, 0},
    {"default", "", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, 0},
};
const uint32_t pretok_n_kinds = SL_ARRAY_LEN(pretok_kinds);
