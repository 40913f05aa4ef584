/* The other side of a link, by the headers and functions of libfabric alone; see test_libfabric.py.
 *
 *   libfabric_peer PROVIDER PORT write WRITES     writes, with fi_writedata, where the other side says
 *   libfabric_peer PROVIDER PORT receive WRITES   registers memory; what is written there goes to stdout
 *   libfabric_peer PROVIDER PORT key|place|key-silent|place-silent WRITES
 *                                                 one write with a wrong key, or behind the end of the region, with or
 *                                                 without an event; then as write
 */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) do { long code_ = (call); if (code_ < 0) { \
    fprintf(stderr, "%s: %s\n", #call, fi_strerror((int) -code_)); exit(1); } } while (0)
enum { SLOTS = 16, SLOT = 1 << 19 };
static int sock;
static struct fid_cq *cq;
static uint64_t events, written, messages, region[4];
static uint8_t in[1 << 17];

static void control(const void *bytes, uint32_t length) { /* one message of the connection: a header of 32 bytes first */
    uint8_t head[32] = "KLNK\3";
    memcpy(head + 24, &length, 4);
    if (write(sock, head, 32) != 32 || write(sock, bytes, length) != (ssize_t) length) { perror("write"); exit(1); }
}
static void numbers(uint8_t kind, const uint64_t *values, int count) {
    uint8_t out[64] = {kind};
    memcpy(out + 1, values, 8 * count);
    control(out, 1 + 8 * count);
}
static void whole(void *to, size_t length) {
    for (ssize_t n; length; to = (char *) to + n, length -= n)
        if ((n = read(sock, to, length)) <= 0) { fprintf(stderr, "the other side closed the link\n"); exit(2); }
}
static uint32_t hear(void) { /* a message of the connection, into `in` */
    uint8_t head[32];
    uint32_t length;
    whole(head, 32);
    memcpy(&length, head + 24, 4);
    if (length > sizeof in) exit(1);
    whole(in, length);
    if (in[0] == 2) memcpy(region, in + 1, 32);
    if (in[0] == 3) { messages++; numbers(4, (uint64_t[]){messages, events}, 2); }
    return length;
}
static uint32_t content(uint32_t n, uint8_t *to) {
    uint32_t length = n % 100 == 7 ? 300000 : 1 + n * 7919 % 20000;
    for (uint32_t i = 0; i < length; i++) to[i] = (i * 31 + n * 2654435761u) >> 5;
    return length;
}
static int step(uint32_t *event) { /* makes progress; 1: an event, 0: nothing or a write that is done */
    struct fi_cq_data_entry entry;
    struct pollfd fd = {sock, POLLIN, 0};
    static int idle;
    if (++idle > 100) usleep(50); /* lets the other side run where processors are few */
    ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n != -FI_EAGAIN) idle = 0;
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        OK(fi_cq_readerr(cq, &error, 0));
        fprintf(stderr, "refused: %s\n", fi_strerror(error.err));
        written++;
    } else if (n == 1 && entry.flags & FI_REMOTE_CQ_DATA) {
        *event = (uint32_t) entry.data;
        events++;
        return 1;
    } else if (n == 1) {
        written++;
    } else if (poll(&fd, 1, 0) == 1) {
        hear();
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5) return 64;
    uint32_t count = atoi(argv[4]), event = 0;
    int receives = !strcmp(argv[3], "receive"), silent = strstr(argv[3], "silent") != NULL;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sock = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sock, (struct sockaddr *) &to, sizeof to)) { perror("connect"); return 1; }
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(argv[1]);
    int by_host = strcmp(argv[1], "shm") != 0;
    OK(fi_getinfo(FI_VERSION(1, 9), by_host ? "127.0.0.1" : NULL, NULL, by_host ? FI_SOURCE : 0, hints, &info));
    struct fid_fabric *fabric; struct fid_domain *domain; struct fid_ep *ep; struct fid_av *av; struct fid_mr *mr;
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_DATA};
    struct fi_av_attr vector = {.type = info->domain_attr->av_type};
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    OK(fi_domain(fabric, info, &domain, NULL));
    OK(fi_cq_open(domain, &queue, &cq, NULL));
    OK(fi_av_open(domain, &vector, &av, NULL));
    OK(fi_endpoint(domain, info, &ep, NULL));
    OK(fi_ep_bind(ep, &av->fid, 0));
    OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    OK(fi_enable(ep));
    uint8_t *memory = calloc(SLOTS, SLOT), hello[600] = {1, 1}, kind[64];
    OK(fi_mr_reg(domain, memory, SLOTS * SLOT, FI_REMOTE_WRITE | FI_WRITE, 0, 77, 0, &mr, NULL));
    int named = sprintf((char *) kind, "libfabric %s", argv[1]);
    size_t length = 500;
    memcpy(hello + 2, &(uint16_t){named}, 2);
    memcpy(hello + 4, kind, named);
    OK(fi_getname(&ep->fid, hello + 6 + named, &length));
    memcpy(hello + 4 + named, &(uint16_t){length}, 2);
    control(hello, 6 + named + length);
    fi_addr_t other;
    hear(); /* its hello: the address stands behind the name */
    OK(fi_av_insert(av, in + 6 + named, 1, &other, 0, NULL) - 1);
    int virtual = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    if (receives) {
        uint64_t own[4] = {4711, fi_mr_key(mr), virtual ? (uint64_t) memory : 0, SLOTS * SLOT};
        numbers(2, own, 4);
        numbers(3, (uint64_t[]){0, own[0]}, 2);
        for (uint32_t n = 0; n < count; ) {
            if (!step(&event)) continue;
            static uint8_t same[SLOT];
            fwrite(&event, 4, 1, stdout);
            fwrite(memory + event % SLOTS * SLOT, 1, content(event, same), stdout);
            if (++n % SLOTS == 0) numbers(3, (uint64_t[]){0, n}, 2);
        }
        while (messages == 0) step(&event); /* "done" comes last */
        return 0;
    }
    while (!messages) hear(); /* its region, then the key in a message */
    if (strcmp(argv[3], "write")) {
        int key = !strncmp(argv[3], "key", 3);
        uint64_t place = region[2] + (key ? 0 : region[3] - 4), named_key = region[1] ^ (key ? 5 : 0);
        memset(memory, 0xEE, 100);
        ssize_t code;
        while ((code = silent ? fi_write(ep, memory, 100, fi_mr_desc(mr), other, place, named_key, NULL)
                              : fi_writedata(ep, memory, 100, fi_mr_desc(mr), 666, other, place, named_key, NULL)) == -FI_EAGAIN)
            step(&event);
        OK(code);
        while (written == 0) step(&event);
        for (int n = 0; n < 300; n++, usleep(1000)) step(&event); /* time for the other side to look at it */
        fprintf(stderr, "the wrong write is over\n");
    }
    uint64_t before = written;
    for (uint32_t n = 0; n < count; n++) {
        uint64_t heard = messages, place = n % SLOTS * SLOT;
        uint32_t bytes = content(n, memory + place);
        ssize_t code;
        while ((code = fi_writedata(ep, memory + place, bytes, fi_mr_desc(mr), n, other, region[2] + place, region[1], NULL)) == -FI_EAGAIN)
            step(&event);
        OK(code);
        if (n % SLOTS == SLOTS - 1)
            while (written - before <= n || messages == heard) step(&event);
    }
    while (written - before < count) step(&event);
    return 0; /* without an end that is said: the connection closes */
}
