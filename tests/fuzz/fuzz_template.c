/* Chat templates on arbitrary bytes. The first byte chooses: recognition of the rest as a Jinja
 * source, or the rendering of the rest as a conversation (a byte for the role, text up to the next
 * byte 0xff) in a template by number.
 *
 * Checked beyond the sanitizers: a failure leaves the output alone, spans lie in order inside the
 * output. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/chat_template.h"

#define MESSAGES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The number-th name of the list of names. */
static const struct sl_chat_template *template_by_number(unsigned number)
{
    const struct sl_chat_template *t = NULL;
    const char *at = sl_chat_template_names();
    char name[64];
    while (true) {
        size_t n = strcspn(at, ",");
        if (number == 0 || at[n] == '\0') {
            memcpy(name, at, n);
            name[n] = '\0';
            SLUICE_ASSERT(sl_chat_template_by_name(name, NULL, &t) == SLUICE_OK);
            return t;
        }
        number--;
        at += n + 2;
    }
}

static uint32_t read_messages(const uint8_t *p, const uint8_t *end, struct sl_chat_message *m)
{
    static const struct sl_str roles[] = {
        {"user", 4}, {"assistant", 9}, {"system", 6}, {"tool", 4}};
    uint32_t n = 0;
    while (p < end && n < MESSAGES_MAX) {
        m[n].role = roles[*p++ % SL_ARRAY_LEN(roles)];
        const uint8_t *stop = p < end ? memchr(p, 0xff, (size_t)(end - p)) : NULL;
        if (stop == NULL) stop = end;
        m[n].content = (struct sl_str){(const char *)p, (size_t)(stop - p)};
        n++;
        p = stop < end ? stop + 1 : end;
    }
    return n;
}

static void render(const uint8_t *data, size_t size)
{
    struct sl_chat_message m[MESSAGES_MAX];
    struct sl_budget budget;
    sluice_error e;
    if (size < 2) return;
    sl_budget_init(&budget, 1 << 20);
    struct sl_buf out = {.budget = &budget};
    struct sl_chat_spans spans = {.budget = &budget};
    struct sl_chat_context ctx = {.bos = SL_STR("<s>"),
                                  .eos = SL_STR("</s>"),
                                  .add_generation_prompt = (data[1] & 1) != 0,
                                  .thinking = data[1] % 3 - 1,
                                  .date = data[1] & 4 ? SL_STR("30 Nov 2026") : SL_STR("")};
    uint32_t n = read_messages(data + 2, data + size, m);
    sluice_err err = sl_chat_render(template_by_number(data[0] % 64), m, n, &ctx,
                                    &(struct sl_chat_out){&out, &spans}, &e);
    if (err != SLUICE_OK) SLUICE_ASSERT(out.n == 0 && spans.count == 0);
    uint64_t at = 0;
    for (uint64_t i = 0; i < spans.count; i++) {
        SLUICE_ASSERT(spans.spans[i].begin >= at && spans.spans[i].begin < spans.spans[i].end);
        at = spans.spans[i].end;
    }
    SLUICE_ASSERT(at <= out.n);
    sl_buf_deinit(&out);
    sl_chat_spans_deinit(&spans);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (data[0] % 2 == 0) {
        const struct sl_chat_template *t;
        sluice_error e;
        struct sl_str source = {(const char *)data + 1, size - 1};
        sluice_err err = sl_chat_template_detect(source, &e, &t);
        SLUICE_ASSERT((err == SLUICE_OK) == (t != NULL));
    } else {
        render(data + 1, size - 1);
    }
    return 0;
}
