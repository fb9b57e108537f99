/* Making and checking sums files, and checking containers, behind their public face: a model is
 * opened as a file only, so any can be verified, whatever its architecture. */
#include <string.h>

#include "base/clock.h"
#include "engine/api.h"
#include "formats/container.h"
#include "formats/sums.h"

struct call {
    const char *path;
    sluice_progress_fn *progress;
    void *user;
    sluice_error *error;
    struct sl_budget budget;
    struct sl_gguf *gguf;           /* the container's, where there is one */
    struct sl_container *container; /* NULL: a GGUF */
    uint64_t begin_ns;
};

static sluice_err open_model(struct call *c)
{
    bool container;
    sluice_err err = sl_container_probe(c->path, &c->budget, c->error, &container);
    if (err != SLUICE_OK || !container)
        return sl_gguf_open(c->path, &c->budget, c->error, &c->gguf);
    err = sl_container_open(c->path, &c->budget, c->error, &c->container);
    if (err == SLUICE_OK)
        c->gguf = sl_container_model(c->container);
    else if (sl_container_unfinished(c->path, &c->budget, c->error))
        err = SLUICE_E_TRUNCATED;
    return err;
}

static sluice_err begin(struct call *c)
{
    if (!c->path || !*c->path) return sl_fail(c->error, SLUICE_E_ARG, "no model was named");
    c->begin_ns = sl_now_ns();
    sl_budget_init(&c->budget, UINT64_MAX);
    sluice_err err = open_model(c);
    if (err == SLUICE_OK) sl_gguf_drop_metadata(c->gguf);
    return err;
}

static void fill(const struct call *c, sluice_sums_result *result)
{
    if (!result) return;
    sluice_sums_result r = SLUICE_SUMS_RESULT_INIT;
    uint64_t piece_bytes;
    r.struct_size = result->struct_size;
    r.n_files = sl_gguf_n_files(c->gguf);
    for (uint32_t i = 0; i < r.n_files; i++) r.bytes += sl_file_bytes(sl_gguf_file(c->gguf, i));
    if (c->container) {
        r.container = 1;
        r.pieces = sl_container_n_records(c->container);
    } else {
        for (uint32_t i = 0; i < sl_gguf_n_tensors(c->gguf); i++)
            r.pieces += sl_sums_pieces(sl_gguf_tensor(c->gguf, i), &piece_bytes);
    }
    r.ns = sl_now_ns() - c->begin_ns;
    memcpy(result, &r, result->struct_size < sizeof r ? result->struct_size : sizeof r);
}

static sluice_err end(struct call *c, sluice_err err, sluice_sums_result *result)
{
    if (err == SLUICE_OK) fill(c, result);
    if (c->container)
        sl_container_close(c->container);
    else
        sl_gguf_close(c->gguf);
    return err;
}

static const char *show_model(const struct call *c, char *shown, size_t size)
{
    const char *model = sl_file_path(sl_gguf_file(c->gguf, 0));
    return sl_str_show((struct sl_str){model, strlen(model)}, shown, size);
}

sluice_err sluice_sums_make(const char *path, sluice_progress_fn *progress, void *user,
                            sluice_sums_result *result, sluice_error *error)
{
    struct call c = {.path = path, .progress = progress, .user = user, .error = error};
    char shown[256];
    sluice_err err = begin(&c);
    if (err == SLUICE_OK && c.container)
        err = sl_fail(error, SLUICE_E_UNSUPPORTED,
                      "'%s' is a container, which carries its own checksums and needs no sums "
                      "file; 'sluice verify' without --make-sums compares them",
                      show_model(&c, shown, sizeof shown));
    if (err == SLUICE_OK) err = sl_sums_make(c.gguf, &c.budget, progress, user, error);
    return end(&c, err, result);
}

/* The sums file, or an error that says how to get one. */
static sluice_err open_sums(struct call *c, struct sl_sums **out)
{
    sluice_err err = sl_sums_open(c->gguf, &c->budget, c->error, out);
    if (err != SLUICE_OK || *out) return err;
    char shown[256];
    show_model(c, shown, sizeof shown);
    return sl_fail(
        c->error, SLUICE_E_NOT_FOUND,
        "a GGUF carries no checksums, and there is no file '%s.sums'; make it once, while "
        "the model is known to be whole: sluice verify -m '%s' --make-sums",
        shown, shown);
}

sluice_err sluice_sums_verify(const char *path, sluice_progress_fn *progress, void *user,
                              sluice_sums_result *result, sluice_error *error)
{
    struct call c = {.path = path, .progress = progress, .user = user, .error = error};
    struct sl_sums *sums = NULL;
    sluice_err err = begin(&c);
    if (err == SLUICE_OK && c.container) {
        err = sl_container_verify(c.container, &c.budget, progress, user, error);
    } else if (err == SLUICE_OK) {
        err = open_sums(&c, &sums);
        if (err == SLUICE_OK) err = sl_sums_verify(c.gguf, sums, &c.budget, progress, user, error);
        sl_sums_close(sums);
    }
    return end(&c, err, result);
}
