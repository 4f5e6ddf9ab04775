/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Turns BPF_PROG_RUN's live frames into packets and sends them.
 *
 * A page starts as a copy of the base frame and is recycled: all headers are written anew every time, because whatever
 * had the page before may have changed them (taking a VLAN tag off moves both addresses; GRO writes the joined length,
 * and the checksum over it, into the first of the frames that it joins; a router writes addresses and a hop limit).
 * All of struct plan is constant to the verifier, which removes the code of all fields that do not vary; a read of it
 * stays a load, so each is read once. Sums are of words in memory order: RFC 1071 needs no byte order.
 */
#include "linerate.bpf.h"

enum field { SRC_ADDR, DST_ADDR, SRC_PORT, DST_PORT, PAYLOAD_LEN, FIELDS };
enum kind { FIXED, INCREMENT, RANDOM, LIST };
enum path { BY_TX, BY_MAP, DROPPED };

#define HEADER_WORDS 9 /* Ethernet with two tags, IPv6, UDP */
#define CHECK_LEN 2    /* the UDP checksum, last of the headers */

/* How a field's value follows from the packet's number; values are in host order. */
struct draw {
	__u64 base_low; /* of an IPv6 address, which the others are distances from */
	__u64 base_high;
	__u64 count; /* of a random value */
	__u64 seed;
	__u32 kind;
	__u32 first; /* the smallest random value; in a list, its place in `values` */
	__u32 last;
	__u32 step;
};
_Static_assert(sizeof(struct draw) == 48, "written by send.rs");

struct plan {
	__u32 payload_at;
	__u32 base_len;
	__u32 least_len;
	__u32 path;
	__u32 ipv4_checksum_varies;
	__u32 ipv4_sum; /* of what is constant, in memory order */
	__u64 headers[HEADER_WORDS]; /* the base frame's first bytes */
	struct draw draws[FIELDS];
};
_Static_assert(sizeof(struct plan) == 42 * 8, "written by send.rs");

/* Written before a run, read after it; one thread runs one instance. */
struct state {
	__u64 time;       /* as in the frame */
	__u32 sequence;   /* of the next packet; it does not start again within a run */
	__u32 udp_sum;    /* of all that is the same in all packets of the run, and 1 */
	__u32 at[FIELDS]; /* the next packet's values, of those that come one after the other */
	__u32 unused;
};
_Static_assert(sizeof(struct state) == 5 * 8, "written by send.rs");

struct value {
	__u64 low;
	__u64 high;
};

const volatile struct plan plan = {};
/* Alone in .bss: its address is a constant of the program, where a map needs a lookup. */
struct state state;

/* Where the struct is, in a register that the compiler does not forget; else it writes the address out for each use. */
#define KEPT(pointer) ({ typeof(pointer) kept = (pointer); asm volatile("" : "+r"(kept)); kept; })

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct value);
	NUMBER(max_entries, 1);
} values SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_DEVMAP);
	TYPE(key, __u32);
	TYPE(value, __u64);
	NUMBER(max_entries, 1);
} target SEC(".maps");

/* The finalizer of SplitMix64. */
static ALWAYS_INLINE __u64 mix(__u64 bits)
{
	bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ULL;
	bits = (bits ^ bits >> 27) * 0x94d049bb133111ebULL;
	return bits ^ bits >> 31;
}

/* The field's value in this packet, or its place in `values`. */
static ALWAYS_INLINE __u32 draw(const volatile struct draw *draw, __u32 *next, __u32 kind, __u32 sequence)
{
	__u32 at, after;

	if (kind == RANDOM)
		return ((mix(sequence * 0x9e3779b97f4a7c15ULL + draw->seed) >> 32) * draw->count >> 32) + draw->first;
	at = *next;
	after = at + draw->step;
	if (UNLIKELY(at == draw->last))
		after = draw->first;
	*next = after;
	return at;
}

/* The value in a list at this place. */
static ALWAYS_INLINE struct value listed(__u32 at)
{
	struct value *value = bpf_map_lookup_elem(&values, &at), none = {};

	return value ? *value : none;
}

/* The sum, of at most 2^15 words, in 16 bits: 0 only if it is. Halves added to halves the other way round carry into each other. */
static ALWAYS_INLINE __u16 fold(__u64 sum)
{
	__u32 half = (sum >> 16) + (sum & 0xffff);

	return (half * 0x10001 + (half >> 16)) >> 16;
}

/* Adds eight bytes of the frame. */
static ALWAYS_INLINE __u64 add64(__u64 sum, __u64 word)
{
	return sum + (word & 0xffffffff) + (word >> 32);
}

/* The base frame's headers but for the UDP checksum: words, and what is left, which is nothing or half a word. */
static ALWAYS_INLINE void write_headers(__u8 *data, const volatile struct plan *plan, __u32 payload_at)
{
	__u32 len = payload_at - CHECK_LEN;

#pragma unroll
	for (__u32 word = 0; word < HEADER_WORDS; word++) {
		if (8 * word + 8 <= len)
			*(__u64 *)(data + 8 * word) = plan->headers[word];
		else if (8 * word < len)
			*(__u32 *)(data + 8 * word) = plan->headers[word];
	}
}

/* The UDP checksum of a datagram with this sum and 1 more, and the probe header behind it. */
static ALWAYS_INLINE void write_check_and_probe(__u8 *payload, __u64 datagram, __u32 number, __u64 time)
{
	/* ~fold(sum), but 0xffff for 0, which would mean that there is none. */
	*(__u16 *)(payload - CHECK_LEN) = -fold(datagram);
	*(__u64 *)payload = htonl(PROBE_MAGIC) | (__u64)number << 32;
	*(__u64 *)(payload + 8) = time;
}

static ALWAYS_INLINE int leave(__u32 by)
{
	if (by == BY_TX)
		return XDP_TX;
	return by == BY_MAP ? bpf_redirect_map(&target, 0, 0) : XDP_DROP;
}

/* Packets differ in their number only. */
static ALWAYS_INLINE int send_fixed(struct xdp_md *ctx)
{
	__u8 *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end, *payload;
	const volatile struct plan *constants = KEPT(&plan);
	struct state *own = KEPT(&state);
	__u32 sequence = own->sequence, number = htonl(sequence), payload_at = constants->payload_at;

	payload = data + payload_at;
	if (payload + sizeof(struct probe) > end)
		return XDP_ABORTED;
	write_headers(data, constants, payload_at);
	write_check_and_probe(payload, (__u64)own->udp_sum + number, number, own->time);
	own->sequence = sequence + 1;
	return leave(constants->path);
}

/*
 * Packets that differ in more: `is_any` in lists and lengths too. Headers lie at constant distances before the
 * payload, so that one register reaches all.
 */
static ALWAYS_INLINE int send_varying(struct xdp_md *ctx, int is_any, int ipv6)
{
	__u8 *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end, *payload;
	const volatile struct plan *constants = KEPT(&plan);
	struct state *own = KEPT(&state);
	__u32 sequence = own->sequence, number, payload_at = constants->payload_at, kind, len = 0;
	__u64 addresses = 0, others = 0, lengths = 0; /* sums */

	payload = data + payload_at;
	if (payload + sizeof(struct probe) > end)
		return XDP_ABORTED;
	write_headers(data, constants, payload_at);

#pragma unroll
	for (enum field field = SRC_ADDR; field <= DST_ADDR; field++) {
		const volatile struct draw *rule = &constants->draws[field];
		__u32 at;

		kind = rule->kind;
		if (kind == FIXED)
			continue;
		at = draw(rule, &own->at[field], kind, sequence);
		if (ipv6) {
			struct value address = {rule->base_low, rule->base_high};
			__u64 high, low;

			if (is_any && kind == LIST) {
				address = listed(at);
			} else {
				address.low += at;
				address.high += address.low < at;
			}
			high = __builtin_bswap64(address.high);
			low = __builtin_bswap64(address.low);
			*(__u64 *)(payload - UDP_LEN - 32 + field * 16) = high;
			*(__u64 *)(payload - UDP_LEN - 24 + field * 16) = low;
			addresses = add64(add64(addresses, high), low);
		} else {
			__u32 bits = htonl(is_any && kind == LIST ? (__u32)listed(at).low : at);

			*(__u32 *)(payload - UDP_LEN - 8 + field * 4) = bits;
			addresses += bits;
		}
	}
#pragma unroll
	for (enum field field = SRC_PORT; field <= DST_PORT; field++) {
		const volatile struct draw *rule = &constants->draws[field];
		__u32 at;
		__u16 port;

		kind = rule->kind;
		if (kind == FIXED)
			continue;
		at = draw(rule, &own->at[field], kind, sequence);
		port = htons((__u16)(is_any && kind == LIST ? listed(at).low : at));
		*(__u16 *)(payload - UDP_LEN + (field - SRC_PORT) * 2) = port;
		others += port;
	}
	kind = is_any ? constants->draws[PAYLOAD_LEN].kind : FIXED;
	if (kind != FIXED) {
		__u32 at = draw(&constants->draws[PAYLOAD_LEN], &own->at[PAYLOAD_LEN], kind, sequence);
		__u32 payload_len = kind == LIST ? (__u32)listed(at).low : at, least = constants->least_len;
		__u16 datagram_len = htons((__u16)(payload_len + UDP_LEN));

		*(__u16 *)(payload - 4) = datagram_len;
		others += 2 * (__u32)datagram_len; /* in the pseudo header too */
		if (ipv6) {
			*(__u16 *)(payload - UDP_LEN - IPV6_LEN + 4) = datagram_len;
		} else {
			__u16 total_len = htons((__u16)(payload_len + UDP_LEN + IPV4_LEN));

			*(__u16 *)(payload - UDP_LEN - IPV4_LEN + 2) = total_len;
			lengths = total_len;
		}
		len = payload_at + payload_len;
		if (len < least)
			len = least;
	}

	number = htonl(sequence);
	write_check_and_probe(payload, addresses + others + own->udp_sum + number, number, own->time);
	if (!ipv6 && constants->ipv4_checksum_varies)
		*(__u16 *)(payload - UDP_LEN - IPV4_LEN + 10) = ~fold(addresses + lengths + constants->ipv4_sum);

	own->sequence = sequence + 1;
	if (kind != FIXED) {
		__u32 base_len = constants->base_len;

		if (len != base_len && bpf_xdp_adjust_tail(ctx, (int)len - (int)base_len))
			return XDP_ABORTED;
	}
	return leave(constants->path);
}

/* One program per kind of packets, each with only the code that it needs. */
SEC("xdp")
int send_numbered(struct xdp_md *ctx)
{
	return send_fixed(ctx);
}

SEC("xdp")
int send_drawn_ipv4(struct xdp_md *ctx)
{
	return send_varying(ctx, 0, 0);
}

SEC("xdp")
int send_drawn_ipv6(struct xdp_md *ctx)
{
	return send_varying(ctx, 0, 1);
}

SEC("xdp")
int send_any_ipv4(struct xdp_md *ctx)
{
	return send_varying(ctx, 1, 0);
}

SEC("xdp")
int send_any_ipv6(struct xdp_md *ctx)
{
	return send_varying(ctx, 1, 1);
}
