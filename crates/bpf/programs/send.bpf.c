/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes packet after packet out of BPF_PROG_RUN's live frames and sends them.
 *
 * A page starts as a copy of the base frame and is recycled: all headers are written anew every time, because whoever
 * had the page before may have changed them (taking a VLAN tag off moves both addresses; GRO writes the joined length,
 * and the checksum over it, into the first of the frames that it joins; a router writes addresses and a hop limit).
 * Everything in .rodata is a constant to the verifier, which removes the code of all fields that do not vary. Sums are
 * of words as they stand in memory: RFC 1071 needs no byte order.
 */
#include "linerate.bpf.h"

enum field { SRC_ADDR, DST_ADDR, SRC_PORT, DST_PORT, PAYLOAD_LEN, FIELDS };
enum kind { FIXED, INCREMENT, RANDOM, LIST };
enum path { BY_TX, BY_MAP, DROPPED };

#define HEADER_WORDS 9 /* Ethernet with two tags, IPv6, UDP up to its checksum */

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
	__u32 sequence;        /* of the next packet */
	__u32 made;            /* packets since this was written */
	__u64 index[FIELDS];   /* of the next packet, in each field's cycle */
};
_Static_assert(sizeof(struct state) == 56, "written by send.rs");

struct value {
	__u64 low;
	__u64 high;
};

const volatile struct draw draws[FIELDS] = {};
const volatile __u32 ip_at = ETH_LEN;
const volatile __u32 udp_at = ETH_LEN + IPV4_LEN;
const volatile __u32 payload_at = ETH_LEN + IPV4_LEN + UDP_LEN;
const volatile __u32 base_len = 60;
const volatile __u32 least_len = 60;
const volatile __u32 is_ipv6 = 0;
const volatile __u32 ipv4_checksum_varies = 0;
const volatile __u32 ipv4_sum = 0; /* of what is constant, in memory order */
const volatile __u32 udp_sum = 0;
const volatile __u64 headers[HEADER_WORDS] = {}; /* the base frame's first bytes */
const volatile __u32 path = BY_TX;

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct state);
	NUMBER(max_entries, 1);
} states SEC(".maps");

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

/* The field's value in this packet. */
static ALWAYS_INLINE struct value draw(enum field field, struct state *state)
{
	struct value value = {draws[field].first_low, draws[field].first_high};
	__u64 index = state->index[field];
	__u32 distance;

	if (draws[field].kind == RANDOM) {
		__u64 random = mix(state->sequence * 0x9e3779b97f4a7c15ULL + draws[field].seed) >> 32;

		distance = random * draws[field].count >> 32;
	} else {
		__u64 next = index + 1;

		state->index[field] = next == draws[field].count ? 0 : next;
		if (draws[field].kind == LIST) {
			__u32 key = draws[field].list_at + (__u32)index;
			struct value *listed = bpf_map_lookup_elem(&values, &key);

			return listed ? *listed : value;
		}
		distance = draws[field].step * (__u32)index;
	}
	value.low += distance;
	value.high += value.low < distance;
	return value;
}

static ALWAYS_INLINE __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Adds eight bytes of the frame. */
static ALWAYS_INLINE __u64 add64(__u64 sum, __u64 word)
{
	return sum + (word & 0xffffffff) + (word >> 32);
}

SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u8 *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	__u64 ip = ipv4_sum, datagram = udp_sum;
	__u32 zero = 0, len = base_len, sequence, check;
	struct state *state = bpf_map_lookup_elem(&states, &zero);

	if (!state || data + base_len > end)
		return XDP_ABORTED;

	/* All before the UDP checksum; that is a whole number of words of four bytes with every header there is. */
#pragma unroll
	for (__u32 word = 0; word < HEADER_WORDS; word++)
		if (8 * word + 8 <= udp_at + 6)
			*(__u64 *)(data + 8 * word) = headers[word];
		else if (8 * word + 4 <= udp_at + 6)
			*(__u32 *)(data + 8 * word) = headers[word];

#pragma unroll
	for (enum field field = SRC_ADDR; field <= DST_ADDR; field++) {
		if (draws[field].kind == FIXED)
			continue;
		struct value address = draw(field, state);

		if (is_ipv6) {
			__u64 high = __builtin_bswap64(address.high), low = __builtin_bswap64(address.low);

			*(__u64 *)(data + ip_at + 8 + field * 16) = high;
			*(__u64 *)(data + ip_at + 16 + field * 16) = low;
			datagram = add64(add64(datagram, high), low);
		} else {
			__u32 bits = htonl((__u32)address.low);

			*(__u32 *)(data + ip_at + 12 + field * 4) = bits;
			ip += bits;
			datagram += bits;
		}
	}
#pragma unroll
	for (enum field field = SRC_PORT; field <= DST_PORT; field++) {
		if (draws[field].kind == FIXED)
			continue;
		__u16 port = htons((__u16)draw(field, state).low);

		*(__u16 *)(data + udp_at + (field - SRC_PORT) * 2) = port;
		datagram += port;
	}
	if (draws[PAYLOAD_LEN].kind != FIXED) {
		__u32 payload_len = draw(PAYLOAD_LEN, state).low;
		__u16 datagram_len = htons((__u16)(payload_len + UDP_LEN));

		*(__u16 *)(data + udp_at + 4) = datagram_len;
		datagram += 2 * (__u32)datagram_len; /* in the pseudo header too */
		if (is_ipv6) {
			*(__u16 *)(data + ip_at + 4) = datagram_len;
		} else {
			__u16 total_len = htons((__u16)(payload_len + UDP_LEN + IPV4_LEN));

			*(__u16 *)(data + ip_at + 2) = total_len;
			ip += total_len;
		}
		len = payload_at + payload_len;
		if (len < least_len)
			len = least_len;
	}

	sequence = htonl(state->sequence);
	*(__u32 *)(data + payload_at + 4) = sequence;
	*(__u64 *)(data + payload_at + 8) = state->time;
	datagram = add64(datagram, state->time) + sequence;
	check = ~fold(datagram) & 0xffff;
	*(__u16 *)(data + udp_at + 6) = check ? check : 0xffff;
	if (ipv4_checksum_varies)
		*(__u16 *)(data + ip_at + 10) = ~fold(ip);

	state->made++;
	if (UNLIKELY(++state->sequence == 0)) /* the pattern starts again */
		for (int field = 0; field < FIELDS; field++)
			state->index[field] = 0;

	if (draws[PAYLOAD_LEN].kind != FIXED && len != base_len &&
	    bpf_xdp_adjust_tail(ctx, (int)len - (int)base_len))
		return XDP_ABORTED;
	if (path == BY_TX)
		return XDP_TX;
	if (path == BY_MAP)
		return bpf_redirect_map(&target, 0, 0);
	return XDP_DROP;
}
