/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Runs: packets that differ in nothing but their numbers, and how they are recognised. */
#ifndef MEASURE_RUN_H
#define MEASURE_RUN_H

#include "linerate.bpf.h"

const volatile __u32 is_scripted = 0; /* for tests: the time of arrival follows the tag */

struct ends {
	__u64 source[2];
	__u64 destination[2];
};

struct packet {
	__u64 tag;
	__u64 raw;
	__u64 now;
	__u32 number;
	__u32 payload_len;
};

/*
 * With one time a poll, packets of a batch differ in nothing but their numbers: each has the time of sending and of arrival
 * of the one before, so all their gaps and jitters are 0 and their latency is the same. They are only counted here;
 * settle_run() adds them up when another packet comes, and at the end of the poll.
 */
struct run {
	__u64 poll_ns; /* the time of the current poll, 0 when it has just begun */
	__u64 repeats;
	__u64 now;
	__u64 raw;
	__u64 tag; /* 0: there is no packet before, or none that may be repeated */
	struct ends ends;
	__u64 lengths; /* of the frame and the payload */
	__u64 words[6]; /* of a plain frame; the first is NOT_PLAIN for others */
	__u32 next; /* number */
	__u32 queue;
	__u32 bank;
	__u32 sender; /* places */
	__u32 flow;
	__u32 is_by_uptime;
	__u64 sent; /* 0: not known */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct run);
	NUMBER(max_entries, 1);
} runs SEC(".maps");

/*
 * A frame with plain headers (IPv4 without tags and options) from its EtherType to the end of the stream tag: all that the
 * packets of a run share except their numbers, and all that must be read. As wire::Likeness in user space:
 * without the type of service, the identification, the TTL and the checksums.
 */
#define WORDS_AT 12
#define NUMBER_AT 46
#define PLAIN_LEN (WORDS_AT + 6 * 8)
#define NOT_PLAIN (~0ULL)
#define WORD0 0x0000ffff00ffffffULL
#define WORD1 0xffff0000ff00ffffULL
#define WORD3 0xffff0000ffffffffULL
#define WORD4 0xffff00000000ffffULL

static ALWAYS_INLINE void remember_words(struct run *run, void *data, void *end)
{
	__u64 *words = data + WORDS_AT;

	run->words[0] = NOT_PLAIN;
	if (data + PLAIN_LEN > end || (words[0] & 0xffffff) != (0x450000 | htons(ETHERTYPE_IPV4)))
		return;
	run->words[0] = words[0] & WORD0;
	run->words[1] = words[1] & WORD1;
	run->words[2] = words[2];
	run->words[3] = words[3] & WORD3;
	run->words[4] = words[4] & WORD4;
	run->words[5] = words[5];
}

/* Whether a frame is seen at once to continue the run. */
static ALWAYS_INLINE int continues(struct run *run, void *data, void *end)
{
	__u64 *words = data + WORDS_AT;

	return run->tag && data + PLAIN_LEN <= end && (words[0] & WORD0) == run->words[0] &&
	       (words[1] & WORD1) == run->words[1] && words[2] == run->words[2] &&
	       (words[3] & WORD3) == run->words[3] && (words[4] & WORD4) == run->words[4] &&
	       words[5] == run->words[5] && *(__u32 *)(data + NUMBER_AT) == htonl(run->next) &&
	       end - data + FCS_LEN == run->lengths >> 32;
}

/* Whether it also came with the others. */
static ALWAYS_INLINE int is_together(struct run *run, void *data, void *end)
{
	__u64 *scripted = data + PLAIN_LEN;

	if (!is_scripted)
		return run->poll_ns == run->now;
	return (void *)(scripted + 1) <= end && __builtin_bswap64(*scripted) == run->now;
}

static ALWAYS_INLINE int is_like_before(struct run *run, struct ends *ends, struct packet *packet)
{
	return packet->number == run->next && packet->now == run->now && packet->raw == run->raw &&
	       packet->tag == run->tag && ends->source[0] == run->ends.source[0] &&
	       ends->destination[0] == run->ends.destination[0] && ends->source[1] == run->ends.source[1] &&
	       ends->destination[1] == run->ends.destination[1];
}

#endif
