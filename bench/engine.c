/* A scripted model server for measuring what stands in front of it: OpenAI-shaped, one thread, quick enough not to be what is measured.

   The rule: an answer follows from the model's name alone, so that the same request gives the same answer through any gateway.

     bench-whole              one JSON answer with usage and timings
     bench-stream-COUNTxGAP   a stream of COUNT events, GAP ms apart (0: as fast as the socket takes them, one send an event)
     bench-step-COUNTxGAP     the same, but all streams send at the same moments, as an engine that batches does

   Each event carries this machine's monotonic clock as "clock=NANOSECONDS;" at the moment of its send, so that a client here can tell
   how long it was under way, even through a gateway that writes events anew. GET /health, /v1/models and /streams (how many are open).

   cc -O2 -o engine engine.c && ./engine PORT */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, BURST = 16, PIECE = 1 << 16, HEAD_MAX = 1 << 16 };
#define MODEL_PREFIX "bench-"

struct bytes { char *data; size_t from, end, room; };

struct peer {
    int fd, gone, waits_for_room;
    struct bytes in, out;
    size_t whole;                      /* length of the request being received, once its head is known */
    int count, sent, step;             /* a stream under way: count > 0 */
    uint64_t gap_ns, due_ns;
    size_t place;                      /* in the heap of timers, from 1; 0: not there */
    char model[64];
    long prompt_tokens;
};

static int poller, timer;
static struct peer **heap;
static size_t heap_size, heap_room;
static long open_streams;

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void reserve(struct bytes *b, size_t more)
{
    if (b->from == b->end) b->from = b->end = 0;
    if (b->end + more <= b->room) return;
    memmove(b->data, b->data + b->from, b->end - b->from);
    b->end -= b->from;
    b->from = 0;
    if (b->end + more <= b->room) return;
    b->room = (b->end + more) * 2;
    if (!(b->data = realloc(b->data, b->room))) abort();
}

/* timers: a heap by the moment that is due */

static void put(struct peer *p, size_t place) { heap[place] = p; p->place = place; }

static void sift(struct peer *p, size_t place)
{
    while (place > 1 && heap[place / 2]->due_ns > p->due_ns) { put(heap[place / 2], place); place /= 2; }
    for (size_t child; (child = place * 2) <= heap_size; place = child) {
        if (child < heap_size && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= p->due_ns) break;
        put(heap[child], place);
    }
    put(p, place);
}

static void wake_at(struct peer *p, uint64_t due_ns)
{
    p->due_ns = due_ns;
    if (!p->place) {
        if (heap_size + 2 > heap_room && !(heap = realloc(heap, (heap_room = heap_size * 2 + 1024) * sizeof *heap))) abort();
        p->place = ++heap_size;
    }
    sift(p, p->place);
}

static void forget(struct peer *p)
{
    if (!p->place) return;
    size_t place = p->place;
    struct peer *last = heap[heap_size--];
    p->place = 0;
    if (last != p) sift(last, place);
}

/* sending */

static void leave(struct peer *p)
{
    if (p->gone) return;
    if (p->count) open_streams--;
    p->count = 0;
    p->gone = 1;
    forget(p);
    close(p->fd);
}

static void listen_for(struct peer *p, int room)
{
    if (p->waits_for_room == room) return;
    p->waits_for_room = room;
    struct epoll_event e = { .events = EPOLLIN | (room ? EPOLLOUT : 0), .data.ptr = p };
    epoll_ctl(poller, EPOLL_CTL_MOD, p->fd, &e);
}

static int flush(struct peer *p)       /* whether all is out */
{
    while (p->out.from < p->out.end) {
        ssize_t sent = send(p->fd, p->out.data + p->out.from, p->out.end - p->out.from, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) { listen_for(p, 1); return 0; }
        if (sent < 0) { leave(p); return 0; }
        p->out.from += (size_t)sent;
    }
    listen_for(p, 0);
    return 1;
}

static void say(struct peer *p, const char *text, size_t length)
{
    reserve(&p->out, length);
    memcpy(p->out.data + p->out.end, text, length);
    p->out.end += length;
}

static void answer(struct peer *p, const char *status, const char *json)
{
    char head[256];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", status, strlen(json));
    say(p, head, (size_t)n);
    say(p, json, strlen(json));
    flush(p);
}

static void event(struct peer *p, const char *data)
{
    char frame[2048];
    int n = snprintf(frame, sizeof frame, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
    say(p, frame, (size_t)n);
}

#define USAGE "\"usage\":{\"prompt_tokens\":%ld,\"completion_tokens\":%d,\"total_tokens\":%ld,\"prompt_tokens_details\":{\"cached_tokens\":0}}," \
              "\"timings\":{\"cache_n\":0,\"prompt_n\":%ld,\"prompt_ms\":1.0,\"predicted_n\":%d,\"predicted_ms\":1.0}"
#define USED(p, n) (p)->prompt_tokens, (n), (p)->prompt_tokens + (n), (p)->prompt_tokens, (n)
#define CHUNK "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"%s\",\"choices\":"

static void whole(struct peer *p)
{
    char json[2048];
    enum { TOKENS = 48 };
    snprintf(json, sizeof json,
             "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[{\"index\":0,\"message\":"
             "{\"role\":\"assistant\",\"content\":\"The function reads the file once, keeps its lines, and gives back those that match. Two callers pass a "
             "pattern that was never compiled; both should use the one of the module, and the test that covers them has to name the line it expects.\"},"
             "\"logprobs\":null,\"finish_reason\":\"stop\"}]," USAGE "}", p->model, USED(p, TOKENS));
    answer(p, "200 OK", json);
}

static void last_events(struct peer *p)
{
    char data[1024];
    snprintf(data, sizeof data, CHUNK "[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}", p->model);
    event(p, data);
    snprintf(data, sizeof data, CHUNK "[]," USAGE "}", p->model, USED(p, p->count));
    event(p, data);
    event(p, "[DONE]");
    say(p, "0\r\n\r\n", 5);
    p->count = 0;
    open_streams--;
    forget(p);
    flush(p);
}

static uint64_t next_due(struct peer *p, uint64_t after)
{
    if (p->step && p->gap_ns) return (after / p->gap_ns + 1) * p->gap_ns;
    return after + p->gap_ns;
}

static void go_on(struct peer *p)      /* sends what is due of a stream */
{
    char data[1024];
    for (int burst = 0; p->count && p->sent < p->count && burst < (p->gap_ns ? 1 : BURST); burst++) {
        snprintf(data, sizeof data, CHUNK "[{\"index\":0,\"delta\":{\"content\":\"clock=%llu; the next\"},\"finish_reason\":null}]}", p->model,
                 (unsigned long long)clock_ns());
        p->sent++;
        event(p, data);
        if (!flush(p)) return;         /* goes on when there is room */
    }
    if (!p->count) return;
    if (p->sent == p->count) last_events(p);
    else wake_at(p, p->gap_ns ? next_due(p, p->due_ns) : clock_ns());
}

static void stream(struct peer *p)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    char data[512];
    say(p, head, sizeof head - 1);
    snprintf(data, sizeof data, CHUNK "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},\"finish_reason\":null}]}", p->model);
    event(p, data);
    p->sent = 0;
    open_streams++;
    if (flush(p) || !p->gone) wake_at(p, p->gap_ns ? next_due(p, clock_ns()) : clock_ns());
}

/* receiving */

static void carry_out(struct peer *p, const char *request, size_t head, size_t length)
{
    if (!memcmp(request, "GET /health", 11)) { answer(p, "200 OK", "{\"status\":\"ok\"}"); return; }
    if (!memcmp(request, "GET /v1/models", 14)) { answer(p, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"bench-whole\",\"object\":\"model\"}]}"); return; }
    if (!memcmp(request, "GET /streams", 12)) {
        char json[64];
        snprintf(json, sizeof json, "{\"open\":%ld}", open_streams);
        answer(p, "200 OK", json);
        return;
    }
    const char *name = memmem(request + head, length - head, "\"" MODEL_PREFIX, 1 + strlen(MODEL_PREFIX));
    const char *end = name ? memchr(name + 1, '"', (size_t)(request + length - name - 1)) : NULL;
    if (memcmp(request, "POST /v1/chat/completions", 25) || !end || (size_t)(end - name) > sizeof p->model) {
        answer(p, "404 Not Found", "{\"error\":{\"message\":\"no such thing here\",\"code\":404}}");
        return;
    }
    snprintf(p->model, sizeof p->model, "%.*s", (int)(end - name - 1), name + 1);
    p->prompt_tokens = (long)(length - head) / 4;
    double gap_ms = 0;
    const char *script = p->model + strlen(MODEL_PREFIX);
    p->step = !strncmp(script, "step-", 5);
    if (sscanf(script, p->step ? "step-%dx%lf" : "stream-%dx%lf", &p->count, &gap_ms) == 2 && p->count > 0) {
        p->gap_ns = (uint64_t)(gap_ms * 1e6);
        stream(p);
    } else {
        p->count = 0;
        whole(p);
    }
}

static size_t request_length(struct peer *p, size_t *head)     /* 0: not yet known */
{
    char *start = p->in.data + p->in.from, *blank = memmem(start, p->in.end - p->in.from, "\r\n\r\n", 4);
    if (!blank) return 0;
    *head = (size_t)(blank - start) + 4;
    *blank = 0;                        /* bounds the searches below */
    char *length = strcasestr(start, "\r\ncontent-length:"), *coding = strcasestr(start, "\r\ntransfer-encoding: chunked");
    *blank = '\r';
    if (!coding) return *head + (length ? strtoul(length + 17, NULL, 10) : 0);
    char *end = memmem(blank, (size_t)(p->in.data + p->in.end - blank), "\r\n0\r\n\r\n", 7);
    return end ? (size_t)(end - start) + 7 : 0;
}

static void receive(struct peer *p)
{
    for (;;) {
        reserve(&p->in, p->whole ? p->whole + PIECE : PIECE);
        ssize_t got = recv(p->fd, p->in.data + p->in.end, p->in.room - p->in.end, 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) { leave(p); return; }
        p->in.end += (size_t)got;
        size_t head = 0;
        while (!p->gone && !p->count && p->in.from < p->in.end) {
            size_t held = p->in.end - p->in.from;
            if (p->whole > held) break;
            p->whole = request_length(p, &head);
            if (!p->whole && held > HEAD_MAX * 64) { leave(p); return; }
            if (!p->whole || p->whole > held) break;
            size_t length = p->whole;
            p->whole = 0;
            carry_out(p, p->in.data + p->in.from, head, length);
            p->in.from += length;
        }
        if (p->gone) return;
    }
}

static void welcome(int door)
{
    for (int fd; (fd = accept4(door, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        struct peer *p = calloc(1, sizeof *p);
        if (!p) abort();
        p->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = p };
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static void arm_timer(void)
{
    static uint64_t armed;
    uint64_t due = heap_size ? heap[1]->due_ns : 0;
    if (due == armed && due > clock_ns()) return;
    armed = due;
    struct itimerspec when = { .it_value = { .tv_sec = (time_t)(due / 1000000000u), .tv_nsec = (long)(due % 1000000000u) } };
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void sweep(struct peer **gone, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(gone[i]->in.data);
        free(gone[i]->out.data);
        free(gone[i]);
    }
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, 4096)) { perror("engine: can't listen"); return 1; }
    poller = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    epoll_ctl(poller, EPOLL_CTL_ADD, door, &(struct epoll_event){ .events = EPOLLIN, .data.ptr = &door });
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &(struct epoll_event){ .events = EPOLLIN, .data.ptr = &timer });
    for (;;) {
        struct epoll_event events[EVENTS];
        struct peer *gone[EVENTS];
        size_t left = 0;
        arm_timer();
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &door) { welcome(door); continue; }
            if (events[i].data.ptr == &timer) { uint64_t times; if (read(timer, &times, sizeof times) < 0 && errno != EAGAIN) abort(); continue; }
            struct peer *p = events[i].data.ptr;
            if (events[i].events & EPOLLOUT && flush(p) && p->count && !p->place) wake_at(p, clock_ns());
            if (!p->gone && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(p);
            if (p->gone) gone[left++] = p;
        }
        uint64_t now = clock_ns();
        struct peer *parted[EVENTS];
        size_t n = 0;
        while (heap_size && heap[1]->due_ns <= now && n < EVENTS) {
            struct peer *p = heap[1];
            forget(p);
            if (p->out.from == p->out.end) go_on(p);
            if (p->gone) parted[n++] = p;
        }
        sweep(gone, left);
        sweep(parted, n);
    }
}
