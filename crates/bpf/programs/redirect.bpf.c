/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * UDP of one destination port, or only probe packets of it, go to the AF_XDP socket in their queue's slot, all else to
 * the kernel. On request each packet for a socket carries when it came, in place of its destination address, which is the
 * interface's own: metadata before the packet would be a cache line more to write, to copy and to read.
 */
#include "linerate.bpf.h"

const volatile __u16 dst_port = 0;  /* 0: every port, and every frame */
const volatile __u32 only_probes = 0;
const volatile __u32 stamps = 0;
const volatile __u32 by_poll = 0; /* look at the clock once a poll of the device */
const volatile __u32 by_card = 0; /* the card's stamp instead: only in a program that is loaded for its device */

/* bpf_xdp_metadata_rx_timestamp(): the loader writes the kernel's number of it in place of this one. */
static int (*const card_time)(struct xdp_md *ctx, __u64 *ns) = (void *)0x10000;

/* The lower 48 bits of CLOCK_MONOTONIC, or of the card's clock; 0: there is none. */
struct stamp {
	__u32 low;
	__u16 high;
} __attribute__((packed));
_Static_assert(sizeof(struct stamp) == 6, "a MAC address, read by redirect.rs");

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

static ALWAYS_INLINE __u64 moment(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u64 *poll, ns = 0;

	if (by_card)
		return card_time(ctx, &ns) ? 0 : ns;
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

static ALWAYS_INLINE int is_asked(struct udp *udp, void *end)
{
	return (!dst_port || udp->dest == htons(dst_port)) && (!only_probes || probe_of(udp, end));
}

/* Most frames are IPv4 without tags and options and have room for a probe: all offsets are known then. */
static ALWAYS_INLINE int is_chosen(void *data, void *end)
{
	__u8 *ip = data + ETH_LEN;
	struct udp *udp = (struct udp *)(ip + IPV4_LEN);

	if ((void *)((struct probe *)(udp + 1) + 1) <= end && *(__u16 *)(ip - 2) == htons(ETHERTYPE_IPV4) &&
	    ip[0] == 0x45) {
		int is_fragment = *(__u16 *)(ip + 6) & htons(0x3fff);

		return !is_fragment && ip[9] == PROTOCOL_UDP && is_asked(udp, end);
	}
	udp = udp_of(data, end);
	return udp && is_asked(udp, end);
}

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	void *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	struct stamp *stamp = data;
	__s64 verdict;
	__u64 now;

	if ((dst_port || only_probes) && !is_chosen(data, end))
		return XDP_PASS;
	/* Without a socket in the slot, the action of the flags: to the kernel, as it came. */
	verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	if (stamps && verdict == XDP_REDIRECT && (void *)(stamp + 1) <= end) {
		now = moment(ctx);
		stamp->low = now;
		stamp->high = now >> 32;
	}
	return verdict;
}
