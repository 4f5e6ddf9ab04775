/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts the probe packets of some streams where an interface's driver is: at tc egress behind the protocols, at tc ingress
 * before them. It changes no packet and does not count other traffic.
 */
#include "linerate.bpf.h"

struct __sk_buff {
	__u32 len;
	__u32 unused[18];
	__u32 data;
	__u32 data_end;
	__u32 unused_too[20];
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
};
_Static_assert(__builtin_offsetof(struct __sk_buff, data) == 76, "linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_segs) == 164, "linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "linux/bpf.h");

static __s64 (*const bpf_skb_load_bytes)(const struct __sk_buff *skb, __u32 offset, void *to, __u32 len) = (void *)26;

#define NEXT (-1) /* TCX_NEXT: other programs decide */
#define PROTOCOL_FRAGMENT 44
#define FRAGMENT_LEN 8

struct counts {
	__u64 packets;
	__u64 unread; /* UDP whose headers are not in one piece */
};
_Static_assert(sizeof(struct counts) == 16, "read by witness.rs");

const volatile __u16 port = 0; /* the datagrams' destination */
/* The streams' tags where they follow each other: from `first_tag`, so many; 0: those of the map `tags`. */
const volatile __u16 first_tag = 0;
const volatile __u32 tag_count = 0;

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct counts);
	NUMBER(max_entries, 1);
} seen SEC(".maps");

/* One bit a stream tag. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	NUMBER(max_entries, 1024);
} tags SEC(".maps");

struct tagged {
	struct probe probe;
	__u16 tag;
} __attribute__((packed));

/*
 * A whole IPv4 datagram without options and VLAN tags, with a probe and a tag, is what most packets are. Its fields are read
 * several at a time: members of a packed structure would be read byte by byte.
 */
#define AT_ETHERTYPE 12 /* with version and service */
#define AT_FRAGMENT 20  /* with time to live and protocol */
#define AT_PORT 36      /* with the length */
#define AT_PROBE (ETH_LEN + IPV4_LEN + UDP_LEN)
#define WHOLE_LEN (AT_PROBE + sizeof(struct tagged))
#define READ(size, at) (*(__u##size *)((__u8 *)data + (at)))
#define VERSION_4 htonl(ETHERTYPE_IPV4 << 16 | 0x4500)
#define VERSION_MASK htonl(0xffffff00)
/* More fragments, or an offset; and the protocol. */
#define FRAGMENT_MASK htonl(0x3fff00ff)

/* The UDP header of a packet or of its first fragment. */
static ALWAYS_INLINE struct udp *first_udp(void *data, void *end)
{
	__u8 *at = data;
	__u16 ethertype;
	struct udp *udp;

	if ((void *)(at + ETH_LEN) > end)
		return 0;
	ethertype = ntohs(*(__u16 *)(at + 12));
	at += ETH_LEN;
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		if (ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_QINQ)
			break;
		if ((void *)(at + VLAN_LEN) > end)
			return 0;
		ethertype = ntohs(*(__u16 *)(at + 2));
		at += VLAN_LEN;
	}
	if (ethertype == ETHERTYPE_IPV4) {
		if ((void *)(at + IPV4_LEN) > end)
			return 0;
		if ((at[0] & 0x0f) < 5 || (at[6] & 0x1f) || at[7] || at[9] != PROTOCOL_UDP)
			return 0;
		at += (at[0] & 0x0f) * 4;
	} else if (ethertype == ETHERTYPE_IPV6) {
		if ((void *)(at + IPV6_LEN + FRAGMENT_LEN) > end)
			return 0;
		if (at[6] == PROTOCOL_FRAGMENT) {
			if (at[IPV6_LEN] != PROTOCOL_UDP || at[IPV6_LEN + 2] || (at[IPV6_LEN + 3] & 0xf8))
				return 0;
			at += IPV6_LEN + FRAGMENT_LEN;
		} else if (at[6] == PROTOCOL_UDP) {
			at += IPV6_LEN;
		} else {
			return 0;
		}
	} else {
		return 0;
	}
	udp = (struct udp *)at;
	return (void *)(udp + 1) > end ? 0 : udp;
}

static ALWAYS_INLINE int is_ours(__u16 tag)
{
	__u32 word = tag >> 6;
	__u64 *bits;

	if (tag_count)
		return (__u16)(tag - first_tag) < tag_count;
	bits = bpf_map_lookup_elem(&tags, &word);

	return bits && *bits >> (tag & 63) & 1;
}

static ALWAYS_INLINE void count(struct __sk_buff *skb, struct counts *counts)
{
	counts->packets += skb->gso_size && skb->gso_segs ? skb->gso_segs : 1;
}

SEC("classifier")
int witness(struct __sk_buff *skb)
{
	void *data = (void *)(__u64)skb->data, *end = (void *)(__u64)skb->data_end;
	struct tagged copy, *tagged;
	struct counts *counts;
	__u32 zero = 0, len;
	struct udp *udp;
	__u16 tag = 0;

	if (data + WHOLE_LEN <= end && (READ(32, AT_ETHERTYPE) & VERSION_MASK) == VERSION_4 &&
	    (READ(32, AT_FRAGMENT) & FRAGMENT_MASK) == htonl(PROTOCOL_UDP) &&
	    ntohs(READ(16, AT_PORT + 2)) >= UDP_LEN + sizeof(*tagged)) {
		if (READ(16, AT_PORT) != htons(port) || READ(32, AT_PROBE) != htonl(PROBE_MAGIC) ||
		    !is_ours(ntohs(READ(16, AT_PROBE + sizeof(struct probe)))))
			return NEXT;
		counts = bpf_map_lookup_elem(&seen, &zero);
		if (counts)
			count(skb, counts);
		return NEXT;
	}
	udp = first_udp(data, end);

	if (!udp || udp->dest != htons(port))
		return NEXT;
	len = ntohs(udp->len);
	if (len < UDP_LEN + sizeof(struct probe))
		return NEXT;
	counts = bpf_map_lookup_elem(&seen, &zero);
	if (!counts)
		return NEXT;
	tagged = (void *)(udp + 1);
	if ((void *)(tagged + 1) > end) {
		/* The payload is elsewhere, or has no room for a tag. */
		__u32 offset = (void *)tagged - data;

		copy.tag = 0;
		if (len >= UDP_LEN + sizeof(copy)) {
			if (bpf_skb_load_bytes(skb, offset, &copy, sizeof(copy))) {
				counts->unread++;
				return NEXT;
			}
		} else if (bpf_skb_load_bytes(skb, offset, &copy.probe, sizeof(copy.probe))) {
			counts->unread++;
			return NEXT;
		}
		tagged = &copy;
		if (tagged->probe.magic != htonl(PROBE_MAGIC))
			return NEXT;
		tag = copy.tag;
	} else {
		if (tagged->probe.magic != htonl(PROBE_MAGIC))
			return NEXT;
		/* Behind a short payload is padding. */
		if (len >= UDP_LEN + sizeof(*tagged))
			tag = tagged->tag;
	}
	if (is_ours(ntohs(tag)))
		count(skb, counts);
	return NEXT;
}

/* What a measurement of the other one takes on its own. */
SEC("classifier")
int nothing(struct __sk_buff *skb)
{
	return NEXT;
}
