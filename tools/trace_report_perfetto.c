/* A trace as Chrome trace events, which ui.perfetto.dev and chrome://tracing open: computing and
 * waiting as they came, reads in lanes, hit rate and bytes of each token as counters.
 *
 * Two processes: the model (threads: tokens, dense parts, experts, waiting) and the drive (a thread
 * a lane, since complete events of one thread may not overlap). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report.h"
#include "tools/trace_report.h"

#define LANES 64
#define FLUSH_BYTES 65536

enum process { MODEL = 1, DRIVE = 2 };
enum thread { TOKENS = 1, DENSE = 2, EXPERTS = 3, WAITING = 4 };

struct events {
    struct cli_rep_sink *sink;
    struct cli_text text;
    int failed, any;
};

static void add(struct events *ev, const char *format, ...) CLI_PRINTF(2, 3);
static void add(struct events *ev, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    cli_text_add(&ev->text, ev->any ? ",\n" : "\n", ev->any ? 2 : 1);
    cli_text_add(&ev->text, line, n > 0 ? (size_t)n : 0);
    ev->any = 1;
    if (ev->text.size < FLUSH_BYTES) return;
    if (!ev->failed) ev->failed = cli_rep_put(ev->sink, ev->text.bytes, ev->text.size);
    cli_text_clear(&ev->text);
}

/* Microseconds with three digits, exactly. */
#define US "%" PRIu64 ".%03" PRIu64
#define US_OF(ns) (ns) / 1000, (ns) % 1000

/* Names a process or thread. Names may come from a file, so JSON is made by who knows how. */
static void name_it(struct events *ev, const char *what, int pid, int tid, const char *name)
{
    struct cli_json *root = cli_json_object();
    struct cli_text text = {0};
    cli_json_string(root, "name", what);
    cli_json_string(root, "ph", "M");
    cli_json_integer(root, "pid", (uint64_t)pid);
    cli_json_integer(root, "tid", (uint64_t)tid);
    cli_json_string(cli_json_child(root, "args"), "name", name);
    cli_json_print(root, &text);
    cli_json_drop(root);
    cli_text_add(&ev->text, ev->any ? ",\n" : "\n", ev->any ? 2 : 1);
    cli_text_add(&ev->text, text.bytes, text.size);
    ev->any = 1;
    cli_text_free(&text);
}

static void put_names(struct events *ev, const struct sl_trace_header *h)
{
    const char *model = h->model[0] ? h->model : h->file[0] ? h->file : "model";
    name_it(ev, "process_name", MODEL, 0, model);
    name_it(ev, "thread_name", MODEL, TOKENS, "tokens");
    name_it(ev, "thread_name", MODEL, DENSE, "compute dense");
    name_it(ev, "thread_name", MODEL, EXPERTS, "experts");
    name_it(ev, "thread_name", MODEL, WAITING, "waiting");
    name_it(ev, "process_name", DRIVE, 0, "drive");
}

static void put_span(struct events *ev, enum thread thread, uint64_t from_ns, uint64_t took_ns,
                     uint32_t layer)
{
    static const char *const names[] = {"", "", "dense", "experts", "waiting"};
    if (!took_ns) return;
    add(ev,
        "{\"ph\":\"X\",\"name\":\"%s %" PRIu32 "\",\"pid\":%d,\"tid\":%d,\"ts\":" US ",\"dur\":" US
        ",\"args\":{\"layer\":%" PRIu32 "}}",
        names[thread], layer, MODEL, thread, US_OF(from_ns), US_OF(took_ns), layer);
}

/* Waiting and experts alternate within a layer; here one follows the other. */
static void put_visit(struct events *ev, const struct sl_trace_visit *v)
{
    uint64_t dense_ns = v->dense_ns < v->begin_ns ? v->dense_ns : v->begin_ns;
    put_span(ev, DENSE, v->begin_ns - dense_ns, dense_ns, v->layer);
    put_span(ev, WAITING, v->begin_ns, v->wait_ns, v->layer);
    put_span(ev, EXPERTS, v->begin_ns + v->wait_ns, v->expert_ns, v->layer);
}

static void put_eval(struct events *ev, const struct cli_rep_trace *rt, uint64_t i)
{
    const struct sl_trace *t = rt->t;
    const struct sl_trace_eval_span *eval = &t->evals[i];
    uint64_t uses = 0, hits = 0, bytes = 0;
    if (!cli_rep_timed(t, eval)) return;
    add(ev,
        "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":" US ",\"dur\":" US
        ",\"args\":{\"position\":%" PRIu32 ",\"tokens\":%" PRIu32 "}}",
        eval->e.prompt ? "prompt" : "token", MODEL, TOKENS, US_OF(eval->e.begin_ns),
        US_OF(eval->done.end_ns - eval->e.begin_ns), eval->e.position, eval->e.n_tokens);
    for (uint64_t v = eval->first_visit; v < eval->first_visit + eval->n_visits; v++) {
        uses += (uint64_t)t->visits[v].n_tokens * t->visits[v].top_k;
        hits += rt->visit_hits[v];
        bytes += t->visits[v].read_bytes;
        put_visit(ev, &t->visits[v]);
    }
    if (rt->hits != CLI_REP_NO_HITS && uses)
        add(ev,
            "{\"ph\":\"C\",\"name\":\"hit rate\",\"pid\":%d,\"tid\":0,\"ts\":" US
            ",\"args\":{\"%%\":%.2f}}",
            MODEL, US_OF(eval->e.begin_ns), 100.0 * (double)hits / (double)uses);
    add(ev,
        "{\"ph\":\"C\",\"name\":\"bytes demanded\",\"pid\":%d,\"tid\":0,\"ts\":" US
        ",\"args\":{\"bytes\":%" PRIu64 "}}",
        MODEL, US_OF(eval->e.begin_ns), bytes);
}

/* ---- the drive ------------------------------------------------------------------------------- */

static int earlier(const void *a, const void *b)
{
    const struct sl_trace_read *x = a, *y = b;
    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

static void put_reads(struct events *ev, const struct sl_trace *t)
{
    static const char *const why[] = {"read for a token",
                                      "read for a prompt",
                                      "read ahead on a guess",
                                      "read ahead for a prompt",
                                      "read from the hot list",
                                      "read while loading",
                                      "read"};
    struct sl_trace_read *reads = cli_alloc(t->n_reads, sizeof *reads);
    uint64_t until[LANES] = {0};
    int lanes = 0;
    if (t->n_reads) memcpy(reads, t->reads, t->n_reads * sizeof *reads);
    qsort(reads, t->n_reads, sizeof *reads, earlier);
    for (uint64_t i = 0; i < t->n_reads; i++) {
        const struct sl_trace_read *read = &reads[i];
        int lane = 0;
        while (lane < LANES - 1 && until[lane] > read->begin_ns) lane++;
        if (lane >= lanes) lanes = lane + 1;
        until[lane] = read->begin_ns + read->took_ns;
        add(ev,
            "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":" US ",\"dur\":" US
            ",\"args\":{\"layer\":%" PRIu32 ",\"expert\":%" PRIu32 ",\"bytes\":%" PRIu64 "}}",
            why[read->why < 6 ? read->why : 6], DRIVE, lane + 1, US_OF(read->begin_ns),
            US_OF(read->took_ns), read->layer, read->expert, read->bytes);
    }
    for (int lane = 0; lane < lanes; lane++) {
        char name[24];
        (void)snprintf(name, sizeof name, "reads %d", lane + 1);
        name_it(ev, "thread_name", DRIVE, lane + 1, name);
    }
    cli_free(reads);
}

int cli_rep_perfetto(const char *name, const struct cli_rep_trace *rt)
{
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", tail[] = "\n]}\n";
    struct cli_rep_sink sink;
    if (cli_rep_open(&sink, name)) return CLI_EXIT_FAILURE;
    struct events ev = {.sink = &sink};
    cli_text_add(&ev.text, head, sizeof head - 1);
    put_names(&ev, &rt->t->header);
    for (uint64_t i = 0; i < rt->t->n_evals; i++) put_eval(&ev, rt, i);
    put_reads(&ev, rt->t);
    cli_text_add(&ev.text, tail, sizeof tail - 1);
    if (!ev.failed) ev.failed = cli_rep_put(&sink, ev.text.bytes, ev.text.size);
    cli_text_free(&ev.text);
    return cli_rep_close(&sink, ev.failed ? CLI_EXIT_FAILURE : CLI_EXIT_OK);
}
