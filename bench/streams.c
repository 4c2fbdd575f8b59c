/* Reads many event streams at once, event by event, and tells how long each event was under way.

   The rule: all that arrived between SKIP seconds from the start and the end counts: delays are kept one by one and sorted, not estimated.

   Each connection asks for a stream, reads it to its end and asks again, until SECONDS have passed. Starts are spread over RAMP seconds.
   Then it tells, and reads on uncounted until its standard input ends: to break streams off costs a target something that is no event's.
   An event is timed where it bears "clock=NANOSECONDS;" of this machine's monotonic clock (see engine.c). One JSON line at the end.

   cc -O2 -o streams streams.c && ./streams PORT PATH BODY_FILE STREAMS SECONDS RAMP SKIP [HEADER...] */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum part { HEAD, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, COUNTED, TO_THE_END };
enum { LINE_MAX_BYTES = 16384, EVENTS = 512 };

struct stream {
    int fd, asked_any, status, events_seen, keep, retry;
    size_t sent, line_length, left, event_length;
    enum part part;
    uint64_t asked_ns, again_ns;
    char line[LINE_MAX_BYTES], event[LINE_MAX_BYTES];
};

struct series { uint32_t *us10; size_t count, room; };      /* tenths of a microsecond */

static struct series delays, firsts;
static char *request;
static size_t request_length;
static struct sockaddr_in there;
static int poller;
static uint64_t events_read, bytes_read, ended, failed, counted_from;
static char first_failure[256];

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void keep(struct series *s, uint64_t ns)
{
    if (s->count == s->room && !(s->us10 = realloc(s->us10, (s->room = s->room * 2 + 65536) * sizeof *s->us10))) abort();
    s->us10[s->count++] = ns / 100 > UINT32_MAX ? UINT32_MAX : (uint32_t)(ns / 100);
}

static int smaller(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(struct series *s, double q)
{
    return s->count ? s->us10[(size_t)(q * (double)(s->count - 1))] / 1e4 : -1;
}

static void connect_anew(struct stream *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(s->fd, (struct sockaddr *)&there, sizeof there) && errno != EINPROGRESS) { perror("streams: can't connect"); exit(1); }
    epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &(struct epoll_event){ .events = EPOLLIN | EPOLLOUT, .data.ptr = s });
    s->asked_any = 0;
}

static void ask(struct stream *s)
{
    s->sent = s->line_length = s->event_length = 0;
    s->part = HEAD;
    s->status = s->events_seen = 0;
    s->asked_ns = clock_ns();
    s->retry = 0;
    if (s->fd < 0 || !s->keep) connect_anew(s);
    else epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &(struct epoll_event){ .events = EPOLLIN | EPOLLOUT, .data.ptr = s });
    s->keep = 1;
}

static void send_on(struct stream *s)
{
    ssize_t n = send(s->fd, request + s->sent, request_length - s->sent, MSG_NOSIGNAL);
    if (n > 0) s->sent += (size_t)n;
    if (s->sent == request_length) epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &(struct epoll_event){ .events = EPOLLIN, .data.ptr = s });
}

static void fail(struct stream *s, const char *why)
{
    if (!failed++) snprintf(first_failure, sizeof first_failure, "%s (status %d)", why, s->status);
    close(s->fd);
    s->fd = -1;
    s->retry = 1;
    s->again_ns = clock_ns() + 100000000u;      /* a refusing server is not stormed */
}

static void whole_event(struct stream *s, uint64_t now)
{
    s->event[s->event_length] = 0;
    char *stamp = strstr(s->event, "clock=");
    if (stamp) {
        uint64_t then = strtoull(stamp + 6, NULL, 10);
        if (!s->events_seen++) keep(&firsts, now - s->asked_ns);
        if (now >= counted_from) { keep(&delays, now > then ? now - then : 0); events_read++; }
    }
    s->event_length = 0;
}

static void content(struct stream *s, const char *data, size_t length, uint64_t now)
{
    for (size_t i = 0; i < length; i++) {
        if (data[i] == '\r') continue;
        if (data[i] == '\n' && s->event_length && s->event[s->event_length - 1] == '\n') { whole_event(s, now); continue; }
        if (s->event_length + 1 < sizeof s->event) s->event[s->event_length++] = data[i];
    }
}

static void finish(struct stream *s)
{
    if (s->status != 200 || !s->events_seen) { fail(s, s->event_length ? (s->event[s->event_length] = 0, s->event) : "no events"); return; }
    ended++;
    ask(s);
}

static int head_read(struct stream *s)       /* whether an answer follows it */
{
    s->line[s->line_length] = 0;
    s->status = atoi(s->line + 9);
    char *length = strcasestr(s->line, "\r\ncontent-length:");
    s->keep = !strcasestr(s->line, "\r\nconnection: close");
    s->left = length ? strtoul(length + 17, NULL, 10) : 0;
    s->part = strcasestr(s->line, "\r\ntransfer-encoding: chunked") ? CHUNK_SIZE : length ? COUNTED : TO_THE_END;
    s->line_length = 0;
    return s->part != COUNTED || s->left;
}

static void line_read(struct stream *s)
{
    s->line[s->line_length] = 0;
    size_t length = s->line_length;
    s->line_length = 0;
    if (s->part == CHUNK_END) { s->part = CHUNK_SIZE; return; }
    if (s->part == TRAILER) { if (length <= 2) finish(s); return; }
    s->left = strtoul(s->line, NULL, 16);
    s->part = s->left ? CHUNK : TRAILER;
}

static void take(struct stream *s, const char *data, size_t length, uint64_t now)
{
    const char *end = data + length;
    while (data < end && s->fd >= 0) {
        if (s->part == CHUNK || s->part == COUNTED || s->part == TO_THE_END) {
            size_t n = (size_t)(end - data);
            if (s->part != TO_THE_END && n > s->left) n = s->left;
            content(s, data, n, now);
            data += n;
            if (s->part == TO_THE_END || (s->left -= n)) continue;
            if (s->part == COUNTED) { finish(s); return; }
            s->part = CHUNK_END;
            continue;
        }
        if (s->line_length + 1 >= sizeof s->line) { fail(s, "a line that does not end"); return; }
        char c = s->line[s->line_length++] = *data++;
        if (c != '\n') continue;
        if (s->part != HEAD) line_read(s);
        else if (s->line_length >= 4 && !memcmp(s->line + s->line_length - 4, "\r\n\r\n", 4) && !head_read(s)) { finish(s); return; }
    }
}

static void receive(struct stream *s)
{
    static char piece[1 << 16];
    ssize_t n = recv(s->fd, piece, sizeof piece, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n > 0) {
        bytes_read += (uint64_t)n;
        take(s, piece, (size_t)n, clock_ns());
        return;
    }
    s->keep = 0;
    if (!n && s->part == TO_THE_END) finish(s);
    else fail(s, n ? strerror(errno) : "closed before its end");
}

static void make_request(const char *port, const char *path, const char *file, char **headers, int count)
{
    FILE *f = fopen(file, "rb");
    if (!f) { perror(file); exit(1); }
    fseek(f, 0, SEEK_END);
    size_t body = (size_t)ftell(f);
    rewind(f);
    request = malloc(body + 65536);
    int n = sprintf(request, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n", path, port, body);
    for (int i = 0; i < count && n < 60000; i++) n += sprintf(request + n, "%.2000s\r\n", headers[i]);
    n += sprintf(request + n, "\r\n");
    if (fread(request + n, 1, body, f) != body) { perror(file); exit(1); }
    fclose(f);
    request_length = (size_t)n + body;
}

/* What has come in, waiting at most so long. */
static void read_some(int wait_ms)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(poller, events, EVENTS, wait_ms);
    for (int i = 0; i < count; i++) {
        struct stream *s = events[i].data.ptr;
        if (s->fd >= 0 && events[i].events & EPOLLOUT) send_on(s);
        if (s->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(s);
    }
}

int main(int argc, char **argv)
{
    if (argc < 8) { fprintf(stderr, "streams PORT PATH BODY_FILE STREAMS SECONDS RAMP SKIP [HEADER...]\n"); return 2; }
    signal(SIGPIPE, SIG_IGN);
    there = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    make_request(argv[1], argv[2], argv[3], argv + 8, argc - 8);
    size_t wanted = strtoul(argv[4], NULL, 10), started = 0;
    double seconds = atof(argv[5]), ramp = atof(argv[6]), skip = atof(argv[7]);
    struct stream *streams = calloc(wanted, sizeof *streams);
    poller = epoll_create1(0);
    uint64_t begin = clock_ns(), end = begin + (uint64_t)(seconds * 1e9), step = (uint64_t)(ramp * 1e9 / (double)wanted);
    counted_from = begin + (uint64_t)(skip * 1e9);
    for (uint64_t now; (now = clock_ns()) < end;) {
        for (; started < wanted && now >= begin + started * step; started++) { streams[started].fd = -1; ask(&streams[started]); }
        if (failed) for (size_t i = 0; i < started; i++) if (streams[i].retry && now >= streams[i].again_ns) ask(&streams[i]);
        read_some(started < wanted || failed ? 1 : (int)((end - now) / 1000000) + 1);
    }
    double took = (double)(clock_ns() - counted_from) / 1e9;
    size_t open_now = 0;
    for (size_t i = 0; i < started; i++) open_now += streams[i].fd >= 0 && streams[i].events_seen > 0;
    qsort(delays.us10, delays.count, sizeof *delays.us10, smaller);
    qsort(firsts.us10, firsts.count, sizeof *firsts.us10, smaller);
    for (char *c = first_failure; *c; c++) if (*c == '"' || *c == '\\' || *c < ' ') *c = ' ';
    printf("{\"seconds\":%.3f,\"events\":%llu,\"bytes\":%llu,\"open\":%zu,\"ended\":%llu,\"failed\":%llu,\"failure\":\"%s\",\"first_p50_ms\":%.3f,"
           "\"first_p99_ms\":%.3f,\"delay_p50_ms\":%.4f,\"delay_p99_ms\":%.4f,\"delay_max_ms\":%.4f}\n",
           took, (unsigned long long)events_read, (unsigned long long)bytes_read, open_now, (unsigned long long)ended, (unsigned long long)failed, first_failure,
           quantile_ms(&firsts, .5), quantile_ms(&firsts, .99), quantile_ms(&delays, .5), quantile_ms(&delays, .99), quantile_ms(&delays, 1));
    fflush(stdout);
    for (struct pollfd input = { .fd = 0, .events = POLLIN }; poll(&input, 1, 0) == 0;) read_some(20);
    return 0;
}
