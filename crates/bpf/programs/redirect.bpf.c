/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * UDP of one destination port, or only probe packets of it, go to the AF_XDP socket in their queue's slot, all else to
 * the kernel. On request each packet carries when it came and on which CPU, in the metadata before its first byte.
 */
#include "linerate.bpf.h"

const volatile __u16 dst_port = 0;  /* 0: every port, and every frame */
const volatile __u32 only_probes = 0;
const volatile __u32 stamps = 0;
const volatile __u32 by_poll = 0; /* look at the clock once a poll of the device */

#define STAMP_MAGIC 0x6c72746d /* tells stamps from what was in the frame before */

struct stamp {
	__u64 arrived_ns; /* CLOCK_MONOTONIC */
	__u32 cpu;
	__u32 magic;
};
_Static_assert(sizeof(struct stamp) == 16, "read by port/src/xsk/rx.rs");

struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	TYPE(key, __u32);
	TYPE(value, __u32);
	NUMBER(max_entries, 64); /* set by the loader */
} sockets SEC(".maps");

/* The time of the current poll, 0 when it has just begun. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	NUMBER(max_entries, 1);
} polls SEC(".maps");

static ALWAYS_INLINE __u64 moment(void)
{
	__u32 zero = 0;
	__u64 *poll;

	if (!by_poll)
		return bpf_ktime_get_ns();
	poll = bpf_map_lookup_elem(&polls, &zero);
	if (!poll)
		return 0;
	if (!*poll)
		*poll = bpf_ktime_get_ns();
	return *poll;
}

/* napi:napi_poll comes at the end of each poll. */
SEC("raw_tracepoint/napi_poll")
int redirect_polled(void *ctx)
{
	__u32 zero = 0;
	__u64 *poll = bpf_map_lookup_elem(&polls, &zero);

	if (poll)
		*poll = 0;
	return 0;
}

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	void *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;

	if (dst_port || only_probes) {
		struct udp *udp = udp_of(data, end);

		if (!udp || (dst_port && udp->dest != htons(dst_port)) || (only_probes && !probe_of(udp, end)))
			return XDP_PASS;
	}
	if (stamps && !bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct stamp))) {
		struct stamp *stamp = (void *)(__u64)ctx->data_meta;

		if ((void *)(stamp + 1) > (void *)(__u64)ctx->data)
			return XDP_PASS;
		stamp->arrived_ns = moment();
		stamp->cpu = bpf_get_smp_processor_id();
		stamp->magic = STAMP_MAGIC;
	}
	/* Without a socket in the slot, the action of the flags: to the kernel. */
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}
