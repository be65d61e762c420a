/* Two queue pairs of one program, connected with each other: every call that a program makes. */
#include "verbs.h"

#include <sys/prctl.h>

enum { SIZE = 1 << 16 };

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "hidden")) /* from the NIC: a thread moves the payload */
        CHECK(!prctl(PR_SET_DUMPABLE, 0));
    struct ibv_context *context = open_mrc0();
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    CHECK(!ibv_query_device(context, &device) && device.phys_port_cnt == 1);
    CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
    CHECK(!ibv_query_gid(context, 1, 0, &gid));
    struct ibv_pd *pd = ibv_alloc_pd(context);
    unsigned char *memory = malloc(SIZE);
    for (int i = 0; i < SIZE; i++)
        memory[i] = i % 251;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE / 2, access);
    CHECK(pd && mr);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *sends = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_cq *receives = ibv_create_cq(context, 4, &gid, channel, 0);
    CHECK(channel && sends && receives);
    struct ibv_qp *a = make_qp(pd, sends, receives, IBV_QPT_RC);
    struct ibv_qp *b = make_qp(pd, sends, receives, IBV_QPT_RC);
    CHECK(a && b);
    connect_qp(a, &gid, b->qp_num);
    connect_qp(b, &gid, a->qp_num);

    /* Both directions, an immediate, and the event of a channel. */
    CHECK(!post_write(a, 1, mr, 0, SIZE / 4, 9000, IBV_WR_RDMA_WRITE));
    succeeds(sends, 1);
    CHECK(!memcmp(memory, memory + SIZE / 4, 9000));
    CHECK(!ibv_req_notify_cq(receives, 1) && !post_receive(a, 2));
    CHECK(!post_write(b, 3, mr, 0, 1, 1, IBV_WR_RDMA_WRITE_WITH_IMM));
    struct ibv_cq *ready;
    void *argument;
    CHECK(!ibv_get_cq_event(channel, &ready, &argument) && ready == receives && argument == &gid);
    ibv_ack_cq_events(ready, 1);
    succeeds(receives, 2);
    succeeds(sends, 3);

    /* A completion queue of another size keeps what waits in it. */
    for (int i = 0; i < 3; i++)
        CHECK(!post_write(a, 10 + i, mr, 0, 100, 10, IBV_WR_RDMA_WRITE));
    CHECK(ibv_resize_cq(sends, 0) == EINVAL);
    CHECK(!ibv_resize_cq(sends, 100) && sends->cqe >= 100);
    for (int i = 0; i < 3; i++)
        succeeds(sends, 10 + i);

    /* The same object for other memory: who has the old keys has none of it. */
    uint32_t old = mr->rkey;
    CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 0, 0) ==
          IBV_REREG_MR_ERR_INPUT);
    CHECK(mr->rkey == old && mr->length == SIZE / 2);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, SIZE, 0));
    CHECK(mr->length == SIZE && mr->rkey != old);
    CHECK(!post_write(a, 20, mr, 0, SIZE - 100, 100, IBV_WR_RDMA_WRITE));
    succeeds(sends, 20);
    CHECK(!memcmp(memory, memory + SIZE - 100, 100));
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
    CHECK(!post_write(a, 21, mr, 0, 100, 1, IBV_WR_RDMA_WRITE));
    CHECK(completion(sends).status == IBV_WC_REM_ACCESS_ERR);
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b);
    ibv_ack_async_event(&event);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(a, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);

    CHECK(ibv_destroy_cq(sends) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(sends));
    CHECK(!ibv_destroy_cq(receives) && !ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    free(memory);
    puts("done");
    return 0;
}
