// The header as C++17, its initialisers included.
#include "sluice.h"

sluice_options abi_cxx_options = SLUICE_OPTIONS_INIT;
sluice_plan abi_cxx_plan = SLUICE_PLAN_INIT;
sluice_model_info abi_cxx_info = SLUICE_MODEL_INFO_INIT;
sluice_tensor abi_cxx_tensor = SLUICE_TENSOR_INIT;
sluice_generate_options abi_cxx_generate = SLUICE_GENERATE_INIT;
sluice_result abi_cxx_result = SLUICE_RESULT_INIT;
sluice_stats abi_cxx_stats = SLUICE_STATS_INIT;
sluice_layer_stats abi_cxx_layer_stats = SLUICE_LAYER_STATS_INIT;
