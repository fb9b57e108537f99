/* Calls about the library itself. */
#include <stdio.h>

#include "engine/api.h"

#define STRING_OF(x) #x
#define VERSION_OF(a, b, c) STRING_OF(a) "." STRING_OF(b) "." STRING_OF(c)

const char *sluice_version(void)
{
    return VERSION_OF(SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR, SLUICE_VERSION_PATCH);
}

#if defined(__x86_64__)
#define ARCHITECTURE "x86-64"
#elif defined(__aarch64__)
#define ARCHITECTURE "arm64"
#else
#define ARCHITECTURE "unknown architecture"
#endif

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char *sluice_build_info(void)
{
    uint32_t flags = sl_cpu_flags();
    if (flags & SL_CPU_AVX512)
        return COMPILER ", " ARCHITECTURE ", this processor: avx2 fma f16c avx512 vnni vbmi gfni";
    if (flags & SL_CPU_AVX2) return COMPILER ", " ARCHITECTURE ", this processor: avx2 fma f16c";
    if (flags & SL_CPU_I8MM)
        return COMPILER ", " ARCHITECTURE ", this processor: neon dotprod i8mm";
    if (flags & SL_CPU_DOTPROD) return COMPILER ", " ARCHITECTURE ", this processor: neon dotprod";
    if (flags & SL_CPU_NEON) return COMPILER ", " ARCHITECTURE ", this processor: neon";
    return COMPILER ", " ARCHITECTURE ", this processor: no vector set that Sluice uses";
}

const char *sluice_err_name(sluice_err code) { return sl_err_name(code); }
const char *sluice_err_text(sluice_err code) { return sl_err_text(code); }

const char *sluice_arch_name(uint32_t index)
{
    const struct sl_arch *a = sl_arch_at(index);
    return a ? a->name : NULL;
}

const char *sluice_chat_template_names(void) { return sl_chat_template_names(); }

/* Numbered by enum sluice_cache, whatever the order within the engine. */
const char *sluice_cache_policy_name(uint32_t index)
{
    static const char *const names[] = {"two_rate", "lru", "lfu", "decayed_lfu", "recall"};
    return index < SL_ARRAY_LEN(names) ? names[index] : NULL;
}
