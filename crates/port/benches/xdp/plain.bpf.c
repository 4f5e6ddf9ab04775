/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What linerate's XDP path is measured against: the least that sends, and the least that receives. */
#include "linerate.bpf.h"

struct {
	NUMBER(type, BPF_MAP_TYPE_DEVMAP);
	TYPE(key, __u32);
	TYPE(value, __u64);
	NUMBER(max_entries, 1);
} target SEC(".maps");

SEC("xdp")
int redirect_all(struct xdp_md *ctx)
{
	return bpf_redirect_map(&target, 0, 0);
}

SEC("xdp")
int tx_all(struct xdp_md *ctx)
{
	return XDP_TX;
}

SEC("xdp")
int drop_all(struct xdp_md *ctx)
{
	return XDP_DROP;
}
