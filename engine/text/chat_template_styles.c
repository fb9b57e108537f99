/* The chat templates by name: what each writes. The facts were taken from the templates that the
 * models' makers publish, and every entry is held against them by the golden texts of
 * tests/golden/templates. */
#include "engine/text/chat_template_impl.h"

#define IM(role) "<|im_start|>" role "\n"
#define IM_END "<|im_end|>\n"
#define CHATML_TURNS                                                                               \
    .open = {IM("system"), IM("user"), IM("assistant")}, .close = {IM_END, IM_END, IM_END},        \
    .prompt = IM("assistant")

static const struct chat_turns chatml = {CHATML_TURNS};
static const struct chat_turns smollm2 = {
    .no_system =
        IM("system") "You are a helpful AI assistant named SmolLM, trained by Hugging Face" IM_END,
    CHATML_TURNS};
static const struct chat_turns qwen2 = {
    .no_system = IM("system") "You are a helpful assistant" IM_END, CHATML_TURNS};
static const struct chat_turns qwen2_5 = {
    .no_system =
        IM("system") "You are Qwen, created by Alibaba Cloud. You are a helpful assistant." IM_END,
    CHATML_TURNS};

#define NO_THOUGHT "<think>\n\n</think>\n\n"
#define THOUGHT "<think>\n"
static const struct chat_think qwen3 = {CHAT_THINK_LAST, {NULL, NO_THOUGHT, NULL}};
static const struct chat_think qwen3_thinking = {CHAT_THINK_LAST, {THOUGHT, THOUGHT, THOUGHT}};
static const struct chat_think qwen3_instruct_unsloth = {CHAT_THINK_PRESENT, {NULL, NULL, NULL}};
static const struct chat_think qwen3_5 = {CHAT_THINK_TRIM | CHAT_THINK_EVERY,
                                          {THOUGHT, NO_THOUGHT, THOUGHT}};
static const struct chat_think qwen3_5_nothink = {CHAT_THINK_TRIM | CHAT_THINK_EVERY,
                                                  {NO_THOUGHT, NO_THOUGHT, THOUGHT}};

#define L3(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define L3_END "<|eot_id|>"
#define LLAMA3_TURNS                                                                               \
    .open = {L3("system"), L3("user"), L3("assistant")}, .close = {L3_END, L3_END, L3_END},        \
    .prompt = L3("assistant")
#define LLAMA3_HEAD(date)                                                                          \
    CHAT_BOS L3("system") "Cutting Knowledge Date: December 2023\nToday Date: " date "\n\n"

static const struct chat_turns llama3 = {.head = CHAT_BOS, .flags = CHAT_TRIM, LLAMA3_TURNS};
static const struct chat_turns llama3_always = {
    .head = CHAT_BOS, .flags = CHAT_TRIM | CHAT_ALWAYS_PROMPT, LLAMA3_TURNS};
/* 3.1 and 3.3 print the date of their making, 3.2 today's. */
static const struct chat_turns llama3_1 = {.head = LLAMA3_HEAD("26 Jul 2024"),
                                           .no_system = L3_END,
                                           .first_system = "",
                                           .flags = CHAT_TRIM,
                                           LLAMA3_TURNS};
static const struct chat_turns llama3_2 = {.head = LLAMA3_HEAD(CHAT_DATE),
                                           .no_system = L3_END,
                                           .first_system = "",
                                           .flags = CHAT_TRIM,
                                           LLAMA3_TURNS};

static const struct chat_turns mixtral = {.head = CHAT_BOS,
                                          .open = {NULL, "[INST] ", NULL},
                                          .close = {NULL, " [/INST]", CHAT_EOS},
                                          .system = CHAT_SYSTEM_NONE,
                                          .flags = CHAT_ALTERNATE};
static const struct chat_turns mistral_v0_1 = {.head = CHAT_BOS,
                                               .open = {NULL, "[INST] ", NULL},
                                               .close = {NULL, " [/INST]", CHAT_EOS " "},
                                               .system = CHAT_SYSTEM_NONE,
                                               .flags = CHAT_ALTERNATE};
static const struct chat_turns mistral_v1 = {.head = CHAT_BOS,
                                             .open = {NULL, " [INST] ", " "},
                                             .close = {NULL, " [/INST]", CHAT_EOS},
                                             .joint = "\n\n",
                                             .system = CHAT_SYSTEM_FIRST_USER,
                                             .flags = CHAT_ALTERNATE};
static const struct chat_turns mistral_nemo = {.head = CHAT_BOS,
                                               .open = {NULL, "[INST]", NULL},
                                               .close = {NULL, "[/INST]", CHAT_EOS},
                                               .joint = "\n\n",
                                               .system = CHAT_SYSTEM_LAST_USER,
                                               .flags = CHAT_ALTERNATE};
static const struct chat_turns mistral_v7 = {.head = CHAT_BOS,
                                             .open = {"[SYSTEM_PROMPT] ", "[INST] ", " "},
                                             .close = {"[/SYSTEM_PROMPT]", "[/INST]", CHAT_EOS}};

#define TULU_TURNS                                                                                 \
    .open = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},                                     \
    .close = {"\n", "\n", CHAT_EOS "\n"}, .last_assistant = CHAT_EOS, .prompt = "<|assistant|>\n"
static const struct chat_turns tulu = {TULU_TURNS};
static const struct chat_turns olmo2 = {.head = CHAT_BOS, TULU_TURNS};

#define GR(role) "<|start_of_role|>" role "<|end_of_role|>"
#define GR_END "<|end_of_text|>\n"
#define GRANITE_TURNS                                                                              \
    .open = {GR("system"), GR("user"), GR("assistant")}, .close = {GR_END, GR_END, GR_END},        \
    .prompt = GR("assistant")
static const struct chat_turns granite = {GRANITE_TURNS};
static const struct chat_turns granite_3_3 = {
    .no_system =
        GR("system") "Knowledge Cutoff Date: April 2024. Today's Date: " CHAT_LONG_DATE
                     ". You are Granite, developed by IBM. You are a helpful AI assistant." GR_END,
    .no_system_thinking = GR(
        "system") "Knowledge Cutoff Date: April 2024. Today's Date: " CHAT_LONG_DATE
                  ". You are Granite, developed by IBM. You are a helpful AI assistant.\n"
                  "Respond to every user query in a comprehensive and detailed way. You can write "
                  "down your "
                  "thoughts and reasoning process before responding. In the thought process, "
                  "engage in a "
                  "comprehensive cycle of analysis, summarization, exploration, reassessment, "
                  "reflection, "
                  "backtracing, and iteration to develop well-considered thinking process. In the "
                  "response "
                  "section, based on various attempts, explorations, and reflections from the "
                  "thoughts "
                  "section, systematically present the final solution that you deem correct. The "
                  "response "
                  "should summarize the thought process. Write your thoughts between "
                  "<think></think> and "
                  "write your response between <response></response> for each user query." GR_END,
    .flags = CHAT_PROMPT_IN_LOOP,
    GRANITE_TURNS};
static const struct chat_turns granite_4_0 = {
    .no_system = GR("system") "You are a helpful assistant. Please ensure responses are "
                              "professional, accurate, and safe." GR_END,
    .flags = CHAT_EMPTY_IS_NONE,
    GRANITE_TURNS};
static const struct chat_turns granite_4_1 = {.flags = CHAT_EMPTY_IS_NONE, GRANITE_TURNS};

#define GM(role) "<start_of_turn>" role "\n"
#define GM_END "<end_of_turn>\n"
/* A system message in the model's place is printed as such, odd as that is. */
#define GEMMA_TURNS                                                                                \
    .open = {GM("system"), GM("user"), GM("model")}, .close = {GM_END, GM_END, GM_END},            \
    .prompt = GM("model")
static const struct chat_turns gemma = {
    .head = CHAT_BOS, .system = CHAT_SYSTEM_NONE, .flags = CHAT_TRIM | CHAT_ALTERNATE, GEMMA_TURNS};
static const struct chat_turns gemma3 = {.head = CHAT_BOS,
                                         .joint = "\n\n",
                                         .system = CHAT_SYSTEM_FIRST_USER,
                                         .flags = CHAT_TRIM | CHAT_ALTERNATE,
                                         GEMMA_TURNS};

#define DS_USER "<｜User｜>"
#define DS_ASSISTANT "<｜Assistant｜>"
static const struct chat_turns deepseek3 = {.head = CHAT_BOS,
                                            .open = {NULL, DS_USER, DS_ASSISTANT},
                                            .close = {NULL, NULL, "<｜end▁of▁sentence｜>"},
                                            .joint = "\n\n",
                                            .prompt = DS_ASSISTANT,
                                            .system = CHAT_SYSTEM_COLLECT};

static const struct chat_turns gpt_oss = {
    .head = "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
            "Knowledge cutoff: 2024-06\nCurrent date: " CHAT_ISO_DATE "\n\nReasoning: medium\n\n"
            "# Valid channels: analysis, commentary, final. Channel must be included for every "
            "message.<|end|>",
    .first_system = "<|start|>developer<|message|># Instructions\n\n",
    .open = {NULL, "<|start|>user<|message|>", "<|start|>assistant<|channel|>final<|message|>"},
    .close = {"\n\n<|end|>", "<|end|>", "<|end|>"},
    .last_assistant = "<|return|>",
    .prompt = "<|start|>assistant",
    .flags = CHAT_EMPTY_IS_NONE | CHAT_ONE_SYSTEM | CHAT_CHANNELS};

/* name, how it is rendered, what it writes. Names that stand for the same style are further names.
 */
#define SL_CHAT_TEMPLATES(X)                                                                       \
    X("chatml", turns, chatml)                                                                     \
    X("smollm2", turns, smollm2)                                                                   \
    X("qwen2", turns, qwen2)                                                                       \
    X("qwen2.5", turns, qwen2_5)                                                                   \
    X("qwen3", think, qwen3)                                                                       \
    X("qwen3-instruct", turns, chatml)                                                             \
    X("qwen3-instruct-unsloth", think, qwen3_instruct_unsloth)                                     \
    X("qwen3-thinking", think, qwen3_thinking)                                                     \
    X("qwen3-coder", turns, chatml)                                                                \
    X("qwen3.5", think, qwen3_5)                                                                   \
    X("qwen3.5-nothink", think, qwen3_5_nothink)                                                   \
    X("qwen3.6", think, qwen3_5)                                                                   \
    X("llama3", turns, llama3)                                                                     \
    X("llama3-always", turns, llama3_always)                                                       \
    X("llama3.1", turns, llama3_1)                                                                 \
    X("llama3.2", turns, llama3_2)                                                                 \
    X("mixtral", turns, mixtral)                                                                   \
    X("mistral-v0.1", turns, mistral_v0_1)                                                         \
    X("mistral-v1", turns, mistral_v1)                                                             \
    X("mistral-nemo", turns, mistral_nemo)                                                         \
    X("mistral-v7", turns, mistral_v7)                                                             \
    X("tulu", turns, tulu)                                                                         \
    X("olmo2", turns, olmo2)                                                                       \
    X("granite", turns, granite)                                                                   \
    X("granite-3.3", turns, granite_3_3)                                                           \
    X("granite-4.0", turns, granite_4_0)                                                           \
    X("granite-4.1", turns, granite_4_1)                                                           \
    X("gemma", turns, gemma)                                                                       \
    X("gemma3", turns, gemma3)                                                                     \
    X("deepseek3", turns, deepseek3)                                                               \
    X("gpt-oss", turns, gpt_oss)

const struct sl_chat_template chat_templates[] = {
#define SL_CHAT_ENTRY(name, how, style) {name, chat_render_##how, &style},
    SL_CHAT_TEMPLATES(SL_CHAT_ENTRY)
#undef SL_CHAT_ENTRY
};
const uint32_t chat_templates_count = SL_ARRAY_LEN(chat_templates);

const char *sl_chat_template_names(void)
{
#define SL_CHAT_NAME(name, how, style) ", " name
    static const char names[] = SL_CHAT_TEMPLATES(SL_CHAT_NAME);
#undef SL_CHAT_NAME
    return names + 2;
}
