/* Which files a path stands for, and the index that spreads a model over several.
 *
 *     {"metadata": {...}, "weight_map": {"NAME": "model-00001-of-00003.safetensors", ...}}
 *
 * A folder with an index is read by it, else it must hold model.safetensors. Index and headers must
 * say the same: a tensor that is listed and missing, or there and not listed, means that files of
 * two downloads were mixed. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors_internal.h"

#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

/* ---- paths ----------------------------------------------------------------------------------- */

static struct sl_str view(const char *s) { return (struct sl_str){s, strlen(s)}; }

/* folder / name, or, with no folder, name. Owner: the caller, sl_free. */
static char *join(const struct sl_st *st, struct sl_str folder, struct sl_str name)
{
    bool slash = folder.n > 0 && folder.p[folder.n - 1] != '/';
    char *path = sl_alloc(st->budget, folder.n + name.n + 2, 1);

    if (path == NULL) return NULL;
    memcpy(path, folder.p, folder.n);
    if (slash) path[folder.n] = '/';
    memcpy(path + folder.n + slash, name.p, name.n);
    return path;
}

/* The part of path up to and with its last slash; empty: there is none. */
static struct sl_str folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return (struct sl_str){path, slash != NULL ? (size_t)(slash - path) + 1 : 0};
}

static bool is_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9') return false;
    return true;
}

/* NAME-00001-of-00003.safetensors: one of several. */
static bool is_shard(struct sl_str path)
{
    const size_t tail = sizeof "-00001-of-00003.safetensors" - 1;

    if (path.n <= tail) return false;
    const char *p = path.p + path.n - tail;
    return p[0] == '-' && is_digits(p + 1, 5) && memcmp(p + 6, "-of-", 4) == 0 &&
           is_digits(p + 10, 5) && sl_str_ends(path, ".safetensors");
}

/* Anything else could lead out of the folder, or be shown as something it is not. */
static bool is_plain_name(struct sl_str name)
{
    if (name.n == 0 || name.n > SL_ST_FILE_NAME_MAX || name.p[0] == '.') return false;
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];

        if (c < 0x20 || c == 0x7F || c == '/' || c == '\\' || c == ':') return false;
    }
    return sl_str_ends(name, ".safetensors");
}

/* ---- the index ------------------------------------------------------------------------------- */

/* The file called name, which is opened where it is new. Models have few files, and their tensors
 * mostly stand in the order of these: the last ones are looked at first. */
static sluice_err file_of(struct sl_st *st, struct sl_str folder, struct sl_str name,
                          uint32_t *file, sluice_error *e)
{
    char *path;
    sluice_err err;

    for (uint32_t i = st->n_files; i > 0; i--) {
        const char *known = sl_file_path(st->files[i - 1]);

        *file = i - 1;
        if (sl_str_eq(name, known + folder_of(known).n)) return SLUICE_OK;
    }
    path = join(st, folder, name);
    if (path == NULL) return sl_gg_no_memory(st->budget, folder.n + name.n + 2, st->path, e);
    *file = st->n_files;
    err = sl_st_add_file(st, path, e);
    sl_free(path);
    return err;
}

/* One line of the map as the index has it. */
struct mapped {
    struct sl_str name;
    uint32_t file;
    bool found;
};

static sluice_err read_map(struct sl_st *st, const char *index_path, struct sl_json_value map,
                           struct mapped *lines, sluice_error *e)
{
    struct sl_json_walk w = sl_json_walk(map);
    char name[SL_GG_SHOW_MAX], shown[SL_GG_SHOW_MAX];
    struct sl_str file;
    sluice_err err = SLUICE_OK;

    for (uint32_t i = 0; err == SLUICE_OK && sl_json_step(&w); i++) {
        sl_str_show(w.key, name, sizeof name);
        if (!sl_json_str(w.value, &file))
            return sl_st_fail(index_path, e, SLUICE_E_FORMAT,
                              "weight_map gives tensor '%s' no file name", name);
        if (!is_plain_name(file))
            return sl_st_fail(index_path, e, SLUICE_E_FORMAT,
                              "weight_map puts tensor '%s' into '%s', which is no plain name of a "
                              ".safetensors file in the same folder",
                              name, sl_str_show(file, shown, sizeof shown));
        lines[i].name = w.key;
        err = file_of(st, folder_of(index_path), file, &lines[i].file, e);
    }
    return err;
}

/* Headers against the map, both ways. */
static sluice_err compare(const struct sl_st *st, const char *index_path, struct mapped *lines,
                          uint32_t n, sluice_error *e)
{
    struct sl_gg_index by_name = {NULL, 0};
    uint32_t bad = 0;
    char name[SL_GG_SHOW_MAX];
    sluice_err err = sl_gg_index_build(&by_name, st->budget, lines, n, sizeof *lines, &bad);

    if (err != SLUICE_OK) /* the names are known to differ: memory, or a collision */
        return sl_st_fail(index_path, e, err, "weight_map of %" PRIu32 " names has no table", n);
    for (uint32_t i = 0; err == SLUICE_OK && i < st->n_tensors; i++) {
        const struct sl_st_tensor *t = &st->tensors[i];
        uint32_t at = sl_gg_index_find(&by_name, lines, sizeof *lines, t->name);

        if (at != UINT32_MAX && lines[at].file == t->file)
            lines[at].found = true;
        else
            err = sl_st_fail(sl_file_path(st->files[t->file]), e, SLUICE_E_FORMAT,
                             "holds tensor '%s', which " INDEX_NAME " does not place there; are "
                             "these the files of one download?",
                             sl_str_show(t->name, name, sizeof name));
    }
    for (uint32_t i = 0; err == SLUICE_OK && i < n; i++) {
        if (!lines[i].found)
            err = sl_st_fail(sl_file_path(st->files[lines[i].file]), e, SLUICE_E_FORMAT,
                             "lacks tensor '%s', which " INDEX_NAME " places there; are these "
                             "the files of one download?",
                             sl_str_show(lines[i].name, name, sizeof name));
    }
    sl_gg_index_deinit(&by_name);
    return err;
}

static sluice_err read_mapped(struct sl_st *st, const char *index_path, struct sl_json_value map,
                              sluice_error *e)
{
    uint32_t n = sl_json_count(map);
    struct mapped *lines;
    sluice_err err;

    if (sl_json_kind_of(map) != SL_JSON_OBJECT || n == 0)
        return sl_st_fail(index_path, e, SLUICE_E_FORMAT,
                          "has no weight_map that gives each tensor its file");
    if (n > SL_ST_TENSORS_MAX)
        return sl_st_fail(index_path, e, SLUICE_E_LIMIT, "%" PRIu32 " tensors, the limit is %u", n,
                          SL_ST_TENSORS_MAX);
    lines = sl_alloc(st->budget, n, sizeof *lines);
    if (lines == NULL) return sl_gg_no_memory(st->budget, n * sizeof *lines, index_path, e);
    err = read_map(st, index_path, map, lines, e);
    for (uint32_t i = 0; err == SLUICE_OK && i < st->n_files; i++)
        err = sl_st_read_header(st, i, e);
    if (err == SLUICE_OK) err = compare(st, index_path, lines, n, e);
    sl_free(lines);
    return err;
}

static sluice_err read_index(struct sl_st *st, const char *index_path, sluice_error *e)
{
    struct sl_json *j = NULL;
    sluice_err err = sl_json_open(index_path, SL_ST_INDEX_MAX, st->budget, e, &j);

    if (err == SLUICE_OK)
        err = read_mapped(st, index_path, sl_json_get(sl_json_root(j), "weight_map"), e);
    sl_json_close(j);
    return err;
}

/* ---- what a path stands for ------------------------------------------------------------------ */

static sluice_err read_single(struct sl_st *st, const char *path, sluice_error *e)
{
    sluice_err err = sl_st_add_file(st, path, e);

    return err == SLUICE_OK ? sl_st_read_header(st, 0, e) : err;
}

static sluice_err fail_folder(struct sl_str folder, sluice_error *e)
{
    char shown[SL_GG_SHOW_PATH_MAX];

    return sl_fail(e, SLUICE_E_NOT_FOUND,
                   "'%s' is no folder with " INDEX_NAME " or " SINGLE_NAME
                   "; weights in another form (pytorch_model.bin) are not read",
                   sl_str_show(folder, shown, sizeof shown));
}

/* An index beside the others, or the single file. What was looked for in vain is no error yet, so
 * it does not fill the caller's. */
static sluice_err read_folder(struct sl_st *st, struct sl_str folder, sluice_error *e)
{
    char *index_path = join(st, folder, SL_STR(INDEX_NAME));
    char *single_path = join(st, folder, SL_STR(SINGLE_NAME));
    struct sl_file *probe = NULL;
    sluice_error why = {.code = 0};
    sluice_err err = SLUICE_E_NOMEM;

    if (index_path == NULL || single_path == NULL) {
        err = sl_gg_no_memory(st->budget, folder.n + sizeof INDEX_NAME + 1, st->path, e);
        goto out;
    }
    err = sl_file_open(index_path, st->budget, &why, &probe);
    sl_file_close(probe);
    if (err == SLUICE_OK) {
        err = read_index(st, index_path, e);
    } else if (err == SLUICE_E_NOT_FOUND) {
        err = read_single(st, single_path, e);
        if (err == SLUICE_E_NOT_FOUND) err = fail_folder(folder, e);
    } else if (e != NULL) {
        *e = why;
    }
out:
    sl_free(index_path);
    sl_free(single_path);
    return err;
}

sluice_err sl_st_read_path(struct sl_st *st, const char *path, sluice_error *e)
{
    struct sl_str s = view(path);
    bool weights = sl_str_ends(s, ".safetensors");
    struct sl_file *probe = NULL;
    char shown[SL_GG_SHOW_PATH_MAX];
    sluice_error why = {.code = 0};
    sluice_err err = sl_file_open(path, st->budget, &why, &probe);

    sl_file_close(probe);
    if (why.sys_errno == EISDIR || err == SLUICE_E_NOT_FOUND) return read_folder(st, s, e);
    if (err != SLUICE_OK) {
        if (e != NULL) *e = why;
        return err;
    }
    if (sl_str_ends(s, ".safetensors.index.json")) return read_index(st, path, e);
    if (weights && is_shard(s)) {
        struct sl_str folder = folder_of(path);

        return read_folder(st, folder.n > 0 ? folder : SL_STR("."), e);
    }
    if (weights) return read_single(st, path, e);
    return sl_fail(e, SLUICE_E_FORMAT,
                   "%s: neither a folder nor named *.safetensors or *.safetensors.index.json",
                   sl_gg_show_path(path, shown));
}
