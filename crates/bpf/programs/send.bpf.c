/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes packet after packet out of BPF_PROG_RUN's live frames and sends them.
 *
 * A page starts as a copy of the base frame and is recycled: all headers are written anew every time, because whoever
 * had the page before may have changed them (taking a VLAN tag off moves both addresses; GRO writes the joined length,
 * and the checksum over it, into the first of the frames that it joins; a router writes addresses and a hop limit).
 * Everything in .rodata is a constant to the verifier, which removes the code of all fields that do not vary; a read of it
 * stays a load, so each is read once. Sums are of words as they stand in memory: RFC 1071 needs no byte order.
 */
#include "linerate.bpf.h"

enum field { SRC_ADDR, DST_ADDR, SRC_PORT, DST_PORT, PAYLOAD_LEN, FIELDS };
enum kind { FIXED, INCREMENT, RANDOM, LIST };
enum path { BY_TX, BY_MAP, DROPPED };
/* What varies: nothing; addresses and ports, without lists; whatever can. */
enum makeup { NUMBERED, DRAWN, ANY };

#define HEADER_WORDS 9 /* Ethernet with two tags, IPv6, UDP */
#define CHECK_LEN 2    /* the UDP checksum, last of the headers */

/* How a field's value follows from the packet's number; values are in host order. */
struct draw {
	__u64 first_low;
	__u64 first_high;
	__u64 count;
	__u64 seed;
	__u32 kind;
	__u32 step;
	__u32 list_at;
	__u32 unused;
};
_Static_assert(sizeof(struct draw) == 48, "written by send.rs");

/* Written before a run, read after it; one thread runs one instance. */
struct state {
	__u64 time;            /* as it stands in the frame */
	__u64 index[FIELDS];   /* of the next packet, in each field's cycle */
	__u32 sequence;        /* of the next packet */
	__u32 udp_sum;         /* of all that is the same in all packets of the run */
};
_Static_assert(sizeof(struct state) == 56, "written by send.rs");

struct value {
	__u64 low;
	__u64 high;
};

const volatile struct draw draws[FIELDS] = {};
const volatile __u32 payload_at = ETH_LEN + IPV4_LEN + UDP_LEN;
const volatile __u32 base_len = 60;
const volatile __u32 least_len = 60;
const volatile __u32 is_ipv6 = 0;
const volatile __u32 ipv4_checksum_varies = 0;
const volatile __u32 ipv4_sum = 0; /* of what is constant, in memory order */
const volatile __u64 headers[HEADER_WORDS] = {}; /* the base frame's first bytes */
const volatile __u32 makeup = ANY;
const volatile __u32 path = BY_TX;

/* Alone in .bss: its address is a constant of the program, where a map asks for a lookup. */
struct state state;

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

/* Where the field's value in this packet stands: in its list, or behind its first value. */
static ALWAYS_INLINE __u32 place(enum field field, __u32 kind, __u32 sequence)
{
	__u64 index, next;

	if (kind == RANDOM)
		return (mix(sequence * 0x9e3779b97f4a7c15ULL + draws[field].seed) >> 32) * draws[field].count >> 32;
	index = state.index[field];
	next = index + 1;
	state.index[field] = next == draws[field].count ? 0 : next;
	return kind == LIST ? draws[field].list_at + (__u32)index : draws[field].step * (__u32)index;
}

/* The field's value in this packet; a field without a list needs no helper, whose call costs all registers. */
static ALWAYS_INLINE __u32 draw(enum field field, __u32 kind, __u32 sequence, int has_lists)
{
	__u32 at = place(field, kind, sequence);

	if (has_lists && kind == LIST) {
		struct value *listed = bpf_map_lookup_elem(&values, &at);

		return listed ? listed->low : 0;
	}
	return (__u32)draws[field].first_low + at;
}

/* The same where it has up to 128 bits. */
static ALWAYS_INLINE struct value draw_long(enum field field, __u32 kind, __u32 sequence, int has_lists)
{
	struct value value = {draws[field].first_low, draws[field].first_high};
	__u32 at = place(field, kind, sequence);

	if (has_lists && kind == LIST) {
		struct value *listed = bpf_map_lookup_elem(&values, &at);

		return listed ? *listed : value;
	}
	value.low += at;
	value.high += value.low < at;
	return value;
}

/* The sum in 16 bits: of at most 2^16 words, so that few carries are left. */
static ALWAYS_INLINE __u16 fold(__u64 sum)
{
	__u32 carried;

	sum = (__u32)sum + (sum >> 32);
	carried = (__u32)(sum >> 16) + (__u16)sum;
	carried = (carried >> 16) + (__u16)carried;
	return carried + (carried >> 16);
}

/* Adds eight bytes of the frame. */
static ALWAYS_INLINE __u64 add64(__u64 sum, __u64 word)
{
	return sum + (word & 0xffffffff) + (word >> 32);
}

/* The base frame's headers but for the UDP checksum: words, and what is left, which is nothing or half a word. */
static ALWAYS_INLINE void write_headers(__u8 *data, __u32 payload_at)
{
	__u32 len = payload_at - CHECK_LEN;

#pragma unroll
	for (__u32 word = 0; word < HEADER_WORDS; word++) {
		if (8 * word + 8 <= len)
			*(__u64 *)(data + 8 * word) = headers[word];
		else if (8 * word < len)
			*(__u32 *)(data + 8 * word) = headers[word];
	}
}

/* The UDP checksum of a datagram with this sum, and the probe header behind it. */
static ALWAYS_INLINE void write_check_and_probe(__u8 *payload, __u64 datagram, __u32 number)
{
	__u16 check = ~fold(datagram);

	*(__u16 *)(payload - CHECK_LEN) = check ? check : 0xffff; /* 0 would mean that there is none */
	*(__u64 *)payload = htonl(PROBE_MAGIC) | (__u64)number << 32;
	*(__u64 *)(payload + 8) = state.time;
}

static ALWAYS_INLINE int leave(void)
{
	__u32 by = path;

	if (by == BY_TX)
		return XDP_TX;
	return by == BY_MAP ? bpf_redirect_map(&target, 0, 0) : XDP_DROP;
}

/* What differs from packet to packet is its number. */
static ALWAYS_INLINE int send_fixed(__u8 *data, __u8 *end)
{
	__u32 sequence = state.sequence, number = htonl(sequence), to_payload = payload_at;

	if (data + base_len > end)
		return XDP_ABORTED;
	write_headers(data, to_payload);
	write_check_and_probe(data + to_payload, (__u64)state.udp_sum + number, number);
	state.sequence = sequence + 1;
	return leave();
}

/*
 * Packets that differ in more: `is_any` in lists and lengths too. Headers stand at constant distances before the
 * payload, so that one register reaches all.
 */
static ALWAYS_INLINE int send_varying(struct xdp_md *ctx, __u8 *data, __u8 *end, int is_any)
{
	__u32 base = base_len, ipv6 = is_ipv6, kind, len = base;
	__u32 sequence = state.sequence, number = htonl(sequence);
	__u64 ip = ipv4_sum, datagram = (__u64)state.udp_sum + number;
	__u8 *payload;

	if (data + base > end)
		return XDP_ABORTED;
	payload = data + payload_at;
	write_headers(data, payload_at);

#pragma unroll
	for (enum field field = SRC_ADDR; field <= DST_ADDR; field++) {
		kind = draws[field].kind;
		if (kind == FIXED)
			continue;
		if (ipv6) {
			struct value address = draw_long(field, kind, sequence, is_any);
			__u64 high = __builtin_bswap64(address.high), low = __builtin_bswap64(address.low);

			*(__u64 *)(payload - UDP_LEN - 32 + field * 16) = high;
			*(__u64 *)(payload - UDP_LEN - 24 + field * 16) = low;
			datagram = add64(add64(datagram, high), low);
		} else {
			__u32 bits = htonl(draw(field, kind, sequence, is_any));

			*(__u32 *)(payload - UDP_LEN - 8 + field * 4) = bits;
			ip += bits;
			datagram += bits;
		}
	}
#pragma unroll
	for (enum field field = SRC_PORT; field <= DST_PORT; field++) {
		__u16 port;

		kind = draws[field].kind;
		if (kind == FIXED)
			continue;
		port = htons((__u16)draw(field, kind, sequence, is_any));
		*(__u16 *)(payload - UDP_LEN + (field - SRC_PORT) * 2) = port;
		datagram += port;
	}
	kind = is_any ? draws[PAYLOAD_LEN].kind : FIXED;
	if (kind != FIXED) {
		__u32 payload_len = draw(PAYLOAD_LEN, kind, sequence, 1);
		__u16 datagram_len = htons((__u16)(payload_len + UDP_LEN));

		*(__u16 *)(payload - 4) = datagram_len;
		datagram += 2 * (__u32)datagram_len; /* in the pseudo header too */
		if (ipv6) {
			*(__u16 *)(payload - UDP_LEN - IPV6_LEN + 4) = datagram_len;
		} else {
			__u16 total_len = htons((__u16)(payload_len + UDP_LEN + IPV4_LEN));

			*(__u16 *)(payload - UDP_LEN - IPV4_LEN + 2) = total_len;
			ip += total_len;
		}
		len = payload_at + payload_len;
		if (len < least_len)
			len = least_len;
	}

	write_check_and_probe(payload, datagram, number);
	if (ipv4_checksum_varies)
		*(__u16 *)(payload - UDP_LEN - IPV4_LEN + 10) = ~fold(ip);

	state.sequence = sequence + 1;
	if (UNLIKELY(number == 0xffffffff)) /* the pattern starts again */
		for (int field = 0; field < FIELDS; field++)
			state.index[field] = 0;

	if (kind != FIXED && len != base && bpf_xdp_adjust_tail(ctx, (int)len - (int)base))
		return XDP_ABORTED;
	return leave();
}

SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u8 *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	__u32 how = makeup;

	if (how == NUMBERED)
		return send_fixed(data, end);
	return how == DRAWN ? send_varying(ctx, data, end, 0) : send_varying(ctx, data, end, 1);
}
