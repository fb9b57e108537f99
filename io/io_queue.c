/* Waiting requests and the order in which they may start: see io_backend.h.
 *
 * Demand requests first, oldest first. A low-priority one starts only while no demand request waits
 * and while fewer than low_max of its kind are under way, so that a demand request that comes later
 * finds the drive at most partly occupied. */
#include "io/io_backend.h"

void sl_io_list_append(struct sl_io_list *l, struct sl_io_request *r)
{
    r->own.next = NULL;
    r->own.prev = l->last;
    if (l->last != NULL)
        l->last->own.next = r;
    else
        l->first = r;
    l->last = r;
}

void sl_io_list_prepend(struct sl_io_list *l, struct sl_io_request *r)
{
    r->own.prev = NULL;
    r->own.next = l->first;
    if (l->first != NULL)
        l->first->own.prev = r;
    else
        l->last = r;
    l->first = r;
}

void sl_io_list_remove(struct sl_io_list *l, struct sl_io_request *r)
{
    if (r->own.prev != NULL)
        r->own.prev->own.next = r->own.next;
    else
        l->first = r->own.next;
    if (r->own.next != NULL)
        r->own.next->own.prev = r->own.prev;
    else
        l->last = r->own.prev;
    r->own.next = NULL;
    r->own.prev = NULL;
}

struct sl_io_request *sl_io_list_pop(struct sl_io_list *l)
{
    struct sl_io_request *r = l->first;
    if (r != NULL) sl_io_list_remove(l, r);
    return r;
}

void sl_io_queue_put(struct sl_io_queue *q, struct sl_io_request *r)
{
    r->own.state = SL_IO_WAITING;
    sl_io_list_append(&q->waiting[r->priority], r);
}

struct sl_io_request *sl_io_queue_take(struct sl_io_queue *q)
{
    struct sl_io_request *r = sl_io_list_pop(&q->waiting[SL_IO_DEMAND]);
    if (r == NULL && q->low_started < q->low_max) {
        r = sl_io_list_pop(&q->waiting[SL_IO_LOW]);
        if (r != NULL) q->low_started++;
    }
    if (r != NULL) r->own.state = SL_IO_STARTED;
    return r;
}

void sl_io_queue_finished(struct sl_io_queue *q, const struct sl_io_request *r)
{
    if (r->priority == SL_IO_DEMAND) return;
    SLUICE_ASSERT(q->low_started > 0);
    q->low_started--;
}

bool sl_io_queue_drop(struct sl_io_queue *q, struct sl_io_request *r)
{
    if (r->own.state != SL_IO_WAITING) return false;
    sl_io_list_remove(&q->waiting[r->priority], r);
    r->own.state = SL_IO_COMPLETE;
    r->code = SLUICE_E_CANCELLED;
    r->sys_errno = 0;
    r->fail_offset = r->offset;
    return true;
}

struct sl_io_request *sl_io_queue_drop_any(struct sl_io_queue *q)
{
    struct sl_io_request *r = q->waiting[SL_IO_DEMAND].first;
    if (r == NULL) r = q->waiting[SL_IO_LOW].first;
    if (r != NULL) (void)sl_io_queue_drop(q, r);
    return r;
}

bool sl_io_queue_promote(struct sl_io_queue *q, struct sl_io_request *r)
{
    if (r->own.state != SL_IO_WAITING || r->priority == SL_IO_DEMAND) return false;
    sl_io_list_remove(&q->waiting[SL_IO_LOW], r);
    r->priority = SL_IO_DEMAND;
    sl_io_list_append(&q->waiting[SL_IO_DEMAND], r);
    return true;
}

uint32_t sl_io_low_max(uint32_t low_depth, uint32_t lanes)
{
    uint32_t most = lanes > 1 ? lanes - 1 : 1;
    uint32_t n = low_depth != 0 ? low_depth : lanes / 4;
    if (n == 0) n = 1;
    return n < most ? n : most;
}
