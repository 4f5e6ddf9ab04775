/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts what the kernel drops, by reason and place in the code: buffers at the trace point kfree_skb, frames at
 * those of XDP. They change nothing. Offsets of the kernel's types are filled in when it is loaded.
 */
#include "linerate.bpf.h"

#define CORE __attribute__((preserve_access_index))
/* A field of bits, wherever this kernel has it. */
#define FIELD(of, field, what) __builtin_preserve_field_info((of)->field, what)
enum { BYTE_OFFSET, BYTE_SIZE, EXISTS, SIGNED, LEFT_SHIFT, RIGHT_SHIFT };
#define BITS(of, field)                                                                                     \
	((__u64)*((__u8 *)(of) + FIELD(of, field, BYTE_OFFSET)) << FIELD(of, field, LEFT_SHIFT) >>          \
	 FIELD(of, field, RIGHT_SHIFT))
#define NAMESPACES 4
#define SLOTS 32
#define HEADER 128
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define NOT_SET 0xffff
#define AF_INET 2
#define AF_INET6 10
#define AF_PACKET 17
#define CHECKSUM_PARTIAL 3
#define TIME_WAIT 6
#define NEW_SYN_RECEIVED 12
#define PROTOCOL_FRAGMENT 44
#define FRAGMENT_LEN 8

enum {
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_NOEXIST = 1,
};

static __s64 (*const bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static void *(*const bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, __u64 flags) = (void *)132;

struct net {
	__u64 net_cookie;
} CORE;

typedef struct {
	struct net *net;
} CORE possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} CORE;

struct dst_entry {
	struct net_device *dev;
} CORE;

struct inode {
	unsigned long i_ino;
} CORE;

struct socket {
	int state;
} CORE;

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
} CORE;

struct sock_common {
	__u16 skc_family;
	__u8 skc_state;
	__u16 skc_num;
	possible_net_t skc_net;
} CORE;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	__u16 sk_protocol;
} CORE;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned long _skb_refdst;
	unsigned int len;
	unsigned int data_len;
	__u8 ip_summed : 2;
	__u16 protocol;
	__u16 network_header;
	__u16 mac_header;
	int skb_iif;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
} CORE;

struct skb_shared_info {
	__u16 gso_size;
	__u16 gso_segs;
} CORE;

/* Why and where. `reason` has the top bit set for what is none of the kernel's reasons: an event of XDP. */
struct key {
	__u64 location;
	__u32 reason;
	__u32 namespace;
};

struct count {
	__u64 buffers;
	__u64 packets; /* segments of the buffers */
	__u64 inode;   /* of a socket concerned, now and then */
	__u32 sampled; /* bytes of `header` */
	__u16 protocol;
	__u16 port;    /* the socket's local one */
	__u8 header[64];
};
_Static_assert(sizeof(struct key) == 16 && sizeof(struct count) == 96, "read by drops.rs");

/* The same without samples. The first one keeps its slot; one that finds it taken is counted in the map. */
struct slot {
	__u64 location; /* 0: free */
	__u32 reason;
	__u16 namespace;
	__u16 is_udp;   /* whatever is dropped there for that reason */
	__u64 buffers;
	__u64 packets;
};

/* What one CPU counts. Found by one look-up an event, where a hash table costs three times as much. */
struct cpu {
	__u64 lost;   /* places beyond the map's room, and headers beyond the ring's */
	__u64 seen;   /* events, counted or not */
	__u64 timed;  /* those whose cost was measured */
	__u64 cost_ns;
	__u64 frames; /* events of XDP that were counted; all others are in the places */
	__u64 net;    /* the watched namespace that the last packet was in; its watcher keeps it alive */
	__u64 namespace;
	__u64 spare;
	struct slot slots[SLOTS];
};
_Static_assert(sizeof(struct slot) == 32 && sizeof(struct cpu) == 64 + SLOTS * 32, "read by drops.rs");

struct event {
	struct key key;
	__u64 packets;
	__u32 length;   /* bytes in `bytes` */
	__u16 protocol; /* ethertype, network order */
	__u16 has_mac;
	__u8 bytes[HEADER];
};

const volatile __u64 cookies[NAMESPACES] = {}; /* only these namespaces; 0: none, all zero: any */
const volatile int interface = 0;    /* 0: any */
const volatile __u32 only_udp = 0;
const volatile __u32 ignored_reason = 0;
const volatile __u32 no_socket = 0;  /* a transport's reason: each names it in a function of its own */
const volatile __u32 takes_socket = 1; /* the trace point names the receiving socket (Linux 6.11) */
const volatile __u32 headers = 0;    /* copy each dropped packet's headers to the ring */
const volatile __u16 flow_port = 0;  /* only probe packets to this UDP port with one of the tags; 0: any packet */

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_HASH);
	TYPE(key, struct key);
	TYPE(value, struct count);
	NUMBER(max_entries, 1024);
} by_place SEC(".maps");

/* The second belongs to XDP's trace points; the first only to kfree_skb, which never interrupts itself. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct cpu);
	NUMBER(max_entries, 2);
} cpus SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, 1 << 20);
} events SEC(".maps");

/* One bit a stream tag, where only streams are counted. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	NUMBER(max_entries, 1);
} tags SEC(".maps");

struct datagram {
	struct udp udp;
	struct probe probe;
	__u16 tag;
} __attribute__((packed));

static const struct count NOTHING;

/* The number of the namespace among those watched, NAMESPACES when it is none of them. */
static ALWAYS_INLINE __u32 watched(struct net *net, struct cpu *cpu)
{
	__u64 cookie;

	if (!cookies[0])
		return 0;
	if (!net)
		return NAMESPACES;
	/* The cookie is not read while packets belong to the same one. */
	if (cpu->net == (__u64)net)
		return cpu->namespace;
	cookie = net->net_cookie;
#pragma unroll
	for (__u32 n = 0; n < NAMESPACES; n++) {
		if (cookies[n] == cookie) {
			cpu->net = (__u64)net;
			cpu->namespace = n;
			return n;
		}
	}
	return NAMESPACES;
}

static ALWAYS_INLINE struct slot *slot(struct key *key, struct cpu *cpu)
{
	return &cpu->slots[(key->location ^ key->location >> 5) & (SLOTS - 1)];
}

static ALWAYS_INLINE int is_of(struct slot *slot, struct key *key)
{
	return slot->location == key->location && slot->reason == key->reason && slot->namespace == key->namespace;
}

/* NULL when the map has no room for another. */
static ALWAYS_INLINE struct count *place(struct key *key)
{
	struct count *count = bpf_map_lookup_elem(&by_place, key);

	if (count)
		return count;
	bpf_map_update_elem(&by_place, key, &NOTHING, BPF_NOEXIST);
	return bpf_map_lookup_elem(&by_place, key);
}

/* Datagrams or segments in a buffer: those that GRO merged or that GSO will cut. */
static ALWAYS_INLINE __u32 segments(struct sk_buff *skb)
{
	struct skb_shared_info *shared;
	__u16 size = 0, count = 0;

	/*
	 * Reading what no pointer of a known type leads to costs half as much as all else here. GRO and devices hang
	 * what they join behind the first; a sender's buffer that is yet to be cut has its checksum yet to be made.
	 */
	if (!skb->data_len && BITS(skb, ip_summed) != CHECKSUM_PARTIAL)
		return 1;
	shared = (void *)(skb->head + skb->end);
	bpf_probe_read_kernel(&size, sizeof(size), &shared->gso_size);
	if (!size)
		return 1;
	bpf_probe_read_kernel(&count, sizeof(count), &shared->gso_segs);
	return count ? count : (skb->len + size - 1) / size;
}

static ALWAYS_INLINE int is_of_udp(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;
	__u8 state = sk->__sk_common.skc_state;

	/* New and closing connections are kept as smaller structs than a socket. */
	return (family == AF_INET || family == AF_INET6) && state != TIME_WAIT && state != NEW_SYN_RECEIVED &&
	       sk->sk_protocol == PROTOCOL_UDP;
}

static ALWAYS_INLINE int is_other_than_udp(struct sk_buff *skb, struct sock *sk)
{
	__u16 protocol = skb->protocol;
	__u8 *at = skb->head + skb->network_header;
	__u8 ip[10];

	/* Most drops under load belong to a socket: then the packet need not be read. */
	if (sk && is_of_udp(sk))
		return 0;
	if (skb->network_header == NOT_SET || bpf_probe_read_kernel(ip, sizeof(ip), at))
		return 0;
	if (ip[0] >> 4 == 4)
		return ip[9] != PROTOCOL_UDP;
	if (ip[0] >> 4 == 6)
		return ip[6] != PROTOCOL_UDP;
	return protocol != htons(ETH_P_IP) && protocol != htons(ETH_P_IPV6);
}

/* Offset of the IP header, also in packets that IP has not seen yet or will never see. */
static ALWAYS_INLINE __u8 *ip_of(struct sk_buff *skb)
{
	__u16 network = skb->network_header, mac = skb->mac_header;
	__u16 ethertype = 0;
	__u8 *at;

	if (network && network != NOT_SET)
		return skb->head + network;
	at = mac != NOT_SET ? skb->head + mac : skb->data;
	bpf_probe_read_kernel(&ethertype, sizeof(ethertype), at + 12);
	if (ethertype == htons(ETHERTYPE_VLAN) || ethertype == htons(ETHERTYPE_QINQ))
		at += VLAN_LEN;
	return at + ETH_LEN;
}

/* Whether it is a probe packet of the streams, or the first fragment of one. */
static ALWAYS_INLINE int is_of_streams(struct sk_buff *skb)
{
	struct datagram datagram;
	__u8 *at = ip_of(skb);
	__u8 ip[IPV6_LEN + FRAGMENT_LEN];
	__u64 *bits;
	__u32 word;
	__u16 tag;

	if (bpf_probe_read_kernel(ip, sizeof(ip), at))
		return 0;
	if (ip[0] >> 4 == 4) {
		if ((ip[6] & 0x1f) || ip[7] || ip[9] != PROTOCOL_UDP)
			return 0;
		at += (ip[0] & 0x0f) * 4;
	} else if (ip[0] >> 4 == 6 && ip[6] == PROTOCOL_UDP) {
		at += IPV6_LEN;
	} else if (ip[0] >> 4 == 6 && ip[6] == PROTOCOL_FRAGMENT) {
		if (ip[IPV6_LEN] != PROTOCOL_UDP || ip[IPV6_LEN + 2] || (ip[IPV6_LEN + 3] & 0xf8))
			return 0;
		at += IPV6_LEN + FRAGMENT_LEN;
	} else {
		return 0;
	}
	if (bpf_probe_read_kernel(&datagram, sizeof(datagram), at))
		return 0;
	if (datagram.udp.dest != htons(flow_port) || datagram.probe.magic != htonl(PROBE_MAGIC))
		return 0;
	/* Bytes behind a short payload are not part of it. */
	tag = ntohs(datagram.udp.len) < sizeof(datagram) ? 0 : ntohs(datagram.tag);
	word = tag >> 6;
	bits = bpf_map_lookup_elem(&tags, &word);
	return bits && *bits >> (tag & 63) & 1;
}

/*
 * Whether it was received on the interface, or would leave by it: a packet that IP sends has no device before it
 * has passed the firewall; until then its route names the device.
 */
static ALWAYS_INLINE int is_of_interface(struct sk_buff *skb, struct net_device *dev)
{
	struct dst_entry *route = (void *)(skb->_skb_refdst & ~1ul); /* the lowest bit says whether it is counted */
	int index = 0;

	if (skb->skb_iif == interface || (dev && dev->ifindex == interface))
		return 1;
	if (!route || bpf_probe_read_kernel(&dev, sizeof(dev), &route->dev) || !dev)
		return 0;
	bpf_probe_read_kernel(&index, sizeof(index), &dev->ifindex);
	return index == interface;
}

static ALWAYS_INLINE int carries_packets(__u16 family)
{
	return family == AF_INET || family == AF_INET6 || family == AF_PACKET;
}

static ALWAYS_INLINE void sample(struct count *count, struct sk_buff *skb, struct sock *sk)
{
	count->protocol = skb->protocol;
	count->sampled = 0;
	if (skb->network_header != NOT_SET &&
	    !bpf_probe_read_kernel(count->header, sizeof(count->header), skb->head + skb->network_header))
		count->sampled = sizeof(count->header);
	count->inode = 0;
	count->port = 0;
	if (sk) {
		struct socket_alloc *alloc = (void *)sk->sk_socket;

		count->port = sk->__sk_common.skc_num;
		if (alloc)
			bpf_probe_read_kernel(&count->inode, sizeof(count->inode), &alloc->vfs_inode.i_ino);
	}
}

static ALWAYS_INLINE void tell(struct key *key, struct sk_buff *skb, __u32 packets, struct cpu *cpu)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	__u16 at = skb->network_header;

	if (!event) {
		cpu->lost++;
		return;
	}
	event->key = *key;
	event->packets = packets;
	event->protocol = skb->protocol;
	event->has_mac = skb->mac_header != NOT_SET && skb->mac_header + ETH_LEN <= at;
	if (event->has_mac)
		at = skb->mac_header;
	event->length = bpf_probe_read_kernel(event->bytes, sizeof(event->bytes), skb->head + at) ? 0 : HEADER;
	bpf_ringbuf_submit(event, 0);
}

static ALWAYS_INLINE void dropped(__u64 *ctx, struct cpu *cpu)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct key key = { .location = ctx[1], .reason = ctx[2] };
	struct count *count = 0;
	struct net_device *dev = skb->dev;
	struct sock *sk = 0;
	struct net *net = 0;
	struct slot *mine;
	int is_taken;
	__u32 number;
	int is_mine;
	__u64 before;

	if (takes_socket)
		sk = (void *)ctx[3];
	/*
	 * A receiving socket's queue keeps other things where the interface was, and so do both of TCP's: then the socket
	 * shows where it is. Any other socket sent it, maybe from elsewhere: a veth lets it keep its packet.
	 */
	is_taken = !!sk;
	if (!sk) {
		sk = skb->sk;
		is_taken = sk && sk->sk_protocol == PROTOCOL_TCP;
	}
	if (dev && !is_taken)
		net = dev->nd_net.net;
	if (sk && !net)
		net = sk->__sk_common.skc_net.net;
	/* Netlink and Unix sockets drop buffers, too: no packets. */
	if (!dev && (!sk || !carries_packets(sk->__sk_common.skc_family)))
		return;
	key.namespace = watched(net, cpu);
	if (key.namespace == NAMESPACES)
		return;
	if (interface && !is_of_interface(skb, dev))
		return;
	mine = slot(&key, cpu);
	is_mine = is_of(mine, &key);
	/* What the first packet shows about a place need not be read from the others. */
	if (only_udp && !(is_mine && mine->is_udp) && is_other_than_udp(skb, sk))
		return;
	if (flow_port && !is_of_streams(skb))
		return;

	if (!is_mine && !mine->location) {
		mine->reason = key.reason;
		mine->namespace = key.namespace;
		mine->is_udp = only_udp && key.reason == no_socket;
		mine->location = key.location;
		is_mine = 1;
	}
	number = segments(skb);
	if (is_mine) {
		before = mine->buffers++;
		mine->packets += number;
	} else {
		count = place(&key);
		if (!count) {
			cpu->lost++;
			return;
		}
		before = count->buffers++;
		count->packets += number;
	}
	if (UNLIKELY((before & 1023) == 0)) {
		if (!count)
			count = place(&key);
		if (count)
			sample(count, skb, sk);
	}
	if (headers)
		tell(&key, skb, number, cpu);
}

SEC("tp_btf/kfree_skb")
int kfree_skb(__u64 *ctx)
{
	__u32 zero = 0;
	struct cpu *cpu;
	__u64 began = 0;

	if (ignored_reason && (__u32)ctx[2] == ignored_reason)
		return 0;
	cpu = bpf_map_lookup_elem(&cpus, &zero);
	if (!cpu)
		return 0;
	/* The cost of one event in 256 stands for all. */
	if (UNLIKELY((cpu->seen++ & 255) == 0))
		began = bpf_ktime_get_ns();
	dropped(ctx, cpu);
	if (UNLIKELY(began)) {
		cpu->cost_ns += bpf_ktime_get_ns() - began;
		cpu->timed++;
	}
	return 0;
}

/* What of XDP failed: `reason` of an event. Read by drops.rs. */
#define EVENT(kind, detail) (1u << 31 | (kind) << 16 | ((detail) & 0xffff))
enum { EXCEPTION, REDIRECT, DEVMAP, BULK_TX };

static ALWAYS_INLINE int frames(const struct net_device *dev, __u32 reason, __u64 packets)
{
	struct key key = { .reason = reason };
	struct count *count;
	struct cpu *cpu;
	__u32 one = 1;

	cpu = bpf_map_lookup_elem(&cpus, &one);
	if (!cpu || !dev)
		return 0;
	key.namespace = watched(dev->nd_net.net, cpu);
	if (key.namespace == NAMESPACES || (interface && dev->ifindex != interface))
		return 0;
	cpu->frames++;
	count = place(&key);
	if (count) {
		count->buffers += packets;
		count->packets += packets;
	} else {
		cpu->lost++;
	}
	return 0;
}

SEC("tp_btf/xdp_exception")
int xdp_exception(__u64 *ctx)
{
	return frames((void *)ctx[0], EVENT(EXCEPTION, (__u32)ctx[2]), 1);
}

SEC("tp_btf/xdp_redirect_err")
int xdp_redirect_err(__u64 *ctx)
{
	return frames((void *)ctx[0], EVENT(REDIRECT, -(int)ctx[3]), 1);
}

SEC("tp_btf/xdp_redirect_map_err")
int xdp_redirect_map_err(__u64 *ctx)
{
	return frames((void *)ctx[0], EVENT(REDIRECT, -(int)ctx[3]), 1);
}

SEC("tp_btf/xdp_devmap_xmit")
int xdp_devmap_xmit(__u64 *ctx)
{
	int drops = (int)ctx[3];

	return drops > 0 ? frames((void *)ctx[0], EVENT(DEVMAP, -(int)ctx[4]), drops) : 0;
}

SEC("tp_btf/xdp_bulk_tx")
int xdp_bulk_tx(__u64 *ctx)
{
	int drops = (int)ctx[2];

	return drops > 0 ? frames((void *)ctx[0], EVENT(BULK_TX, -(int)ctx[3]), drops) : 0;
}
