/* A thread that is cancelled in a call finishes the call: others can go on with what it used. */
#include "verbs.h"

#include <pthread.h>

static struct ibv_context *context;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_cq *cq;

static void posts(void) { CHECK(!post_write(qp, 1, mr, 0, 8, 8, IBV_WR_RDMA_WRITE)); }
static void makes(void) { CHECK(ibv_create_cq(context, 1, NULL, NULL, 0)); }
static void says(void) { CHECK(post_write(qp, 1, mr, 0, 8, 8, IBV_WR_SEND) == EINVAL); }

static void *call(void *what) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    ((void (*)(void))what)();
    pthread_testcancel();
    return NULL;
}

int main(void) {
    context = open_mrc0();
    static char memory[16];
    struct ibv_pd *pd = ibv_alloc_pd(context);
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, 0, &gid));
    qp = make_qp(pd, cq, cq, IBV_QPT_RC);
    connect_qp(qp, &gid, qp->qp_num);
    void (*calls[])(void) = {posts, makes, says};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *end;
        CHECK(!pthread_create(&thread, NULL, call, (void *)calls[i]));
        CHECK(!pthread_join(thread, &end) && end == PTHREAD_CANCELED);
        calls[i]();
    }
    succeeds(cq, 1);
    succeeds(cq, 1);
    puts("done");
    return 0;
}
