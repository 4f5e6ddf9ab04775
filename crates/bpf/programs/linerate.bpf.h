/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What all programs share: the kernel's types as far as they are used here, and the way to a UDP payload.
 *
 * No header of the system is included, so that the objects are the same wherever they are built. Numbers and
 * layouts are those of linux/bpf.h, which never change. Little-endian machines only, as the objects are.
 */
#ifndef LINERATE_BPF_H
#define LINERATE_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* Map definitions by BTF: a number is the length of an array type that is pointed to. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name

#define ntohs(value) __builtin_bswap16(value)
#define ntohl(value) __builtin_bswap32(value)
#define htons(value) __builtin_bswap16(value)
#define htonl(value) __builtin_bswap32(value)

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_XSKMAP = 17,
};

/* Map flags. */
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};
_Static_assert(sizeof(struct xdp_md) == 24, "struct xdp_md of linux/bpf.h");

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __s64 (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __s64 (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)23;
static __s64 (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static __s64 (*const bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static __u64 (*const bpf_jiffies64)(void) = (void *)118;
static __s64 (*const bpf_xdp_store_bytes)(struct xdp_md *ctx, __u32 offset, void *from, __u32 len) = (void *)190;

#define ETH_LEN 14
#define VLAN_LEN 4
#define IPV4_LEN 20
#define IPV6_LEN 40
#define UDP_LEN 8
#define FCS_LEN 4
#define LEAST_FRAME 64
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_ARP 0x0806
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_SCTP 132

struct udp {
	__u16 source;
	__u16 dest;
	__u16 len;
	__u16 check;
};
_Static_assert(sizeof(struct udp) == UDP_LEN, "RFC 768");

/* Kernel pktgen's header at the start of the UDP payload; linerate's stream tag may follow. */
#define PROBE_MAGIC 0xbe9be955

struct probe {
	__u32 magic;
	__u32 sequence;
	__u64 time;
};
_Static_assert(sizeof(struct probe) == 16, "struct pktgen_hdr of net/core/pktgen.c");

/*
 * The UDP header of a frame: Ethernet, at most two VLAN tags, IPv4 that is no fragment or IPv6 without extension
 * headers. NULL for everything else. `ip` receives the place of the IP header.
 */
static ALWAYS_INLINE struct udp *udp_behind(void *data, void *end, __u8 **ip)
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

	*ip = at;
	if (ethertype == ETHERTYPE_IPV4) {
		if ((void *)(at + IPV4_LEN) > end)
			return 0;
		/* Version and length; more fragments or an offset; protocol. */
		if ((at[0] & 0xf0) != 0x40 || (at[0] & 0x0f) < 5 || (at[6] & 0x3f) || at[7] ||
		    at[9] != PROTOCOL_UDP)
			return 0;
		at += (at[0] & 0x0f) * 4;
	} else if (ethertype == ETHERTYPE_IPV6) {
		if ((void *)(at + IPV6_LEN) > end)
			return 0;
		if (at[6] != PROTOCOL_UDP)
			return 0;
		at += IPV6_LEN;
	} else {
		return 0;
	}

	udp = (struct udp *)at;
	return (void *)(udp + 1) > end ? 0 : udp;
}

static ALWAYS_INLINE struct udp *udp_of(void *data, void *end)
{
	__u8 *ip;

	return udp_behind(data, end, &ip);
}

/* The probe header of a datagram whose payload begins with one. */
static ALWAYS_INLINE struct probe *probe_of(struct udp *udp, void *end)
{
	struct probe *probe = (struct probe *)(udp + 1);

	if ((void *)(probe + 1) > end || ntohs(udp->len) < UDP_LEN + sizeof(*probe) ||
	    probe->magic != htonl(PROBE_MAGIC))
		return 0;
	return probe;
}

/* The tag behind a probe header, 0 when there is no room for one. */
static ALWAYS_INLINE __u32 stream_of(struct udp *udp, struct probe *probe, void *end)
{
	__u16 *tag = (__u16 *)(probe + 1);

	if (ntohs(udp->len) < UDP_LEN + sizeof(*probe) + sizeof(*tag) || (void *)(tag + 1) > end)
		return 0;
	return ntohs(*tag);
}

/* What came on one receive queue. */
struct queue {
	__u64 packets;
	__u64 payload_bytes;
	__u64 frame_bytes; /* Ethernet header to FCS */
	__u64 first_ns; /* 0: nobody looked at the clock */
	__u64 last_ns;
};
_Static_assert(sizeof(struct queue) == 5 * 8, "read by queues.rs");

/* The kernel lets only GPL-compatible programs use some helpers; none here needs one. */
char _license[] SEC("license") = "Dual MIT/GPL";

/* A clock is read in no less than 5 ns, so 4096 readings are longer than any work that the loader lets through. */
#define WORK_LOOKS 4096

/* Keeps the CPU busy for so long, as an application would that has something to do with a packet. */
static ALWAYS_INLINE void work(__u32 ns)
{
	__u64 until = bpf_ktime_get_ns() + ns;
	int looks;

	for (looks = 0; looks < WORK_LOOKS; looks++)
		if (bpf_ktime_get_ns() >= until)
			break;
}

#endif
