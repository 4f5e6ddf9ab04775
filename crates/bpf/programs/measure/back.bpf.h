/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Probes that go back to senders that agreed to it. */
#ifndef MEASURE_BACK_H
#define MEASURE_BACK_H

#include "linerate.bpf.h"

const volatile __u32 return_by_redirect = 0; /* to the interface they came in at, instead of XDP_TX */

struct returns_key {
	__u64 address[2];
	__u64 is_ipv6;
};
_Static_assert(sizeof(struct returns_key) == 24, "written by returns.rs");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct returns_key);
	TYPE(value, __u32);
	NUMBER(max_entries, 256);
} returns SEC(".maps");

static ALWAYS_INLINE void swap16(__u16 *a, __u16 *b)
{
	__u16 was = *a;

	*a = *b;
	*b = was;
}

static ALWAYS_INLINE void swap32(__u32 *a, __u32 *b)
{
	__u32 was = *a;

	*a = *b;
	*b = was;
}

/*
 * A veth's packets may have a checksum that a card was to complete: so far that of the pseudo header alone. IPv4 may do
 * without one.
 */
static ALWAYS_INLINE void drop_unfinished_checksum(__u8 *ip, struct udp *udp)
{
	__u32 sum = htons(PROTOCOL_UDP) + udp->len;

#pragma unroll
	for (int half = 12; half < 20; half += 2)
		sum += *(__u16 *)(ip + half);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (udp->check == sum)
		udp->check = 0;
}

/* As wire::turn_frame_back: everything changes places, so that no checksum changes. */
static ALWAYS_INLINE int turn_back(__u32 interface, __u16 *mac, __u8 *ip, struct udp *udp, struct probe *probe, void *end)
{
	if ((ip[0] >> 4) == 6) {
		if ((void *)(ip + IPV6_LEN) > end)
			return XDP_PASS;
		swap32((__u32 *)(ip + 8), (__u32 *)(ip + 24));
		swap32((__u32 *)(ip + 12), (__u32 *)(ip + 28));
		swap32((__u32 *)(ip + 16), (__u32 *)(ip + 32));
		swap32((__u32 *)(ip + 20), (__u32 *)(ip + 36));
	} else {
		drop_unfinished_checksum(ip, udp);
		swap32((__u32 *)(ip + 12), (__u32 *)(ip + 16));
	}
	swap16(&mac[0], &mac[3]);
	swap16(&mac[1], &mac[4]);
	swap16(&mac[2], &mac[5]);
	swap16(&udp->source, &udp->dest);
	probe->magic = htonl(PROBE_MAGIC << 16 | PROBE_MAGIC >> 16);
	/* A veth puts what XDP_TX sends into its peer's ring, but wakes only a peer with a program (veth_xdp_flush()). */
	return return_by_redirect ? bpf_redirect(interface, 0) : XDP_TX;
}

#endif
