/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Takes chosen packets out of chosen queues: drops them, limits their rate, or hands them to the AF_XDP socket of
 * their queue. Every other packet goes to the kernel as if this program were not there.
 *
 * It fails open: a queue is diverted until its deadline, which the user side puts off several times a second; when
 * that stops, everything goes to the kernel again. ARP, neighbour discovery and what the user excludes always do.
 * Deadlines are in jiffies, which the JIT reads as a word of memory: no clock is called for a packet.
 *
 * Two things say which rule takes a packet, the first rule of both: tables of addresses and ports, and `chosen`,
 * whose code the loader replaces by what the rules' expressions were compiled to. Before that code runs it is looked
 * up which sets of networks the packet's addresses are in.
 */
#include "linerate.bpf.h"

enum { BPF_MAP_TYPE_RINGBUF = 27 };
static void *(*const bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, __u64 flags) = (void *)132;
static void (*const bpf_ringbuf_discard)(void *record, __u64 flags) = (void *)133;
static __s64 (*const bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 offset, void *to, __u64 len) = (void *)189;

#define SHAPES 16
#define QUEUES 1024
#define LEAST_RULES 1

/* LEVELS4 levels of 16 hold 2^24 bounds, LEVELS6 levels of 8 as many. */
#define MEMBERS 16
#define LEVELS4 6
#define LEVELS6 8
#define PER_LINE4 16
#define PER_LINE6 8
#define SAMPLE_BYTES 2024

enum verdict { GIVE_BACK, DROP, HAND_OVER, WOULD_DROP };
enum side { NEITHER, SOURCE, DESTINATION };
enum per { PER_RULE, PER_SOURCE, PER_DESTINATION, PER_FLOW };

/* What is done with the packets of a rule. */
struct rule {
	__u32 verdict;
	__u32 per;              /* whose packets share a token bucket */
	__u64 packet_cost_ns;   /* time until the bucket has the tokens of one more packet; 0 and 0: no limit */
	__u64 kilobyte_cost_ns; /* the same for 1024 bytes */
	__u64 burst_ns;         /* how much of that a full bucket has */
};
_Static_assert(sizeof(struct rule) == 32, "written by divert.rs");

/* What one CPU counted for a rule. */
struct count {
	__u64 packets;
	__u64 bytes;
	__u64 limited;       /* packets of those above the limit, dropped */
	__u64 limited_bytes;
	__u64 unsent;        /* packets that found no socket, and went to the kernel */
};
_Static_assert(sizeof(struct count) == 40, "read by divert.rs");

/* What one CPU counted besides. */
struct passed {
	__u64 unmatched; /* no rule takes it */
	__u64 excluded;  /* a rule takes it, but it belongs to the management or to the link */
	__u64 kernels;   /* came on a queue that is the kernel's */
	__u64 stale;     /* came after its queue's deadline */
	__u64 unsampled; /* no packet that passed: one to be sampled that found no room */
};
_Static_assert(sizeof(struct passed) == 40, "read by divert.rs");

/* One address of the packet and one set. The set's bounds are in levels of lines, the lowest level last. */
struct member {
	__u32 side;
	__u32 levels4;
	__u32 levels6;
	__u32 first4[LEVELS4]; /* the number of the level's first line */
	__u32 used4[LEVELS4];  /* how many bounds the level has */
	__u32 first6[LEVELS6];
	__u32 used6[LEVELS6];
	__u32 unused;
};
_Static_assert(sizeof(struct member) == 128, "written by divert/sets.rs");

/* Bounds in rising order: an address is in the set when the last bound that is not above it is an even one, from 0. */
struct line4 {
	__u32 bounds[PER_LINE4];
};
_Static_assert(sizeof(struct line4) == 64, "written by divert/sets.rs");

struct line6 {
	__u64 high[PER_LINE6];
	__u64 low[PER_LINE6];
};
_Static_assert(sizeof(struct line6) == 128, "written by divert/sets.rs");

/* A packet that was dropped, or would be. */
struct sample {
	__u64 time_ns;
	__u32 rule;
	__u32 len;
	__u32 kept;       /* bytes of it that are here */
	__u32 is_limited; /* above the rule's limit */
	__u8 bytes[SAMPLE_BYTES];
};
_Static_assert(sizeof(struct sample) == 2048, "read by divert/samples.rs");

/* Which IPv4 packets the entries of a table with this number are about. */
struct shape4 {
	__u64 key;         /* number and protocol, where keys have them */
	__u32 mask;        /* of the address, in network order */
	__u8 side;         /* whose address */
	__u8 port_side;
	__u8 protocol;     /* 0: any */
	__u8 unused;
};
_Static_assert(sizeof(struct shape4) == 16, "written by divert/table.rs");

/* The same for IPv6. */
struct shape6 {
	__u32 mask[4];
	__u8 side;
	__u8 port_side;
	__u8 protocol;
	__u8 unused;
};
_Static_assert(sizeof(struct shape6) == 20, "written by divert/table.rs");

/*
 * A cache line of the table of IPv4's entries. A key is address, port, protocol and shape, from the lowest bit on;
 * free places have no rule.
 */
#define KEYS 5
struct bucket4 {
	__u64 keys[KEYS];
	__u32 rules[KEYS]; /* from 1 */
	__u32 unused;
};
_Static_assert(sizeof(struct bucket4) == 64, "written by divert.rs");

struct key6 {
	__u32 addr[4];
	__u16 port;
	__u8 protocol;
	__u8 shape;
};
_Static_assert(sizeof(struct key6) == 20, "written by divert.rs");

/* IPv4 addresses as ::ffff:a.b.c.d. */
struct network {
	__u32 prefix_len;
	__u32 addr[4];
};
_Static_assert(sizeof(struct network) == 20, "written by divert.rs");

/* A TCP connection: the peer's address and port, and ours. */
struct session {
	__u32 peer[4];
	__u16 peer_port;
	__u16 local_port;
};
_Static_assert(sizeof(struct session) == 20, "written by divert.rs");

struct flow {
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
	__u32 rule;
};
_Static_assert(sizeof(struct flow) == 40, "counted by divert.rs");

/* What is needed of a packet's headers; addresses in network order, IPv4's mapped. */
struct packet {
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
	__u8 protocol;
	__u8 has_ports;
	__u8 family; /* 4, 6, or 0 for all else */
};

/* What the rules require: bits of `asked`. */
enum {
	SHAPES4 = 1 << 0,
	SHAPES6 = 1 << 1,
	PORTS4 = 1 << 2,   /* a shape looks at one */
	CODE = 1 << 3,
	VERDICTS = 1 << 4, /* rules differ in what is done */
	LINKS = 1 << 5,    /* a rule may take ARP or neighbour discovery */
	LIMITS = 1 << 6,
	NETWORKS = 1 << 7,
	SESSIONS = 1 << 8,
	SETS = 1 << 9,
	SAMPLES = 1 << 10,
};

const volatile __u32 asked = 0;
const volatile __u32 only_verdict = 0;   /* done with all packets, unless rules differ */
const volatile __u32 shapes4_used = 0;
const volatile __u32 shapes6_used = 0;
const volatile struct shape4 shapes4[SHAPES] = {};
const volatile struct shape6 shapes6[SHAPES] = {};
const volatile __u32 buckets4_mask = 0;
const volatile __u64 hash_factor = 0;
const volatile __u32 members_used = 0;
const volatile struct member members[MEMBERS] = {};
const volatile __u32 sample_every = 1;

/* By queue: the jiffy from which on it is diverted no more; 0: it is the kernel's. Found without a lookup in .bss. */
__u64 deadlines[QUEUES];

struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	TYPE(key, __u32);
	TYPE(value, __u32);
	NUMBER(max_entries, 64);
} sockets SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct rule);
	NUMBER(max_entries, LEAST_RULES);
} rules SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct count);
	NUMBER(max_entries, LEAST_RULES);
} counts SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct passed);
	NUMBER(max_entries, 1);
} passes SEC(".maps");

/*
 * The loader chooses how many buckets, so that each key is in the bucket that its hash says: one look for a key, where
 * the kernel's hash map calls two functions.
 */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct bucket4);
	NUMBER(max_entries, 1);
} table4 SEC(".maps");

/* Number of the rule, from 1. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct key6);
	TYPE(value, __u32);
	NUMBER(max_entries, 1);
} table6 SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	TYPE(key, struct network);
	TYPE(value, __u32);
	NUMBER(max_entries, 1);
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
} networks SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct session);
	TYPE(value, __u32);
	NUMBER(max_entries, 1);
} sessions SEC(".maps");

/* When each bucket will be full again, in nanoseconds of the monotonic clock. */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	TYPE(key, struct flow);
	TYPE(value, __u64);
	NUMBER(max_entries, 1);
} buckets SEC(".maps");

/* All sets' lines. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct line4);
	NUMBER(max_entries, 1);
	NUMBER(map_flags, BPF_F_MMAPABLE);
} lines4 SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct line6);
	NUMBER(max_entries, 1);
	NUMBER(map_flags, BPF_F_MMAPABLE);
} lines6 SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, 4096);
} samples SEC(".maps");

/* Whether a protocol's header begins with ports. */
static ALWAYS_INLINE int has_leading_ports(__u8 protocol)
{
	return protocol == PROTOCOL_UDP || protocol == PROTOCOL_TCP || protocol == PROTOCOL_SCTP;
}

/* The ports, when they are there: the first fragment of a protocol that begins with them. */
static ALWAYS_INLINE void read_ports(struct packet *packet, void *at, void *end)
{
	__u16 *ports = at;

	if (!has_leading_ports(packet->protocol))
		return;
	if ((void *)(ports + 2) > end)
		return;
	packet->src_port = ports[0];
	packet->dst_port = ports[1];
	packet->has_ports = 1;
}

/* Headers of IPv4 and IPv6, without VLAN tags or with up to `tags` of them. */
static ALWAYS_INLINE void read_packet(struct packet *packet, void *data, void *end, int tags)
{
	__u8 *at = data;
	__u16 ethertype;

	*packet = (struct packet){};
	if ((void *)(at + ETH_LEN) > end)
		return;
	ethertype = *(__u16 *)(at + 12);
	at += ETH_LEN;
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		if (tag >= tags || (ethertype != htons(ETHERTYPE_VLAN) && ethertype != htons(ETHERTYPE_QINQ)))
			break;
		if ((void *)(at + VLAN_LEN) > end)
			return;
		ethertype = *(__u16 *)(at + 2);
		at += VLAN_LEN;
	}
	if (ethertype == htons(ETHERTYPE_IPV4)) {
		if ((void *)(at + IPV4_LEN) > end)
			return;
		packet->family = 4;
		packet->src[2] = packet->dst[2] = htonl(0xffff);
		packet->src[3] = *(__u32 *)(at + 12);
		packet->dst[3] = *(__u32 *)(at + 16);
		packet->protocol = at[9];
		if (!(at[6] & 0x1f) && !at[7]) /* no later fragment */
			read_ports(packet, at + (at[0] & 0x0f) * 4, end);
	} else if (ethertype == htons(ETHERTYPE_IPV6)) {
		if ((void *)(at + IPV6_LEN) > end)
			return;
		packet->family = 6;
#pragma unroll
		for (int word = 0; word < 4; word++) {
			packet->src[word] = *(__u32 *)(at + 8 + 4 * word);
			packet->dst[word] = *(__u32 *)(at + 24 + 4 * word);
		}
		packet->protocol = at[6];
		read_ports(packet, at + IPV6_LEN, end);
	}
}

/*
 * The highest bit. The verifier would follow both ways of each comparison of a line, and the compiler makes branches of
 * comparisons that it recognises; it looks into no assembly.
 */
static ALWAYS_INLINE __u64 top_bit(__u64 value)
{
	asm volatile("%0 >>= 63" : "+r"(value));
	return value;
}

/* 1 when a < b. */
static ALWAYS_INLINE __u64 is_below(__u64 a, __u64 b)
{
	return top_bit((~a & b) | ((~a | b) & (a - b)));
}

/*
 * Whether an IPv4 address is in the set of a member. The verifier looks at a function that is not static once, and not
 * again with each call.
 */
__attribute__((noinline)) int is_in4(__u32 number, __u32 address)
{
	const volatile struct member *member;
	__u32 at = 0;

	if (number >= MEMBERS)
		return 0;
	member = &members[number];
	if (!member->levels4)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 level = 0; level < LEVELS4 && level < member->levels4; level++) {
		__u32 key = member->first4[level] + at, used = member->used4[level];
		struct line4 *line = bpf_map_lookup_elem(&lines4, &key);
		__u64 count = 0;

		if (!line)
			return 0;
#pragma unroll
		for (int bound = 0; bound < PER_LINE4; bound++)
			count += 1 - top_bit((__u64)address - line->bounds[bound]);
		if (!count)
			return 0; /* below all */
		at = at * PER_LINE4 + count - 1;
		/* What fills the last line is the highest address, too. */
		if (at >= used)
			at = used - 1;
	}
	return !(at & 1);
}

/* The same for an IPv6 address. */
__attribute__((noinline)) int is_in6(__u32 number, __u64 high, __u64 low)
{
	const volatile struct member *member;
	__u32 at = 0;

	if (number >= MEMBERS)
		return 0;
	member = &members[number];
	if (!member->levels6)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 level = 0; level < LEVELS6 && level < member->levels6; level++) {
		__u32 key = member->first6[level] + at, used = member->used6[level];
		struct line6 *line = bpf_map_lookup_elem(&lines6, &key);
		__u64 count = 0;

		if (!line)
			return 0;
#pragma unroll
		for (int bound = 0; bound < PER_LINE6; bound++) {
			__u64 apart = high ^ line->high[bound];
			__u64 differs = top_bit(apart | -apart);

			count += 1 - (is_below(high, line->high[bound]) |
				      (is_below(low, line->low[bound]) & ~differs));
		}
		if (!count)
			return 0;
		at = at * PER_LINE6 + count - 1;
		if (at >= used)
			at = used - 1;
	}
	return !(at & 1);
}

/* Which members are true of the packet, bit by bit. */
__attribute__((noinline)) __u64 in_sets(struct xdp_md *ctx)
{
	void *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	struct packet packet;
	__u64 found = 0;

	read_packet(&packet, data, end, 2);
#pragma clang loop unroll(disable)
	for (__u32 at = 0; at < MEMBERS && at < members_used; at++) {
		const __u32 *address = members[at].side == SOURCE ? packet.src : packet.dst;
		__u64 is_in = 0;

		if (packet.family == 4)
			is_in = is_in4(at, ntohl(address[3]));
		else if (packet.family == 6)
			is_in = is_in6(at, (__u64)ntohl(address[0]) << 32 | ntohl(address[1]),
				       (__u64)ntohl(address[2]) << 32 | ntohl(address[3]));
		found |= (is_in & 1) << at;
	}
	return found;
}

/*
 * The number of the first rule, from 1, whose expression is true of the frame; 0: none. This body is never run: the
 * loader puts compiled expressions in its place, which is why it is the last function of its section. Bits of `in_sets` are those of `members`.
 */
static __attribute__((noinline)) int chosen(void *data, void *end, __u64 in_sets)
{
	int number;

	asm volatile("%0 = 0" : "=r"(number) : "r"(data), "r"(end), "r"(in_sets));
	return number;
}

/* ARP and neighbour discovery, behind up to two VLAN tags. */
static ALWAYS_INLINE int is_the_links(void *data, void *end)
{
	__u8 *at = data;
	__u16 ethertype;

	if ((void *)(at + ETH_LEN) > end)
		return 0;
	ethertype = *(__u16 *)(at + 12);
	at += ETH_LEN;
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		if (ethertype != htons(ETHERTYPE_VLAN) && ethertype != htons(ETHERTYPE_QINQ))
			break;
		if ((void *)(at + VLAN_LEN) > end)
			return 0;
		ethertype = *(__u16 *)(at + 2);
		at += VLAN_LEN;
	}
	if (ethertype == htons(ETHERTYPE_ARP))
		return 1;
	/* Router and neighbour solicitations and advertisements, redirects: RFC 4861. */
	return ethertype == htons(ETHERTYPE_IPV6) && (void *)(at + IPV6_LEN + 1) <= end &&
	       at[6] == PROTOCOL_ICMPV6 && at[IPV6_LEN] >= 133 && at[IPV6_LEN] <= 137;
}

/* The rule of an IPv4 entry, from 1; 0: there is none. */
static ALWAYS_INLINE __u32 entry4(__u64 key)
{
	__u32 at = (key * hash_factor >> 32) & buckets4_mask, rule = 0;
	struct bucket4 *bucket = bpf_map_lookup_elem(&table4, &at);

	if (!bucket)
		return 0;
#pragma unroll
	for (int place = 0; place < KEYS; place++) {
		if (bucket->keys[place] == key)
			rule = bucket->rules[place];
	}
	return rule;
}

/* The first rule of the tables that takes an IPv4 packet, from 1. */
static ALWAYS_INLINE __u32 listed4(__u8 *data, void *end, __u32 flags)
{
	__u32 first = 0, used = shapes4_used, src, dst, ports = 0;
	__u8 *ip = data + ETH_LEN;
	int has_ports = 0;
	__u8 protocol;

	if ((void *)(ip + IPV4_LEN) > end || *(__u16 *)(data + 12) != htons(ETHERTYPE_IPV4))
		return 0;
	src = *(__u32 *)(ip + 12);
	dst = *(__u32 *)(ip + 16);
	protocol = ip[9];
	if ((flags & PORTS4) && has_leading_ports(protocol) && !(*(__u16 *)(ip + 6) & htons(0x1fff))) {
		__u32 *at = (__u32 *)(ip + (ip[0] & 0x0f) * 4);

		if ((void *)(at + 1) <= end) {
			ports = *at;
			has_ports = 1;
		}
	}
	/* Unrolled, what no shape requires is left out when the program is loaded. */
#pragma unroll
	for (__u32 at = 0; at < SHAPES; at++) {
		const volatile struct shape4 *shape = &shapes4[at];
		__u32 rule, only, port_side, side;
		__u64 key;

		if (at >= used)
			break;
		only = shape->protocol;
		if (only && only != protocol)
			continue;
		key = shape->key;
		port_side = shape->port_side;
		if (port_side != NEITHER) {
			if (!has_ports)
				continue;
			key |= (__u64)(port_side == SOURCE ? ports & 0xffff : ports >> 16) << 32;
		}
		side = shape->side;
		if (side != NEITHER)
			key |= (side == SOURCE ? src : dst) & shape->mask;
		rule = entry4(key);
		if (rule && (!first || rule < first))
			first = rule;
	}
	return first;
}

/* The same for an IPv6 packet. */
static ALWAYS_INLINE __u32 listed6(const struct packet *packet)
{
	__u32 first = 0;

	for (__u32 at = 0; at < SHAPES && at < shapes6_used; at++) {
		const volatile struct shape6 *shape = &shapes6[at];
		struct key6 key = {.protocol = shape->protocol, .shape = at};
		__u8 port_side = shape->port_side;
		__u32 *rule;

		if ((key.protocol && key.protocol != packet->protocol) || (port_side != NEITHER && !packet->has_ports))
			continue;
		if (port_side != NEITHER)
			key.port = port_side == SOURCE ? packet->src_port : packet->dst_port;
#pragma unroll
		for (int word = 0; word < 4; word++)
			key.addr[word] = (shape->side == SOURCE ? packet->src[word] : packet->dst[word]) & shape->mask[word];
		rule = bpf_map_lookup_elem(&table6, &key);
		if (rule && (!first || *rule < first))
			first = *rule;
	}
	return first;
}

/* Shows the user side one of the packets that are dropped, or would be. */
static ALWAYS_INLINE void sample(struct xdp_md *ctx, __u32 number, __u32 len, __u32 is_limited)
{
	struct sample *sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	__u64 kept = len;
	__u32 zero = 0;
	struct passed *passed;

	/* In one register, whose bounds the verifier then knows. */
	asm volatile("if %[kept] > 0 goto +1\n"
		     "%[kept] = 1\n"
		     "if %[kept] < %[most] goto +1\n"
		     "%[kept] = %[most]" : [kept] "+r"(kept) : [most] "i"(SAMPLE_BYTES));
	if (sample) {
		sample->time_ns = bpf_ktime_get_ns();
		sample->rule = number;
		sample->len = len;
		sample->kept = kept;
		sample->is_limited = is_limited;
		if (!bpf_xdp_load_bytes(ctx, 0, sample->bytes, kept)) {
			bpf_ringbuf_submit(sample, 0);
			return;
		}
		bpf_ringbuf_discard(sample, 0);
	}
	passed = bpf_map_lookup_elem(&passes, &zero);
	if (passed)
		passed->unsampled++;
}

/* What the user keeps out. */
static ALWAYS_INLINE int is_excluded(const struct packet *packet, __u32 flags)
{
	if (!packet->family)
		return 0;
	if (flags & NETWORKS) {
		struct network peer = {.prefix_len = 128};

		__builtin_memcpy(peer.addr, packet->src, sizeof(peer.addr));
		if (bpf_map_lookup_elem(&networks, &peer))
			return 1;
	}
	if ((flags & SESSIONS) && packet->protocol == PROTOCOL_TCP) {
		struct session session = {.peer_port = packet->src_port, .local_port = packet->dst_port};

		__builtin_memcpy(session.peer, packet->src, sizeof(session.peer));
		if (bpf_map_lookup_elem(&sessions, &session))
			return 1;
	}
	return 0;
}

/* Takes the packet's tokens out of its bucket; says whether there were not enough. */
static ALWAYS_INLINE int is_above(const struct rule *rule, __u32 number, const struct packet *packet, __u32 len)
{
	__u64 cost = rule->packet_cost_ns + (rule->kilobyte_cost_ns * len >> 10), now, full_at;
	struct flow flow = {.rule = number};
	__u64 *bucket;

	if (rule->per == PER_SOURCE || rule->per == PER_FLOW)
		__builtin_memcpy(flow.src, packet->src, sizeof(flow.src));
	if (rule->per == PER_DESTINATION || rule->per == PER_FLOW)
		__builtin_memcpy(flow.dst, packet->dst, sizeof(flow.dst));
	if (rule->per == PER_FLOW) {
		flow.src_port = packet->src_port;
		flow.dst_port = packet->dst_port;
	}
	now = bpf_ktime_get_ns();
	bucket = bpf_map_lookup_elem(&buckets, &flow);
	if (!bucket) {
		full_at = now + cost;
		bpf_map_update_elem(&buckets, &flow, &full_at, 0);
		return 0;
	}
	full_at = *(volatile __u64 *)bucket;
	if (full_at > now && full_at - now + cost > rule->burst_ns)
		return 1;
	if (full_at < now)
		*(volatile __u64 *)bucket = now + cost;
	else
		__sync_fetch_and_add(bucket, cost);
	return 0;
}

SEC("xdp")
int divert(struct xdp_md *ctx)
{
	void *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	__u32 queue = ctx->rx_queue_index, zero = 0, number = 0, len = end - data, verdict, flags = asked;
	struct passed *passed;
	struct packet packet;
	struct count *count;
	__u64 deadline;

	if (queue >= QUEUES)
		goto kernels;
	deadline = *(volatile __u64 *)&deadlines[queue];
	if (!deadline)
		goto kernels;

	if (flags & SHAPES4)
		number = listed4(data, end, flags);
	packet.family = 0;
	/* On the stack: in registers, what was not read would be copied about, which the verifier refuses. */
	asm volatile("" : : "r"(&packet) : "memory");
	if ((flags & SHAPES6) && !number) {
		read_packet(&packet, data, end, 0);
		if (packet.family == 6)
			number = listed6(&packet);
	}
	if (flags & CODE) {
		__u32 coded = chosen(data, end, flags & SETS ? in_sets(ctx) : 0);

		if (coded && (!number || coded < number))
			number = coded;
	}
	if (!number)
		goto unmatched;
	/* Tables know no VLAN tags: what they found in one is not read again. */
	if ((flags & (NETWORKS | SESSIONS | LIMITS)) && packet.family != 6)
		read_packet(&packet, data, end, 2);
	if (((flags & LINKS) && is_the_links(data, end)) ||
	    ((flags & (NETWORKS | SESSIONS)) && is_excluded(&packet, flags)))
		goto excluded;
	if (bpf_jiffies64() >= deadline)
		goto stale;

	number--;
	count = bpf_map_lookup_elem(&counts, &number);
	if (!count)
		return XDP_PASS;
	count->packets++;
	count->bytes += len;
	verdict = only_verdict;
	if (flags & (VERDICTS | LIMITS)) {
		struct rule *rule = bpf_map_lookup_elem(&rules, &number);

		if (!rule)
			return XDP_PASS;
		if ((flags & LIMITS) && (rule->packet_cost_ns || rule->kilobyte_cost_ns) &&
		    is_above(rule, number, &packet, len)) {
			if ((flags & SAMPLES) && !(count->limited % sample_every))
				sample(ctx, number, len, 1);
			count->limited++;
			count->limited_bytes += len;
			return XDP_DROP;
		}
		verdict = rule->verdict;
	}
	if (verdict == HAND_OVER) {
		__s64 action = bpf_redirect_map(&sockets, queue, XDP_PASS);

		if (action != XDP_REDIRECT)
			count->unsent++;
		return action;
	}
	/* Of each rule the first on a CPU, and every so manieth from there on. */
	if ((flags & SAMPLES) && verdict != GIVE_BACK && !((count->packets - 1) % sample_every))
		sample(ctx, number, len, 0);
	return verdict == DROP ? XDP_DROP : XDP_PASS;

	/* The counters of what passes are looked up only there. */
kernels:
	passed = bpf_map_lookup_elem(&passes, &zero);
	if (passed)
		passed->kernels++;
	return XDP_PASS;
unmatched:
	passed = bpf_map_lookup_elem(&passes, &zero);
	if (passed)
		passed->unmatched++;
	return XDP_PASS;
excluded:
	passed = bpf_map_lookup_elem(&passes, &zero);
	if (passed)
		passed->excluded++;
	return XDP_PASS;
stale:
	passed = bpf_map_lookup_elem(&passes, &zero);
	if (passed)
		passed->stale++;
	return XDP_PASS;
}

/* What `put_off` is run with, instead of a packet. */
struct order {
	__u32 queue;
	__u32 unused;
	__u64 jiffies; /* for so long from now on; 0: no more */
};
_Static_assert(sizeof(struct order) == 16, "written by divert.rs");

/* Sets a queue's deadline by the clock that it is compared with; run by the user side, never attached. */
SEC("xdp")
int put_off(struct xdp_md *ctx)
{
	struct order *order = (void *)(__u64)ctx->data;
	__u32 queue;

	if ((void *)(order + 1) > (void *)(__u64)ctx->data_end)
		return XDP_ABORTED;
	queue = order->queue;
	if (queue >= QUEUES)
		return XDP_ABORTED;
	*(volatile __u64 *)&deadlines[queue] = order->jiffies ? bpf_jiffies64() + order->jiffies : 0;
	return XDP_PASS;
}
