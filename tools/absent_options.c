/* Options that people know from other programs and that Sluice does not have. Where an option asks
 * for what is done anyway it is taken, with a remark; each other one is an error with a sentence
 * that says why or what to use, never ignored. */
#include <string.h>

#include "tools/args.h"

struct absent {
    const char *names; /* separated and surrounded by a space */
    const char *advice;
};

static const struct absent table[] = {
    {" -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -mg --main-gpu -dev "
     "--device ",
     "Sluice computes on the CPU only; leave it out"},
    {" -ncmoe --n-cpu-moe -ot --override-tensor ",
     "experts are on the CPU already; leave it out, and give the memory with --ram"},
    {" --mlock ",
     "weights are read into memory, never locked; leave it out, and give the memory with --ram"},
    {" --mmap ",
     "weights are read into memory within --ram; --io mmap maps the experts, to compare with"},
    {" -dio --direct-io --odirect --odirect-zero-copy ",
     "experts are read past the page cache wherever the file system can; leave it out, or see "
     "--io"},
    {" -fit --fit -fitt --fit-target -fitc --fit-ctx ",
     "use --ram auto, or --ram SIZE: slots, context and chunk are chosen to fit"},
    {" -hf -hfr --hf-repo -hff --hf-file -hft --hf-token -mu --model-url -dr ",
     "Sluice downloads nothing; fetch the model yourself and name it with -m"},
    {" --grammar --grammar-file -j --json-schema -jf --json-schema-file ",
     "answers cannot be bound to a grammar yet; describe the form in the prompt"},
    {" --no-jinja ",
     "templates are recognized and built in; leave it out, or choose one with --chat-template"},
    {" --chat-template-file --chat-template-kwargs ",
     "templates are built in; choose one with --chat-template, and thinking with --think"},
    {" --no-think --nothink --enable-thinking --thinking --reasoning-format --reasoning-budget ",
     "use --think on, --think off, or --think show, which prints the thoughts too"},
    {" -fa --flash-attn ", "attention has one exact form here; leave it out"},
    {" --color --colors --simple-io --log-colors ",
     "the answer alone goes to standard output, without colour; leave it out"},
    {" --log-file --log-verbosity -lv --log-prefix --log-timestamps ",
     "messages go to standard error; use -v for more and 2>FILE to keep them"},
    {" --warmup ", "there is no warm-up run; leave it out"},
    {" --no-perf --perf --show-timings --no-show-timings ",
     "statistics go to standard error; silence them with -q"},
    {" -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll --numa ",
     "one thread count serves everything, and affinity is respected; use --threads, with taskset "
     "if "
     "need be"},
    {" --keep --context-shift ",
     "text is never dropped silently; give a larger --ctx-size, or use /clear in the chat"},
    {" --samplers --sampler-seq --sampling-seq --mirostat --mirostat-lr --mirostat-ent --typical "
     "--xtc-probability --xtc-threshold --dry-multiplier --dry-base --presence-penalty "
     "--frequency-penalty --dynatemp-range --dynatemp-exp --logit-bias -l ",
     "the samplers are --temp, --top-k, --top-p, --min-p and --repeat-penalty"},
    {" --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
     "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast ",
     "positions are encoded as the model file says; it cannot be overridden"},
    {" --override-kv ",
     "the file is used as it is; --experts-used N is there for fewer experts a token"},
    {" --check-tensors ",
     "a value that is no number is an error by itself, and 'sluice verify' checks a whole file"},
    {" --lora --lora-scaled --control-vector --mmproj --mmproj-url --image --audio ",
     "adapters, images and sound are not supported"},
    {" -md --model-draft --draft --draft-max --draft-min -cd ",
     "there is no draft model: a wider batch reads more experts, which costs more than it saves"},
    {" --prompt-cache --prompt-cache-all --prompt-cache-ro --slot-save-path ",
     "contexts are not stored in files yet"},
    {" --host --port --api-key --alias -a -np --parallel ", "there is no server yet"},
    {" -mli --multiline-input ", "in the chat, put text of several lines between two lines \"\"\""},
    {" --in-prefix --in-suffix --in-prefix-bos ",
     "turns are formed by the chat template; see --chat-template and --raw"},
    {" --cache-mb --cache-ceil-mb --cap --cache-experts --ssd-streaming-cache-experts ",
     "one number bounds all memory: --ram; --slots N sets the number of experts that are kept"},
    {" --moe-stream --ssd-streaming --expert-streaming --row-stream ",
     "experts that do not fit into --ram are streamed by themselves; leave it out"},
    {" --prefetch-experts --expert-prefetch --moe-prefetch ", "use --prefetch auto, off or forced"},
    {" --no-prefetch --no-prefetch-experts ", "use --prefetch off"},
    {" --defer-experts ",
     "computing goes on while experts are read, without an option; leave it out, or see "
     "--prefetch"},
    {" --top-experts --n-expert-used --expert-used-count --active-experts --moe-top-k ",
     "use --experts-used N"},
    {" --expert-hotlist --hotlist --pin --warm-experts ", "use --hot-list FILE"},
    {" --cache-bias --cache-aware --route-bias ", "use --sticky D or --sticky D:N"},
    {" --moe-trace --trace-experts ",
     "routing is not written out yet; -v and --json give figures of the cache"},
    {" --kl-divergence --kl-divergence-base ",
     "use sluice ppl: --save-logits FILE with one model, then --kl FILE with the other"},
    {" --quant --quantize --qtype --quant-type --outtype ",
     "weight types are chosen by sluice pack: --bits N, or by tensor --recipe FILE"},
    {" --ppl-stride ", "use --stride N, the tokens from one window to the next"},
    {" --ngen --max-tokens --num-predict ", "use -n"},
    {" --topp ", "use --top-p"},
    {" --topk ", "use --top-k"},
};

/* Taken with a remark. */
static const struct needless {
    const char *names; /* separated and surrounded by a space */
    const char *value; /* the one value with which it is needless; NULL: a flag */
    const char *text;
} needless[] = {
    {" -ngl --gpu-layers --n-gpu-layers ", "0", "needless; Sluice computes on the CPU only"},
    {" -nkvo --no-kv-offload ", NULL, "needless; Sluice computes on the CPU only"},
    {" -cmoe --cpu-moe ", NULL, "needless; experts are on the CPU already"},
    {" --no-mmap --no-mlock ", NULL,
     "needless; weights are read into memory, never mapped or locked"},
    {" --jinja ", NULL, "needless; the model's own template is used where it is recognized"},
    {" --offline ", NULL, "needless; Sluice downloads nothing"},
    {" --no-warmup ", NULL, "needless; there is no warm-up run"},
    {" --no-context-shift ", NULL, "needless; text is never dropped silently"},
    {" --no-display-prompt --no-log-colors ", NULL,
     "needless; the answer alone goes to standard output, without colour"},
    {" -np --parallel ", "1", "needless; there is one conversation at a time"},
};

/* Whether name is one of names. */
static int is_named(const char *names, const char *name)
{
    size_t n = strlen(name);
    if (!n || strchr(name, ' ')) return 0;
    for (const char *p = names; (p = strstr(p, name)); p += n)
        if (p[-1] == ' ' && p[n] == ' ') return 1;
    return 0;
}

const char *cli_option_absent(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (is_named(table[i].names, name)) return table[i].advice;
    return NULL;
}

const char *cli_option_needless(const char *name, const char **value)
{
    for (size_t i = 0; i < sizeof needless / sizeof needless[0]; i++)
        if (is_named(needless[i].names, name)) {
            *value = needless[i].value;
            return needless[i].text;
        }
    return NULL;
}
