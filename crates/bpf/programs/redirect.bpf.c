/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* UDP of one destination port goes to the AF_XDP socket in its queue's slot, all else to the kernel. */
#include "linerate.bpf.h"

const volatile __u16 dst_port = 0; /* 0: every port, and every frame */

struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	TYPE(key, __u32);
	TYPE(value, __u32);
	NUMBER(max_entries, 64); /* set by the loader */
} sockets SEC(".maps");

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	if (dst_port) {
		struct udp *udp = udp_of((void *)(__u64)ctx->data, (void *)(__u64)ctx->data_end);

		if (!udp || udp->dest != htons(dst_port))
			return XDP_PASS;
	}
	/* Without a socket in the slot, the action of the flags: to the kernel. */
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}
