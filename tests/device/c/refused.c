/* What MRC does not have: each call fails as its manual page says, twice, and is named once. */
#include "verbs.h"

int main(void) {
    struct ibv_context *context = open_mrc0();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, 0, &gid));
    struct ibv_qp *qp = make_qp(pd, cq, cq, IBV_QPT_RC);
    connect_qp(qp, &gid, qp->qp_num);
    for (int twice = 0; twice < 2; twice++) {
        for (int opcode = IBV_WR_SEND; opcode <= IBV_WR_TSO; opcode++)
            CHECK(post_write(qp, 1, mr, 0, 0, 8, opcode) == EINVAL);
        enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND,
                                    IBV_QPT_XRC_RECV};
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            REFUSED(EOPNOTSUPP, make_qp(pd, cq, cq, types[i]));
        struct ibv_ah_attr ah = {.is_global = 1, .grh.dgid = gid, .port_num = 1};
        REFUSED(EOPNOTSUPP, ibv_create_ah(pd, &ah));
        struct ibv_srq_init_attr srq = {.attr = {1, 1, 0}};
        REFUSED(EOPNOTSUPP, ibv_create_srq(pd, &srq));
        struct ibv_srq_init_attr_ex srq_ex = {
            .attr = {1, 1, 0}, .pd = pd, .srq_type = IBV_SRQT_XRC,
            .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD};
        REFUSED(EOPNOTSUPP, ibv_create_srq_ex(context, &srq_ex));
        struct ibv_xrcd_init_attr xrcd = {.fd = -1};
        REFUSED(EOPNOTSUPP, ibv_open_xrcd(context, &xrcd));
        struct ibv_qp_init_attr_ex qp_ex = {
            .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
            .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
        REFUSED(EOPNOTSUPP, ibv_create_qp_ex(context, &qp_ex));
        struct ibv_cq_init_attr_ex cq_ex = {.cqe = 1};
        REFUSED(EOPNOTSUPP, ibv_create_cq_ex(context, &cq_ex));
        REFUSED(EOPNOTSUPP, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
        struct ibv_alloc_dm_attr dm = {.length = 1};
        REFUSED(EOPNOTSUPP, ibv_alloc_dm(context, &dm));
        struct ibv_wq_init_attr wq = {.pd = pd, .cq = cq};
        REFUSED(EOPNOTSUPP, ibv_create_wq(context, &wq));
        struct ibv_flow_attr flow = {.port = 1};
        REFUSED(EOPNOTSUPP, ibv_create_flow(qp, &flow));
        struct ibv_parent_domain_init_attr parent = {.pd = pd};
        REFUSED(EOPNOTSUPP, ibv_alloc_parent_domain(context, &parent));
        REFUSED(EOPNOTSUPP, ibv_reg_mr(pd, memory, 1, IBV_ACCESS_ON_DEMAND));
    }
    /* What has a replacement in verbs.h is there. */
    struct ibv_device_attr_ex ex;
    CHECK(!ibv_query_device_ex(context, NULL, &ex) && ex.orig_attr.phys_port_cnt == 1);
    struct ibv_qp_init_attr_ex plain = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                        .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD};
    struct ibv_qp *made = ibv_create_qp_ex(context, &plain);
    CHECK(made && !ibv_destroy_qp(made));
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    puts("done");
    return 0;
}
