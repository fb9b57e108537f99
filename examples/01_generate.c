/* Generates an answer to one prompt, printing it as it is made.
 *
 * Introduces: sluice_model_open, sluice_session_open, sluice_chat_tokenize, sluice_generate.
 *
 * Usage: 01_generate MODEL.gguf "PROMPT". Where the model has no chat template that is recognized,
 * the prompt is continued as plain text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

/* Called with whole UTF-8 characters. Returning nonzero would end the answer. */
static int print_text(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stdout);
    return fflush(stdout) != 0;
}

/* Fills out with the ids of the prompt as one turn of a chat, or as plain text where the model has
 * no template; the caller frees out->ids. */
static sluice_err prompt_ids(const sluice_model *model, const char *prompt, sluice_ids *out,
                             sluice_error *error)
{
    const sluice_message message = {"user", prompt};
    const sluice_chat chat = {&message, 1, -1};
    for (;;) { /* the first round measures, the second fills */
        sluice_err err = sluice_chat_tokenize(model, &chat, out, error);
        if (err == SLUICE_E_TEMPLATE)
            err = sluice_tokenize(model, prompt, strlen(prompt), SLUICE_TOKENIZE_BOS, out, error);
        if (err != SLUICE_E_LIMIT || out->capacity) return err;
        out->ids = malloc(out->count * sizeof *out->ids);
        if (!out->ids) return err;
        out->capacity = out->count;
    }
}

int main(int argc, char **argv)
{
    sluice_options options = SLUICE_OPTIONS_INIT;
    sluice_generate_options generate = SLUICE_GENERATE_INIT;
    sluice_model *model = NULL;
    sluice_session *session = NULL;
    sluice_error error;
    sluice_ids ids = {NULL, 0, 0};
    int failed = 1;

    if (argc != 3) {
        fprintf(stderr, "usage: 01_generate MODEL.gguf PROMPT\n");
        return 2;
    }
    generate.max_tokens = 64;
    generate.on_text = print_text;
    if (sluice_model_open(argv[1], &options, &model, &error)) goto out;
    if (sluice_session_open(model, &session, &error)) goto out;
    if (prompt_ids(model, argv[2], &ids, &error)) goto out;
    if (sluice_generate(session, ids.ids, ids.count, &generate, NULL, &error)) goto out;
    printf("\n");
    failed = 0;
out:
    if (failed) fprintf(stderr, "01_generate: %s\n", error.text);
    free(ids.ids);
    sluice_session_close(session);
    sluice_model_close(model);
    return failed;
}
