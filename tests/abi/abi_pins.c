/* Values and offsets that programs built against this version rely on. */
#include "sluice.h"

#define PIN(what) _Static_assert(what, #what)

PIN(SLUICE_OK == 0);
PIN(SLUICE_E_ARG == -1);
PIN(SLUICE_E_STATE == -2);
PIN(SLUICE_E_CANCELLED == -3);
PIN(SLUICE_E_LIMIT == -4);
PIN(SLUICE_E_CONTEXT_FULL == -5);
PIN(SLUICE_E_NOMEM == -10);
PIN(SLUICE_E_BUDGET == -11);
PIN(SLUICE_E_IO == -20);
PIN(SLUICE_E_NOT_FOUND == -21);
PIN(SLUICE_E_TRUNCATED == -22);
PIN(SLUICE_E_CHANGED == -23);
PIN(SLUICE_E_FORMAT == -30);
PIN(SLUICE_E_VERSION == -31);
PIN(SLUICE_E_CORRUPT == -32);
PIN(SLUICE_E_NUMERIC == -33);
PIN(SLUICE_E_UNSUPPORTED == -40);
PIN(SLUICE_E_TEMPLATE == -41);

PIN(sizeof(sluice_options) == 144);
PIN(offsetof(sluice_options, ram_bytes) == 8);
PIN(offsetof(sluice_options, log) == 40);
PIN(offsetof(sluice_options, chat_template) == 72);
PIN(offsetof(sluice_options, hot_list) == 80);
PIN(offsetof(sluice_options, io) == 88);
PIN(offsetof(sluice_options, slots) == 100);
PIN(offsetof(sluice_options, experts_used) == 104);
PIN(offsetof(sluice_options, drop_cold) == 116);
PIN(offsetof(sluice_options, graft_path) == 120);
PIN(offsetof(sluice_options, graft_layer) == 128);
PIN(offsetof(sluice_options, trace) == 136);
PIN(SLUICE_GRAFT_OUTPUT == 0x10001);
PIN(SLUICE_ISA_NEON == 3);
PIN(SLUICE_ISA_I8MM == 5);
PIN(SLUICE_ISA_AVX512 == 6);
PIN(SLUICE_RAM_AUTO == UINT64_MAX);
PIN(SLUICE_IO_MMAP == 3);
PIN(SLUICE_CACHE_DECAYED_LFU == 4);
PIN(SLUICE_CACHE_RECALL == 5);
PIN(SLUICE_PREFETCH_FORCED == 2);
PIN(SLUICE_LOSSY_DROP_COLD == 4);
PIN(SLUICE_TRIM_RESTORE == 4);
PIN(sizeof(sluice_plan) == 192);
PIN(offsetof(sluice_plan, state_bytes) == 184);
PIN(offsetof(sluice_plan, minimum_bytes) == 72);
PIN(offsetof(sluice_plan, n_slots) == 144);
PIN(sizeof(sluice_generate_options) == 96);
PIN(offsetof(sluice_generate_options, on_thought) == 88);
PIN(sizeof(sluice_ids) == 24);
PIN(sizeof(sluice_chat) == 16);
PIN(offsetof(sluice_generate_options, seed) == 32);
PIN(sizeof(sluice_result) == 120);
PIN(offsetof(sluice_result, in_thought) == 108);
PIN(offsetof(sluice_result, prompt_read_bytes) == 56);
PIN(sizeof(sluice_stats) == 264);
PIN(offsetof(sluice_stats, uses) == 48);
PIN(sizeof(sluice_input) == 48);
PIN(offsetof(sluice_input, tensor) == 24);
PIN(sizeof(sluice_layer_stats) == 96);
PIN(sizeof(sluice_kernel_bench) == 88);
PIN(offsetof(sluice_kernel_bench, type) == 32);
PIN(sizeof(sluice_memory_bench) == 24);
PIN(sizeof(sluice_sums_result) == 40);
PIN(offsetof(sluice_sums_result, ns) == 24);
PIN(sizeof(sluice_error) == 24 + SLUICE_ERROR_TEXT_MAX);

extern int abi_pins_is_compiled;
int abi_pins_is_compiled = 1;
