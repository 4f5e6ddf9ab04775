/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts a socket's probe packets by the receive queue that the driver recorded in them (skb_record_rx_queue()),
 * before they reach the socket's buffer, and passes all. It has two banks: while one is read and cleared, the other
 * is filled.
 */
#include "linerate.bpf.h"

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping; /* the queue plus 1; 0: the driver wrote none down */
	__u32 protocol;
	__u32 vlan_present;
	__u32 unused[36];
	__u64 sk;
	__u32 gso_size;
	__u32 unused_end;
	__u64 hwtstamp;
};
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "linux/bpf.h");

static __s64 (*const bpf_skb_load_bytes)(const struct __sk_buff *skb, __u32 offset, void *to, __u32 len) = (void *)26;

#define ALL (~0u) /* bytes of the packet that the socket gets */
#define FROM_HERE 4 /* PACKET_OUTGOING */
/* Ethernet with two tags, IPv4 with all its options, UDP and a probe header. */
#define MOST_HEADERS (ETH_LEN + 2 * VLAN_LEN + 60 + UDP_LEN + sizeof(struct probe))
#define ALIGNED 2 /* behind so many bytes, Ethernet's header leaves those behind it where 4 divides */

const volatile __u32 of_datagrams = 0; /* packets begin with the UDP header, else with Ethernet's */
const volatile __u32 is_timed = 0;
const volatile __u32 queues = 1;

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct queue);
	NUMBER(max_entries, 4); /* by `queue_mapping`: one more than there are queues, twice */
} by_queue SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u32);
	NUMBER(max_entries, 1);
} bank SEC(".maps");

struct counted {
	__u64 packets;
	__u64 payload_bytes;
	__u64 frame_bytes;
};

static ALWAYS_INLINE __u64 frame_of(__u64 bytes)
{
	return bytes < LEAST_FRAME ? LEAST_FRAME : bytes;
}

/*
 * A datagram, or several that GRO joined: their payloads behind the first one's header, all as long as a segment but the last.
 * Their number is not always in `gso_segs`: not if they were joined outside this kernel.
 */
static ALWAYS_INLINE int is_datagram(struct __sk_buff *skb, struct counted *counted)
{
	__u32 extra = ETH_LEN + UDP_LEN + FCS_LEN, payload, segment = skb->gso_size, before, last;
	struct {
		struct udp udp;
		struct probe probe;
	} headers;

	if (bpf_skb_load_bytes(skb, 0, &headers, sizeof(headers)) || headers.probe.magic != htonl(PROBE_MAGIC))
		return 0;
	extra += skb->protocol == htons(ETHERTYPE_IPV6) ? IPV6_LEN : IPV4_LEN;
	payload = skb->len - UDP_LEN;
	counted->packets = 1;
	counted->payload_bytes = payload;
	counted->frame_bytes = frame_of(payload + extra);
	if (segment && payload > segment) {
		before = (payload - 1) / segment;
		last = payload - before * segment;
		counted->packets = before + 1;
		counted->frame_bytes = before * frame_of(segment + extra) + frame_of(last + extra);
	}
	return 1;
}

static ALWAYS_INLINE int is_frame(struct __sk_buff *skb, struct counted *counted)
{
	__u8 aligned[ALIGNED + MOST_HEADERS] __attribute__((aligned(8))) = {}, *headers = aligned + ALIGNED, *end;
	__u32 len = skb->len;
	struct udp *udp;

	if (skb->pkt_type == FROM_HERE || len < ETH_LEN)
		return 0;
	if (len > MOST_HEADERS)
		len = MOST_HEADERS;
	if (bpf_skb_load_bytes(skb, 0, headers, len))
		return 0;
	end = headers + len;
	udp = udp_of(headers, end);
	if (!udp || !probe_of(udp, end))
		return 0;
	counted->packets = 1;
	counted->payload_bytes = ntohs(udp->len) - UDP_LEN;
	counted->frame_bytes = frame_of(skb->len + FCS_LEN + (skb->vlan_present ? VLAN_LEN : 0));
	return 1;
}

SEC("socket")
int queues_seen(struct __sk_buff *skb)
{
	__u32 place = skb->queue_mapping, zero = 0, *filled;
	struct counted counted;
	struct queue *queue;
	__u64 now;

	if (!(of_datagrams ? is_datagram(skb, &counted) : is_frame(skb, &counted)))
		return ALL;
	filled = bpf_map_lookup_elem(&bank, &zero);
	if (!filled)
		return ALL;
	if (place > queues)
		place = 0;
	if (*filled)
		place += queues + 1;
	queue = bpf_map_lookup_elem(&by_queue, &place);
	if (!queue)
		return ALL;
	queue->packets += counted.packets;
	queue->payload_bytes += counted.payload_bytes;
	queue->frame_bytes += counted.frame_bytes;
	if (is_timed) {
		now = bpf_ktime_get_ns();
		if (!queue->first_ns)
			queue->first_ns = now;
		queue->last_ns = now;
	}
	return ALL;
}
