/* Poisoning memory by hand where AddressSanitizer watches; nothing elsewhere. */
#ifndef SL_ASAN_H
#define SL_ASAN_H

#if defined(__SANITIZE_ADDRESS__)
#define SL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SL_ASAN 1
#endif
#endif

#ifdef SL_ASAN
#include <sanitizer/asan_interface.h>
#define SL_ASAN_GAP_BYTES 64
#define SL_POISON(p, bytes) __asan_poison_memory_region((p), (bytes))
#define SL_UNPOISON(p, bytes) __asan_unpoison_memory_region((p), (bytes))
#else
#define SL_ASAN_GAP_BYTES 0
#define SL_POISON(p, bytes) ((void)(p), (void)(bytes))
#define SL_UNPOISON(p, bytes) ((void)(p), (void)(bytes))
#endif

#endif
